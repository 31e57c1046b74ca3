/* --container-image and the other --container-* options of srun, sbatch and salloc: a step's tasks run in a container.
 *
 * All work runs in the tasks, as the user and inside the step's cgroup. So limits, the time limit and scancel apply to it
 * as to any process of the step, and an error of a user can't make a plugin call fail that would drain the node. A node's
 * first task starts the runtime (/usr/lib/headway/container). The runtime imports the image if it is missing, builds the
 * root file system in new namespaces and leaves one process that holds them open. All tasks of the step on the node enter
 * these namespaces and start the user's program.
 *
 * Compiled on the machine against the headers of its Slurm.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

SPANK_PLUGIN(headway_container, 1);

#define RUNTIME "/usr/lib/headway/container"
#define ON_DISK "/var/lib/headway/containers"
#define IN_MEMORY "/run/headway/containers"
#define OVERLAY_MAGIC 0x794c7630 /* an overlay can't be the writable layer of another overlay */
#define MOST_STATE (1 << 20)
#define NO_CONTAINER 125 /* a task's exit code when its container could not start, as with podman and docker */

/* Options of the command line; mount_home, readonly and root are -1 if not given. */
static struct {
    char *image, *mounts, *workdir, *name, *environment;
    int mount_home, readonly, root;
} asked = {.mount_home = -1, .readonly = -1, .root = -1};

static char cache[PATH_MAX], shared[PATH_MAX];

/* Shared memory of all tasks of the step on this node: the first task stores here whether the container started. */
enum { WAITING, READY, FAILED };
static struct told {
    atomic_int state;
    pid_t holder;    /* process whose namespaces the tasks enter */
    pid_t helper;    /* process that this step started for its container; `others` end with it */
    pid_t others[2]; /* squashfuse and bubblewrap */
} *told;

static uint32_t tasks_ended;

static char folder[PATH_MAX]; /* folder of the job on this node */
static uint32_t step_id;
static uid_t uid = (uid_t)-1;
static gid_t gid = (gid_t)-1;

static int wanted(void)
{
    return asked.image != NULL || asked.name != NULL;
}

/* ---- options */

static int keep(char **where, const char *option, const char *value)
{
    if (value == NULL || *value == '\0') {
        slurm_error("headway: %s needs a value", option);
        return -1;
    }
    free(*where);
    *where = strdup(value); /* the last of several values counts, as for sbatch's own options */
    return *where == NULL ? -1 : 0;
}

static int on_image(int val, const char *value, int remote)
{
    (void)val, (void)remote;
    return keep(&asked.image, "--container-image", value);
}

static int on_mounts(int val, const char *value, int remote)
{
    (void)val, (void)remote;
    return keep(&asked.mounts, "--container-mounts", value);
}

static int on_workdir(int val, const char *value, int remote)
{
    (void)val, (void)remote;
    return keep(&asked.workdir, "--container-workdir", value);
}

static int on_name(int val, const char *value, int remote)
{
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";

    (void)val, (void)remote;
    if (value != NULL && (strlen(value) > 64 || strspn(value, letters) != strlen(value) || *value == '.')) {
        slurm_error("headway: --container-name: use up to 64 letters, digits, _, - and . (not first)");
        return -1;
    }
    return keep(&asked.name, "--container-name", value);
}

static int on_environment(int val, const char *value, int remote)
{
    (void)val, (void)remote;
    return keep(&asked.environment, "--container-env", value);
}

static int on_home(int val, const char *value, int remote)
{
    (void)value, (void)remote;
    asked.mount_home = val;
    return 0;
}

static int on_readonly(int val, const char *value, int remote)
{
    (void)value, (void)remote;
    asked.readonly = val;
    return 0;
}

static int on_root(int val, const char *value, int remote)
{
    (void)value, (void)remote;
    asked.root = val;
    return 0;
}

static int on_default(int val, const char *value, int remote)
{
    (void)val, (void)value, (void)remote;
    return 0;
}

static int on_entrypoint(int val, const char *value, int remote)
{
    (void)val, (void)value, (void)remote;
    slurm_error("headway: --container-entrypoint is not supported: name the entrypoint as the program, srun ... /entrypoint.sh"
                " PROGRAM");
    return -1;
}

