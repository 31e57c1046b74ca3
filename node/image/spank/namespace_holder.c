/* The process that keeps a container's namespaces open. It is linked statically, because the image may have no libraries.
 * It writes "ready PID" to the descriptor in its argument and then waits until it is killed with its step. */
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
