/* The limit of processes and threads of a job on a node. The prolog writes it to the job's folder.
 *
 * Slurm limits memory, CPUs and devices of a job, but not its processes. With cgroup v1 each job has a group of its own in the
 * hierarchy of the pids controller, which its tasks and SSH sessions join and the epilog removes. With cgroup v2 there is only
 * Slurm's hierarchy: there each step has the limit, in the group of its tasks. The job's own group has none, because slurmstepd
 * is in it too and would end if it could start no thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef JOB_FOLDERS /* tests set their own */
#define JOB_FOLDERS "/var/lib/headway/job-tmp"
#define CGROUPS "/sys/fs/cgroup"
#define OWN_CGROUP "/proc/self/cgroup"
#endif
#define PIDS_GROUPS CGROUPS "/pids/headway-jobs"

/* Reads a small file. Returns the length, -1 if it can't be read. */
static int read_small(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, size - 1);

    if (file >= 0)
        close(file);
    text[length > 0 ? length : 0] = '\0';
    return (int)length;
}

static int write_small(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : write(file, text, strlen(text));

    if (file >= 0)
        close(file);
    return length < 0 ? -1 : 0;
}

/* Returns the limit, 0 if the job has none here. */
static long process_limit(unsigned int job)
{
    char path[128], text[32];

    snprintf(path, sizeof(path), JOB_FOLDERS "/%u/processes", job);
    return read_small(path, text, sizeof(text)) > 0 ? strtol(text, NULL, 10) : 0;
}

/* Stores the folder of the step's group in Slurm's cgroup v2 hierarchy, of which this process is in a part. Returns -1 if it is
 * in none. */
static int step_group(char *folder, size_t size)
{
    char text[4096], *path, *step;

    errno = ENOENT;
    if (read_small(OWN_CGROUP, text, sizeof(text)) <= 0 || (path = strstr(text, "0::/")) == NULL)
        return -1;
    path[strcspn(path, "\n")] = '\0';
    if (strstr(path, "/job_") == NULL || (step = strstr(path, "/step_")) == NULL)
        return -1;
    step[1 + strcspn(step + 1, "/")] = '\0';
    return snprintf(folder, size, CGROUPS "%s", path + strlen("0::")) < (int)size ? 0 : -1;
}

/* Sets pids.max of the group `user` of the step, to which all its tasks belong. */
static int limit_step(const char *text)
{
    char folder[2048], path[2304], *end;
    /* The controller is enabled in the groups of all jobs, of the job and of the step; it may be enabled already. */
    if (step_group(folder, sizeof(folder)) != 0)
        return -1;
    for (int level = 2; level >= 0; level--) {
        char part[2048];

        strcpy(part, folder);
        for (int up = 0; up < level; up++)
            if ((end = strrchr(part, '/')) != NULL)
                *end = '\0';
        snprintf(path, sizeof(path), "%s/cgroup.subtree_control", part);
        if (write_small(path, "+pids") != 0)
            return -1;
    }
    snprintf(path, sizeof(path), "%s/user/pids.max", folder);
    return write_small(path, text);
}

/* Gives this process, and all that it starts, the limit of its job. Returns -1 and sets errno if that fails. */
static int limit_processes(unsigned int job)
{
    char folder[128], path[160], text[32];
    long limit = process_limit(job);

    if (limit <= 0)
        return 0;
    snprintf(text, sizeof(text), "%ld", limit);
    if (access(CGROUPS "/pids", F_OK) != 0)
        return limit_step(text);
    snprintf(folder, sizeof(folder), PIDS_GROUPS "/job_%u", job);
    if ((mkdir(PIDS_GROUPS, 0755) != 0 && errno != EEXIST) || (mkdir(folder, 0755) != 0 && errno != EEXIST))
        return -1;
    snprintf(path, sizeof(path), "%s/pids.max", folder);
    if (write_small(path, text) != 0)
        return -1;
    snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
    return write_small(path, "0");
}
