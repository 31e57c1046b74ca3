"""Becomes the user of a request: gives up root for good, under the limits of the user's own logins."""

import os
import pwd
import sys

REFUSED = 97
CHUNK = 256 * 1024
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"
SESSION = "/usr/local/libexec/headway-session"  # the head's limits of a session (cgroup v1)
OLD = "/sys/fs/cgroup/memory"  # is there with cgroup v1
mark = ""  # set where a command's own words come the same way: tells a refusal from them
limited = False  # this process was put under the person's limits, and so is all that it starts


def refuse(sentence):
    sys.stderr.write(mark + sentence + "\n")
    sys.stderr.flush()
    os._exit(REFUSED)


def person(name):
    """The passwd entry of somebody who may work here."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        refuse(f"there is no user {name} on {os.uname().nodename}")
    if entry.pw_uid == 0:
        refuse("nothing is done as root here")
    return entry


def must_be_current(entry):
    if entry.pw_shell.endswith(("nologin", "false")):
        refuse(f"{entry.pw_name} may not work on this cluster any more")


def become(entry):
    """Gives up root for good; the environment is what a login gives, and nothing of ours."""
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


def limit(entry):
    """Puts this process under the limits of the person's logins: what comes through Headway is no way around them."""
    global limited
    if limited:
        return
    pid = str(os.getpid())
    if not os.path.isdir(OLD):  # systemd holds the limits of the person's slice
        call = ["StartTransientUnit", "ssa(sv)a(sa(sv))", f"headway-{pid}.scope", "fail", "2"]
        more = ["PIDs", "au", "1", pid, "Slice", "s", f"user-{entry.pw_uid}.slice", "0"]
        argv = ["busctl", "--quiet", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"]
        quietly([*argv, "org.freedesktop.systemd1.Manager", *call, *more], {})
    quietly([SESSION], {"PAM_TYPE": "open_session", "PAM_USER": entry.pw_name})
    limited = True


def quietly(argv, env):
    """Runs a program to its end. One that is missing or fails keeps nobody out, as at a login."""
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    try:
        child = os.posix_spawnp(argv[0], argv, {"PATH": PATH, **env}, file_actions=null)
    except OSError:
        return
    os.waitpid(child, 0)


def enter(entry, cwd):
    """`cwd` against the home folder; the home itself when it is empty."""
    place = os.path.join(entry.pw_dir, cwd) if cwd else entry.pw_dir
    try:
        os.chdir(place)
    except OSError as error:
        refuse(f"{os.uname().nodename}: {place} can't be used by {entry.pw_name}: {error.strerror}")
    os.environ["PWD"] = place


def in_child(work):
    """How `work` ends in a child, which alone gives up root; as `end_of`."""
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
    """Exit code of a child, waited for; 128 + the number of the signal that ended it, as in a shell."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code
