/* Gives an SSH session on a node the /tmp and /dev/shm of the job that pam_slurm_adopt has put it in.
 *
 * Slurm's own way needs job_container/tmpfs, which spank/private_tmp.c stands in for. As there, the folders that the
 * prolog made are bound in a mount namespace of the session's own; which job it is, the session's cgroup says. A session
 * in no job (root's) stays as it is.
 *
 * Compiled into the node image. PAM's headers are not there: what is needed of them is two numbers and two functions.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <syslog.h>

#define PAM_SUCCESS 0
#define PAM_SESSION_ERR 14
#define BASE "/var/lib/headway/job-tmp"

int pam_sm_open_session(void *handle, int flags, int argc, const char **argv);
int pam_sm_close_session(void *handle, int flags, int argc, const char **argv);

/* The job whose cgroup this process is in, on cgroup v1 and v2; 0 for none. */
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

/* As root, in the process that all of the connection's sessions come from. */
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
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) {
        syslog(LOG_AUTHPRIV | LOG_ERR, "headway: no private /tmp of job %u: %s", job, strerror(errno));
        return PAM_SESSION_ERR;
    }
    return bind_over(job, "tmp", "/tmp") || bind_over(job, "shm", "/dev/shm") ? PAM_SESSION_ERR : PAM_SUCCESS;
}

/* The namespace ends with its last process. */
int pam_sm_close_session(void *handle, int flags, int argc, const char **argv)
{
    (void)handle;
    (void)flags;
    (void)argc;
    (void)argv;
    return PAM_SUCCESS;
}
