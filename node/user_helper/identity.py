"""Becomes the user of a request: drops root for good and applies the limits of the user's logins."""

import os
import pwd
import sys

REFUSED = 97
CHUNK = 256 * 1024
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"
SESSION = "/usr/local/libexec/headway-session"  # applies the head's session limits (cgroup v1)
OLD = "/sys/fs/cgroup/memory"  # exists with cgroup v1
mark = ""  # prefix that tells a refusal from the command's own output on the same stream
limited = False  # whether this process, and all that it starts, is under the user's limits


def refuse(sentence):
    """Ends this process with REFUSED and the sentence on standard error."""
    sys.stderr.write(mark + sentence + "\n")
    sys.stderr.flush()
    os._exit(REFUSED)


def user_entry(name):
    """Returns the passwd entry of a user who may use the cluster; refuses the request for others and for root."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        refuse(f"there is no user {name} on {os.uname().nodename}")
    if entry.pw_uid == 0:
        refuse("nothing is done as root here")
    return entry


def must_be_current(entry):
    """Refuses the request if the user may no longer log in."""
    if entry.pw_shell.endswith(("nologin", "false")):
        refuse(f"{entry.pw_name} has no access to this cluster any more")


def become_user(entry):
    """Drops root for good and becomes the user, with the environment of a login."""
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    os.umask(0o022)
    os.environ.clear()
    os.environ.update(
        HOME=entry.pw_dir,
        USER=entry.pw_name,
        LOGNAME=entry.pw_name,
        SHELL=entry.pw_shell or "/bin/sh",
        PATH=PATH,
        LANG="C.UTF-8",
    )


def apply_limits(entry):
    """Applies the limits of the user's logins to this process, so that users can't exceed them through Headway."""
    global limited
    if limited:
        return
    pid = str(os.getpid())
    if not os.path.isdir(OLD):  # systemd applies the limits of the user's slice
        call = ["StartTransientUnit", "ssa(sv)a(sa(sv))", f"headway-{pid}.scope", "fail", "2"]
        more = ["PIDs", "au", "1", pid, "Slice", "s", f"user-{entry.pw_uid}.slice", "0"]
        argv = ["busctl", "--quiet", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"]
        run_quietly([*argv, "org.freedesktop.systemd1.Manager", *call, *more], {})
    run_quietly([SESSION], {"PAM_TYPE": "open_session", "PAM_USER": entry.pw_name})
    limited = True


def run_quietly(argv, env):
    """Runs a program to its end without output. Ignores a missing program and its errors, as a login does."""
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    try:
        child = os.posix_spawnp(argv[0], argv, {"PATH": PATH, **env}, file_actions=null)
    except OSError:
        return
    os.waitpid(child, 0)


def enter_folder(entry, cwd):
    """Changes to the folder `cwd`, relative to the home folder; "" is the home folder. Refuses the request if that fails."""
    place = os.path.join(entry.pw_dir, cwd) if cwd else entry.pw_dir
    try:
        os.chdir(place)
    except OSError as error:
        refuse(f"{os.uname().nodename}: {place} can't be used by {entry.pw_name}: {error.strerror}")
    os.environ["PWD"] = place


def in_child(work):
    """Runs `work` in a child process, which may drop root, and returns its exit code as `end_of` does."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            refuse(f"{type(error).__name__}: {error}")
        os._exit(0)
    return end_of(child)


def end_of(child):
    """Waits for the child and returns its exit code, or 128 + the number of the signal that ended it, as in a shell."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code
