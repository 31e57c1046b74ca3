/* The cgroup by which nftables know the processes of a job whose network is restricted. The prolog makes it, and names it in the
 * job's folder, where Slurm's own cgroups can't serve: nftables find only cgroups v2.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Moves this process, with all that it starts, into the cgroup of its job. Returns -1 and sets errno if that fails: then the
 * process must not run as the user. `folder`: of the job. */
static int join_network_cgroup(const char *folder)
{
    char path[160], group[2048];
    struct stat info;

    snprintf(path, sizeof(path), "%s/join-cgroup", folder);
    if (stat(path, &info) != 0)
        return errno == ENOENT ? 0 : -1;
    if (read_small(path, group, sizeof(group)) <= 0)
        return -1;
    group[strcspn(group, "\n")] = '\0';
    return write_small(group, "0");
}
