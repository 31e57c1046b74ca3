/* Gives an SSH session on a node the /tmp, /dev/shm, secrets, limit of processes and network policy of its job, into which
 * pam_slurm_adopt has moved the session.
 *
 * Slurm does this only with job_container/tmpfs, which spank/private_tmp.c replaces. As there, the folders that the prolog
 * created are bound in a new mount namespace of the session. The session's cgroup names the job. A session without a job
 * (root's) stays unchanged.
 *
 * Compiled on the machine without PAM's headers: it needs only two numbers and two functions of them.
 */
#define _GNU_SOURCE
#include "../spank/job_processes.h"

#include "../spank/job_network.h"

#include <sched.h>
#include <sys/mount.h>
#include <syslog.h>

#define PAM_SUCCESS 0
#define PAM_SESSION_ERR 14
#define BASE JOB_FOLDERS
#define SECRETS "/run/headway/secrets"

int pam_sm_open_session(void *handle, int flags, int argc, const char **argv);
int pam_sm_close_session(void *handle, int flags, int argc, const char **argv);

/* Returns the job whose cgroup this process is in, on cgroup v1 and v2; 0 if it is in no job. */
static unsigned int job_of_session(void)
{
    char line[4096];
    unsigned int job = 0;
    FILE *file = fopen("/proc/self/cgroup", "re");

    while (file && !job && fgets(line, sizeof(line), file)) {
        char *place = strstr(line, "/job_");
        if (place && strstr(place, "/step_"))
            sscanf(place, "/job_%u/", &job);
    }
    if (file)
        fclose(file);
    return job;
}

static int bind_over(unsigned int job, const char *part, const char *target)
{
    char source[128];

    snprintf(source, sizeof(source), BASE "/%u/%s", job, part);
    if (mount(source, target, NULL, MS_BIND, NULL) == 0)
        return 0;
    syslog(LOG_AUTHPRIV | LOG_ERR, "headway: %s of job %u can't be bound on %s: %s", part, job, target, strerror(errno));
    return -1;
}

/* Runs as root in the process that starts all sessions of the connection. */
int pam_sm_open_session(void *handle, int flags, int argc, const char **argv)
{
    unsigned int job = job_of_session();
    char folder[128];
    struct stat info;

    (void)handle;
    (void)flags;
    (void)argc;
    (void)argv;
    snprintf(folder, sizeof(folder), BASE "/%u", job);
    if (job == 0 || stat(folder, &info) != 0)
        return PAM_SUCCESS;
    if (limit_processes(job) != 0)
        syslog(LOG_AUTHPRIV | LOG_ERR, "headway: no limit of processes for a session in job %u: %s", job, strerror(errno));
    if (join_network_cgroup(folder) != 0) {
        syslog(LOG_AUTHPRIV | LOG_ERR, "headway: no network policy for a session in job %u: %s", job, strerror(errno));
        return PAM_SESSION_ERR;
    }
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) {
        syslog(LOG_AUTHPRIV | LOG_ERR, "headway: no private /tmp of job %u: %s", job, strerror(errno));
        return PAM_SESSION_ERR;
    }
    if (bind_over(job, "tmp", "/tmp") || bind_over(job, "shm", "/dev/shm"))
        return PAM_SESSION_ERR;
    snprintf(folder, sizeof(folder), BASE "/%u/secrets", job);
    return stat(folder, &info) == 0 && bind_over(job, "secrets", SECRETS) ? PAM_SESSION_ERR : PAM_SUCCESS;
}

/* Does nothing: the namespace ends with its last process. */
int pam_sm_close_session(void *handle, int flags, int argc, const char **argv)
{
    (void)handle;
    (void)flags;
    (void)argc;
    (void)argv;
    return PAM_SUCCESS;
}
