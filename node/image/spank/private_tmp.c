/* Gives all tasks of a job the job's own /tmp, /dev/shm and secrets, its limit of processes and its network policy. The prolog
 * creates the folders, the epilog deletes them.
 *
 * Slurm's job_container/tmpfs keeps one mount namespace per job alive by a bind mount of it on a file. Linux refuses this
 * mount if the new namespace's number is not higher than the caller's. Kernels that assign numbers per processor (seen on
 * 6.18) therefore make steps fail at random. This plugin keeps no namespace: each task unshares its own mount namespace
 * and binds the same folders, so that all tasks of a job on a node see the same files.
 *
 * --secret=NAME asks for a secret. The names reach the prolog in SPANK_HEADWAY_SECRETS; it fetches the values
 * (node/agent/jobs/secret_files.py). If it can't, it leaves a sentence, with which the tasks fail here: a failing prolog would
 * drain the node.
 *
 * Compiled on the machine against the headers of its Slurm.
 */
#define _GNU_SOURCE
#include "job_processes.h"

#include "job_network.h"

#include <sched.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <sys/mount.h>

SPANK_PLUGIN(headway_private_tmp, 1);

#define SECRETS "/run/headway/secrets"
#define LONGEST_NAME 64
#define MOST_NAMES 16 /* as in node/agent/jobs/secret_files.py */

static char names[MOST_NAMES * (LONGEST_NAME + 1)]; /* of the secrets, with commas between them */
static int names_count;
static char secrets_error[1024]; /* why the job can't have its secrets */
static char network_error[256];  /* why it can't be put under its network policy */

/* Adds NAME[,NAME...] to `names`. Slurm calls it for each --secret. */
static int on_secret(int val, const char *value, int remote)
{
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    const char *rest = value ? value : "";

    (void)val, (void)remote;
    for (;;) {
        size_t length = strspn(rest, letters);

        if (length == 0 || length > LONGEST_NAME || strchr("0123456789_.-", *rest) || (rest[length] && rest[length] != ',')) {
            slurm_error("headway: --secret=%.80s: a name has up to %d letters, digits, _, - and ., and begins with a letter: give"
                        " names that headway secret ls shows",
                        value ? value : "", LONGEST_NAME);
            return -1;
        }
        if (++names_count > MOST_NAMES) {
            slurm_error("headway: --secret: a job gets at most %d secrets: name fewer", MOST_NAMES);
            return -1;
        }
        if (names[0])
            strcat(names, ",");
        strncat(names, rest, length);
        if (rest[length] == '\0')
            return 0;
        rest += length + 1;
    }
}

static struct spank_option option = {
    "secret", "NAME[,NAME...]", "[headway] give the job this secret as file $HEADWAY_SECRETS_DIR/NAME", 1, 0, on_secret};

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    spank_context_t context = spank_context();

    (void)argc, (void)argv;
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
        return 0;
    if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
        slurm_error("headway: option --secret can't be registered: tell an administrator");
    return 0;
}

/* Passes the names to the prolog. */
int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
    (void)argc, (void)argv;
    if (spank_context() == S_CTX_REMOTE || names[0] == '\0')
        return 0;
    if (spank_job_control_setenv(spank, "HEADWAY_SECRETS", names, 1) != ESPANK_SUCCESS) {
        slurm_error("headway: --secret can't be passed to the job: submit it again, and tell an administrator if that fails too");
        return -1;
    }
    return 0;
}

static long refused; /* processes that the step was refused, as far as they were reported */

static int bind_over(uint32_t job, const char *part, const char *target)
{
    char source[128];

    snprintf(source, sizeof(source), JOB_FOLDERS "/%u/%s", job, part);
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

    snprintf(path, sizeof(path), "%s/mps", folder);
    if (read_small(path, text, sizeof(text)) <= 0)
        return;
    text[strcspn(text, "\n")] = '\0';
    if (spank_setenv(spank, "CUDA_MPS_PIPE_DIRECTORY", text, 1) != ESPANK_SUCCESS ||
        spank_setenv(spank, "CUDA_MPS_LOG_DIRECTORY", text, 1) != ESPANK_SUCCESS)
        slurm_error("headway: CUDA_MPS_PIPE_DIRECTORY can't be set");
}

/* Reads the sentence that the prolog left if the job can't have its secrets. */
static void read_secrets_error(const char *folder)
{
    char path[160];
    int length;

    snprintf(path, sizeof(path), "%s/secrets-error", folder);
    length = read_small(path, secrets_error, sizeof(secrets_error));
    if (length == 0 || (length < 0 && errno != ENOENT))
        snprintf(secrets_error, sizeof(secrets_error),
                 "headway: the job can't have its secrets: tell an administrator to read slurmd's journal on this node\n");
}

