/* Gives all tasks of a job the job's own /tmp and /dev/shm. The prolog creates the folders, the epilog deletes them.
 *
 * Slurm's job_container/tmpfs keeps one mount namespace per job alive by a bind mount of it on a file. Linux refuses this
 * mount if the new namespace's number is not higher than the caller's. Kernels that assign numbers per processor (seen on
 * 6.18) therefore make steps fail at random. This plugin keeps no namespace: each task unshares its own mount namespace
 * and binds the same folders, so that all tasks of a job on a node see the same files.
 *
 * Compiled on the machine against the headers of its Slurm.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

SPANK_PLUGIN(headway_private_tmp, 1);

#define BASE "/var/lib/headway/job-tmp"

static int bind_over(uint32_t job, const char *part, const char *target)
{
    char source[128];

    snprintf(source, sizeof(source), BASE "/%u/%s", job, part);
    if (mount(source, target, NULL, MS_BIND, NULL) == 0)
        return 0;
    slurm_error("headway: %s of job %u can't be bound on %s: %s", part, job, target, strerror(errno));
    return -1;
}

/* Makes the OOM killer choose the task before slurmstepd. Under cgroup v1 slurmstepd is in the job's memory cgroup, and on a
 * machine that is a container it may not protect itself. A task that fills shared memory has a small process itself, so the
 * kernel killed slurmstepd instead and the job hung. */
static void go_first(void)
{
    int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (file < 0 || write(file, "1000", 4) != 4)
        slurm_error("headway: the task can't be marked for the OOM killer: %s", strerror(errno));
    if (file >= 0)
        close(file);
}

/* Tells the epilog that a task of this job has begun: it may be that of an earlier job with the same number. */
static void mark_started(const char *folder)
{
    char path[160];
    int file;

    snprintf(path, sizeof(path), "%s/started", folder);
    file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0)
        close(file);
}

/* Lets the task's CUDA programs find the MPS control daemon that the prolog started for the job, if it did. */
static void set_mps(spank_t spank, const char *folder)
{
    char path[160], text[128];
    ssize_t length;
    int file;

    snprintf(path, sizeof(path), "%s/mps", folder);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    length = read(file, text, sizeof(text) - 1);
    close(file);
    if (length <= 0)
        return;
    text[length] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (spank_setenv(spank, "CUDA_MPS_PIPE_DIRECTORY", text, 1) != ESPANK_SUCCESS ||
        spank_setenv(spank, "CUDA_MPS_LOG_DIRECTORY", text, 1) != ESPANK_SUCCESS)
        slurm_error("headway: CUDA_MPS_PIPE_DIRECTORY can't be set");
}

/* Runs as root in the task's process, before it becomes the user. */
int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv)
{
    uint32_t job = 0;
    char folder[128];
    struct stat info;

    (void)argc;
    (void)argv;
    go_first();
    if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS)
        return 0;
    snprintf(folder, sizeof(folder), BASE "/%u", job);
    if (stat(folder, &info) != 0) {
        /* The prolog always creates it. If it is missing, the job runs with the shared /tmp instead of failing. */
        slurm_error("headway: %s is missing, job %u shares the node's /tmp", folder, job);
        return 0;
    }
    mark_started(folder);
    set_mps(spank, folder);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) {
        slurm_error("headway: no private /tmp for job %u: %s", job, strerror(errno));
        return -1;
    }
    return bind_over(job, "tmp", "/tmp") || bind_over(job, "shm", "/dev/shm") ? -1 : 0;
}
