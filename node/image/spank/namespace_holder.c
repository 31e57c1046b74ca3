/* The one process that keeps a container's namespaces open. Linked statically: the image it runs in need not have anything.
 * Says "ready PID" on the descriptor it is given and then waits to be killed with its step. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int report = argc > 1 ? atoi(argv[1]) : -1;

    if (report < 0 || dprintf(report, "ready %d\n", (int)getpid()) < 0)
        return 1;
    for (int handle = 0; handle < 64; handle++)
        close(handle);
    for (;;)
        pause();
}