static int on_save(int val, const char *value, int remote)
{
    (void)val, (void)value, (void)remote;
    slurm_error("headway: --container-save is not supported: keep changes for later steps with --container-name, or build the"
                " image elsewhere and put it into a registry or an OCI layout");
    return -1;
}

/* The flags of Pyxis. Programs that start containers by Slurm look for its name in `srun --help`. */
#define PYXIS "[pyxis] (Headway's runtime) "
static struct spank_option options[] = {
    {"container-image", "IMAGE", PYXIS "run in this image: REPO:TAG, REGISTRY#REPO:TAG, docker://..., a .sqsh file or"
     " an OCI layout folder", 1, 0, on_image},
    {"container-mounts", "SRC:DST[:ro|rw],...", PYXIS "mount these files and folders of the node in the container", 1, 0,
     on_mounts},
    {"container-workdir", "PATH", PYXIS "start in this folder of the container", 1, 0, on_workdir},
    {"container-name", "NAME", PYXIS "keep the container's files under this name for later steps of the job", 1, 0,
     on_name},
    {"container-env", "NAME[,NAME...]", PYXIS "variables whose value in the job takes precedence over the image's", 1, 0,
     on_environment},
    {"container-mount-home", NULL, PYXIS "mount the home folder in the container", 0, 1, on_home},
    {"no-container-mount-home", NULL, PYXIS "don't mount the home folder in the container (default)", 0, 0, on_home},
    {"container-readonly", NULL, PYXIS "make the image's files read-only", 0, 1, on_readonly},
    {"container-writable", NULL, PYXIS "make the image's files writable (default)", 0, 0, on_readonly},
    {"container-remap-root", NULL, PYXIS "be root in the container, with the user's rights outside", 0, 1, on_root},
    {"no-container-remap-root", NULL, PYXIS "keep the user's own id in the container (default)", 0, 0, on_root},
    {"no-container-entrypoint", NULL, PYXIS "don't run the image's entrypoint (default)", 0, 0, on_default},
    {"container-entrypoint", NULL, PYXIS "not supported", 0, 0, on_entrypoint},
    {"container-save", "PATH", PYXIS "not supported", 1, 0, on_save},
};

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    spank_context_t context = spank_context();

    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "cache=", 6) == 0)
            snprintf(cache, sizeof(cache), "%s", argv[i] + 6);
        else if (strncmp(argv[i], "shared=", 7) == 0)
            snprintf(shared, sizeof(shared), "%s", argv[i] + 7);
    }
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
        return 0;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS) {
            slurm_error("headway: option --%s can't be registered", options[i].name);
            return -1;
        }
    }
    return 0;
}

/* ---- the step, as root, before any task: creates the folder for its files. The tasks report an error of this. */

