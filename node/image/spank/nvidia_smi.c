/* nvidia-smi inside containers on machines with SIMULATED GPUs. It starts the machine's nvidia-smi, which is a Python
 * program. An image may have no Python, so the machine's /usr is mounted at SIM, and its loader starts its Python. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SIM "/run/headway/sim"

int main(int argc, char **argv)
{
    char *loader[] = {SIM "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", SIM "/lib/aarch64-linux-gnu/ld-linux-aarch64.so.1"};
    char **words = calloc(argc + 8, sizeof(*words));
    int count = 0;

    if (words == NULL)
        return 1;
    words[count++] = "nvidia-smi";
    words[count++] = "--library-path";
    words[count++] = SIM "/lib/x86_64-linux-gnu:" SIM "/lib/aarch64-linux-gnu";
    words[count++] = SIM "/bin/python3";
    words[count++] = "-IS";
    words[count++] = SIM "/bin/nvidia-smi";
    for (int i = 1; i < argc; i++)
        words[count++] = argv[i];
    for (size_t i = 0; i < sizeof(loader) / sizeof(loader[0]); i++)
        execv(loader[i], words);
    perror("nvidia-smi (simulated)");
    return 1;
}