/* Shows the job's secrets at SECRETS, which is empty outside of the job. */
static int bind_secrets(spank_t spank, uint32_t job)
{
    char path[160];
    struct stat info;

    snprintf(path, sizeof(path), JOB_FOLDERS "/%u/secrets", job);
    if (stat(path, &info) != 0)
        return 0;
    if (spank_setenv(spank, "HEADWAY_SECRETS_DIR", SECRETS, 1) != ESPANK_SUCCESS)
        return -1;
    return bind_over(job, "secrets", SECRETS);
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
    snprintf(folder, sizeof(folder), JOB_FOLDERS "/%u", job);
    if (stat(folder, &info) != 0) {
        /* The prolog always creates it. If it is missing, the job runs with the shared /tmp instead of failing. */
        slurm_error("headway: %s is missing, job %u shares the node's /tmp", folder, job);
        return 0;
    }
    if (limit_processes(job) != 0)
        slurm_info("headway: job %u has no limit of processes: %s", job, strerror(errno)); /* to the journal, not to the user */
    mark_started(folder);
    if (join_network_cgroup(folder) != 0)
        snprintf(network_error, sizeof(network_error),
                 "headway: the network policy can't be applied to job %u: %s: tell an administrator\n", job, strerror(errno));
    set_mps(spank, folder);
    read_secrets_error(folder);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) {
        slurm_error("headway: no private /tmp for job %u: %s", job, strerror(errno));
        return -1;
    }
    if (bind_over(job, "tmp", "/tmp") || bind_over(job, "shm", "/dev/shm"))
        return -1;
    if (bind_secrets(spank, job) != 0 && secrets_error[0] == '\0')
        snprintf(secrets_error, sizeof(secrets_error),
                 "headway: the job's secrets can't be mounted on %s: tell an administrator to read slurmd's journal on this node\n",
                 SECRETS);
    return 0;
}

/* Runs as the user, with the task's own stderr. */
int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
    const char *said = network_error[0] ? network_error : secrets_error;

    (void)spank, (void)argc, (void)argv;
    if (said[0] == '\0')
        return 0;
    if (write(STDERR_FILENO, said, strlen(said)) < 0)
        _exit(1);
    _exit(1); /* Slurm ignores the result of an optional plugin */
}

/* Returns how many processes and threads the kernel has refused to start, with cgroup v1 in the job, with v2 in the step. */
static long count_refused(uint32_t job, int task)
{
    char folder[2048], path[2304], text[256], *found;
    long count = 0;

    if (access(CGROUPS "/pids", F_OK) == 0) {
        snprintf(path, sizeof(path), PIDS_GROUPS "/job_%u/pids.events", job);
        return read_small(path, text, sizeof(text)) > 0 && sscanf(text, "max %ld", &count) == 1 ? count : 0;
    }
    if (step_group(folder, sizeof(folder)) != 0)
        return 0;
    /* Older kernels count in the group of the process that was refused, newer ones in the group with the limit. */
    for (int part = 0; part < 2; part++) {
        if (part == 0)
            snprintf(path, sizeof(path), "%s/user/pids.events", folder);
        else
            snprintf(path, sizeof(path), "%s/user/task_%d/pids.events", folder, task);
        if (read_small(path, text, sizeof(text)) > 0 && (found = strstr(text, "max ")) != NULL)
            count += strtol(found + 4, NULL, 10);
    }
    return count;
}

/* Runs in slurmstepd before the tasks: a job that was refused processes in an earlier step reports that only there. */
int slurm_spank_user_init(spank_t spank, int argc, char **argv)
{
    uint32_t job = 0;

    (void)argc, (void)argv;
    if (spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS)
        refused = count_refused(job, 0);
    return 0;
}

/* Programs report the limit as "Resource temporarily unavailable" or as a failed thread. This names it in the job's output. */
int slurm_spank_task_exit(spank_t spank, int argc, char **argv)
{
    uint32_t job = 0;
    int task = 0;
    long now;

    (void)argc, (void)argv;
    if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS || spank_get_item(spank, S_TASK_ID, &task) != ESPANK_SUCCESS)
        return 0;
    now = count_refused(job, task);
    if (now > refused)
        slurm_error("headway: the job reached its limit of %ld processes and threads on this node: start fewer, for example with"
                    " OMP_NUM_THREADS or fewer data loader workers, or request more CPUs", process_limit(job));
    refused = now > refused ? now : refused;
    return 0;
}