static void make_folder(uint32_t job)
{
    const char *base = ON_DISK;
    struct statfs kind;
    struct stat info;

    (void)mkdir("/var/lib/headway", 0755);
    if (statfs("/var/lib/headway", &kind) == 0 && (unsigned long)kind.f_type == OVERLAY_MAGIC) {
        base = IN_MEMORY;
        (void)mkdir("/run/headway", 0755);
    }
    (void)mkdir(base, 0755);
    snprintf(folder, sizeof(folder), "%s/%u", base, job);
    if (mkdir(folder, 0700) == 0 && (chmod(folder, 0700) != 0 || lchown(folder, uid, gid) != 0))
        slurm_error("headway: %s: %s", folder, strerror(errno));
    if (lstat(folder, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != uid)
        folder[0] = '\0';
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
    uint32_t job = 0;
    struct told *both;

    (void)argc, (void)argv;
    if (!wanted()) {
        if (spank_context() != S_CTX_REMOTE && (asked.mounts || asked.workdir || asked.environment || asked.mount_home != -1
                                                || asked.readonly != -1 || asked.root != -1))
            slurm_error("headway: --container-* options have no effect without --container-image or --container-name");
        return 0;
    }
    if (spank_context() != S_CTX_REMOTE)
        return 0;
    spank_get_item(spank, S_JOB_STEPID, &step_id);
    if (step_id == SLURM_EXTERN_CONT)
        return 0;
    both = mmap(NULL, sizeof(*both), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (both != MAP_FAILED)
        told = both;
    if (spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS && spank_get_item(spank, S_JOB_UID, &uid) == ESPANK_SUCCESS
        && spank_get_item(spank, S_JOB_GID, &gid) == ESPANK_SUCCESS)
        make_folder(job);
    return 0;
}

/* ---- a task, as the user */

/* Prints on the task's stderr, where the user sees it. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char text[1024];
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(text, sizeof(text) - 1, format, args);
    va_end(args);
    if (length < 0)
        return;
    if ((size_t)length > sizeof(text) - 2)
        length = sizeof(text) - 2;
    text[length++] = '\n';
    if (write(STDERR_FILENO, text, length) < 0)
        return;
}

/* Returns the job's environment without variables that change how the runtime itself is loaded. */
static char **plain(char **environment)
{
    size_t count = 0, kept = 0;
    char **result;

    while (environment[count] != NULL)
        count++;
    if ((result = calloc(count + 1, sizeof(*result))) == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++)
        if (strncmp(environment[i], "LD_", 3) != 0 && strncmp(environment[i], "PYTHON", 6) != 0)
            result[kept++] = environment[i];
    return result;
}

static _Noreturn void run_runtime(spank_t spank, int report)
{
    char *argv[40], **environment = NULL, step[16], fd[16];
    int count = 0;

    snprintf(step, sizeof(step), "%u", step_id);
    snprintf(fd, sizeof(fd), "%d", report);
    argv[count++] = "python3";
    argv[count++] = "-IS";
    argv[count++] = RUNTIME;
    argv[count++] = "step";
#define WITH(word, value) (argv[count++] = (word), argv[count++] = (value))
    WITH("--folder", folder);
    WITH("--step", step);
    WITH("--report", fd);
    WITH("--cache", cache);
    WITH("--shared", shared);
    if (asked.image)
        WITH("--image", asked.image);
    if (asked.mounts)
        WITH("--mounts", asked.mounts);
    if (asked.name)
        WITH("--name", asked.name);
    if (asked.mount_home == 1)
        argv[count++] = "--home";
    if (asked.readonly == 1)
        argv[count++] = "--readonly";
    if (asked.root == 1)
        argv[count++] = "--root";
    if (step_id == SLURM_BATCH_SCRIPT) { /* the batch script lies in slurmd's own folder */
        int words = 0;
        char **job = NULL;
        if (spank_get_item(spank, S_JOB_ARGV, &words, &job) == ESPANK_SUCCESS && words > 0 && job[0][0] == '/')
            WITH("--script", job[0]);
    }
    argv[count] = NULL;
    if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS || (environment = plain(environment)) == NULL)
        _exit(1);
    execve("/usr/bin/python3", argv, environment);
    say("headway: /usr/bin/python3: %s", strerror(errno));
    _exit(1);
}

/* Starts the runtime and waits for its line "ready HOLDER [OTHERS]". Returns HOLDER's pid, or 0 after an error was printed. */
static pid_t start(spank_t spank)
{
    char line[64] = "";
    size_t length = 0;
    int ends[2], null, report;
    pid_t child;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        say("headway: no container: %s", strerror(errno));
        return 0;
    }
    if ((child = fork()) < 0) {
        say("headway: no container: %s", strerror(errno));
        close(ends[0]);
        close(ends[1]);
        return 0;
    }
    if (child == 0) {
        setsid(); /* signals to the task's process group must not end its file system */
        for (int number = 1; number < NSIG; number++)
            if (number != SIGCHLD)
                signal(number, SIG_IGN);
        if ((null = open("/dev/null", O_RDWR)) >= 0)
            dup2(null, STDIN_FILENO);
        dup2(STDERR_FILENO, STDOUT_FILENO);
        if ((report = dup2(ends[1], 3)) < 0 || fcntl(report, F_SETFD, 0) != 0)
            _exit(1);
        close_range(4, ~0U, 0);
        run_runtime(spank, report);
    }
    told->helper = child;
    close(ends[1]);
    while (length < sizeof(line) - 1) {
        ssize_t got = read(ends[0], line + length, sizeof(line) - 1 - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        length += got;
        line[length] = '\0';
        if (strchr(line, '\n') != NULL)
            break;
    }
    close(ends[0]);
    if (sscanf(line, "ready %d %d %d", &child, &told->others[0], &told->others[1]) < 1)
        return 0;
    return child;
}

static int open_namespace(pid_t holder, const char *kind)
{
    char path[64];
    int handle;

    snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)holder, kind);
    if ((handle = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        say("headway: the container has ended: %s: %s", path, strerror(errno));
    return handle;
}

/* Enters the user namespace first, which gives the right to enter the other. */
static int enter(pid_t holder)
{
    int user, mounts, failed = 1;

    if ((user = open_namespace(holder, "user")) < 0)
        return -1;
    if ((mounts = open_namespace(holder, "mnt")) >= 0) {
        if ((failed = setns(user, CLONE_NEWUSER) != 0 || setns(mounts, CLONE_NEWNS) != 0))
            say("headway: the container can't be entered: %s", strerror(errno));
        close(mounts);
    }
    close(user);
    return failed ? -1 : 0;
}

/* Returns the runtime's file about the container: working folder, then NAME=VALUE of the image, each ended by a NUL. */
static char *read_state(const char *name, size_t *size)
{
    char path[PATH_MAX + 160], *text = malloc(MOST_STATE + 1);
    ssize_t got = 0, all = 0;
    int handle;

    snprintf(path, sizeof(path), "%s/%s/state", folder, name);
    handle = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    while (text != NULL && handle >= 0 && all < MOST_STATE && (got = read(handle, text + all, MOST_STATE - all)) > 0)
        all += got;
    if (handle >= 0)
        close(handle);
    if (text == NULL || handle < 0 || got < 0 || all == 0) {
        say("headway: %s can't be read: %s", path, strerror(errno));
        free(text);
        return NULL;
    }
    text[all] = '\0';
    *size = all;
    return text;
}

/* srun looks a program up on the submitting machine ("ls" becomes /usr/bin/ls). If the image does not have that path, the
 * name is looked up in the container's PATH. */
static void find_program(spank_t spank)
{
    int words = 0;
    char **argv = NULL, path[4096], candidate[PATH_MAX], *rest = path, *place;
    const char *name;

    if (spank_get_item(spank, S_JOB_ARGV, &words, &argv) != ESPANK_SUCCESS || words < 1 || argv[0][0] != '/')
        return;
    if (access(argv[0], F_OK) == 0 || spank_getenv(spank, "PATH", path, sizeof(path)) != ESPANK_SUCCESS)
        return;
    name = strrchr(argv[0], '/') + 1;
    while ((place = strsep(&rest, ":")) != NULL) {
        snprintf(candidate, sizeof(candidate), "%s/%s", place, name);
        if (place[0] == '/' && access(candidate, X_OK) == 0) {
            argv[0] = strdup(candidate);
            return;
        }
    }
}

/* Whether --container-env names this variable. */
static int is_kept(const char *name)
{
    size_t length = strlen(name);

    for (const char *word = asked.environment; word != NULL && *word != '\0'; word += strcspn(word, ","), word += *word == ',')
        if (strcspn(word, ",") == length && strncmp(word, name, length) == 0)
            return 1;
    return 0;
}

static void set_environment(spank_t spank, char *text, size_t size)
{
    char outside[2];

    for (char *entry = text; entry < text + size; entry += strlen(entry) + 1) {
        char *value = strchr(entry, '=');
        if (value == NULL || value == entry)
            continue;
        *value = '\0';
        if (!is_kept(entry) || spank_getenv(spank, entry, outside, sizeof(outside)) == ESPANK_ENV_NOEXIST)
            spank_setenv(spank, entry, value + 1, 1);
        *value = '=';
    }
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
    char name[160], *state, *rest;
    size_t size = 0;
    int task = 0;

    (void)argc, (void)argv;
    if (!wanted() || step_id == SLURM_EXTERN_CONT)
        return 0;
    if (told == NULL || folder[0] == '\0') {
        say("headway: no container can be created on this node: " ON_DISK " can't be written");
        _exit(NO_CONTAINER);
    }
    signal(SIGTERM, SIG_DFL); /* slurmstepd's handler is still set; with it scancel would not end an import */
    spank_get_item(spank, S_TASK_ID, &task);
    if (task == 0) {
        told->holder = start(spank);
        atomic_store(&told->state, told->holder > 0 ? READY : FAILED);
    }
    while (atomic_load(&told->state) == WAITING)
        usleep(2000);
    if (atomic_load(&told->state) == FAILED)
        _exit(NO_CONTAINER); /* the first task printed the reason; Slurm would only report that a plugin failed */
    if (asked.name)
        snprintf(name, sizeof(name), "name-%s", asked.name);
    else
        snprintf(name, sizeof(name), "step-%u", step_id);
    state = read_state(name, &size);
    if (state == NULL || enter(told->holder) != 0)
        _exit(NO_CONTAINER);
    rest = state + strlen(state) + 1;
    set_environment(spank, rest, state + size > rest ? (size_t)(state + size - rest) : 0);
    if (chdir(asked.workdir ? asked.workdir : state) != 0) {
        if (asked.workdir) {
            say("headway: --container-workdir: %s: %s; give a folder of the image or of --container-mounts", asked.workdir,
                strerror(errno));
            _exit(NO_CONTAINER);
        }
        if (chdir("/") != 0)
            _exit(NO_CONTAINER);
    }
    find_program(spank);
    free(state);
    return 0;
}

/* ---- the end of a step, as root; the user's processes and files are handled as the user */

/* Forks a child that becomes the user. Returns 0 in the child. */
static pid_t fork_as_user(void)
{
    pid_t child = fork();

    if (child == 0 && (setgroups(1, &gid) != 0 || setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0))
        _exit(1);
    return child;
}

/* Returns whether a process is still in its cgroup, that is, not yet a zombie. */
static int runs(pid_t pid)
{
    char text[512], *end;
    ssize_t length;
    int handle;

    snprintf(text, sizeof(text), "/proc/%d/stat", (int)pid);
    if (pid <= 0 || (handle = open(text, O_RDONLY | O_CLOEXEC)) < 0)
        return 0;
    length = read(handle, text, sizeof(text) - 1);
    close(handle);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    end = strrchr(text, ')');
    return end != NULL && strncmp(end, ") Z", 3) != 0 && strncmp(end, ") X", 3) != 0;
}

/* Ends the container's processes with the step's last task. Slurm would kill them too, but it checks the cgroup only once
 * a second, and the step would end later. */
int slurm_spank_task_exit(spank_t spank, int argc, char **argv)
{
    uint32_t tasks = 0;
    int task = -1, waiting = WAITING;
    pid_t child;

    (void)argc, (void)argv;
    if (!wanted() || told == NULL)
        return 0;
    if (spank_get_item(spank, S_TASK_ID, &task) == ESPANK_SUCCESS && task == 0) /* it was killed while other tasks wait for it */
        atomic_compare_exchange_strong(&told->state, &waiting, FAILED);
    if (told->helper <= 0)
        return 0;
    if (spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS || ++tasks_ended < tasks)
        return 0;
    if ((child = fork_as_user()) == 0) {
        kill(told->helper, SIGKILL);
        for (int i = 0; i < 500 && (runs(told->helper) || runs(told->others[0]) || runs(told->others[1])); i++)
            usleep(1000);
        for (int i = 0; i < 50 && runs(told->holder); i++) /* in a named container it may be of another step */
            usleep(1000);
        _exit(0);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
    return 0;
}

/* Deletes the files of an unnamed container. */
int slurm_spank_exit(spank_t spank, int argc, char **argv)
{
    char path[PATH_MAX + 32];
    struct stat info;
    pid_t child;

    (void)spank, (void)argc, (void)argv;
    if (spank_context() != S_CTX_REMOTE || !wanted() || folder[0] == '\0')
        return 0;
    snprintf(path, sizeof(path), "%s/step-%u", folder, step_id);
    if (lstat(path, &info) != 0 || (child = fork_as_user()) < 0)
        return 0;
    if (child == 0) {
        int null = open("/dev/null", O_RDWR);
        if (null >= 0) {
            dup2(null, STDIN_FILENO);
            dup2(null, STDOUT_FILENO);
            dup2(null, STDERR_FILENO);
        }
        close_range(3, ~0U, 0);
        execl("/bin/rm", "rm", "-rf", "--one-file-system", "--", path, (char *)NULL);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    return 0;
}
