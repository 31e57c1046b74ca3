"""The environment that a login of the user sets, cached until a login file changes."""

import json
import os
import select
import signal
import time

from user_helper import identity

LOGINS = "/run/headway-login"  # readable by root only: each user's login environment, cached
LOGIN_KEPT_S = 600
LOGIN_S = 30  # a login shell that takes longer is killed
MOST_ENVIRONMENT = 1024 * 1024  # bytes; Linux allows 2 MiB for environment and arguments together
LOGIN_FILES = (".bash_profile", ".bash_login", ".profile", ".bashrc")


def login_stamp(entry):
    """Returns a value that changes when one of the files that a login reads changes."""
    paths = ["/etc/profile", "/etc/bash.bashrc", "/etc/environment", "/etc/profile.d"]
    paths += sorted(os.path.join("/etc/profile.d", name) for name in os.listdir("/etc/profile.d"))
    paths += [os.path.join(entry.pw_dir, name) for name in LOGIN_FILES]
    stamp = [entry.pw_name, entry.pw_dir, entry.pw_shell]
    for path in paths:
        try:
            seen = os.stat(path)
        except OSError:
            continue
        stamp.append([path, seen.st_mtime_ns, seen.st_size])
    return stamp


def login_environment(entry):
    """Returns the environment in which sbatch runs after a login. It is cached, because a login shell with Lmod takes
    longer than sbatch; a new one is read when the login files change and every LOGIN_KEPT_S seconds."""
    os.makedirs(LOGINS, mode=0o700, exist_ok=True)
    kept, stamp = os.path.join(LOGINS, str(entry.pw_uid)), login_stamp(entry)
    try:
        with open(kept) as file:
            found = json.load(file)
        if found["stamp"] == stamp and 0 <= time.time() - found["at"] < LOGIN_KEPT_S:
            return found["env"]
    except (OSError, ValueError, KeyError):
        pass
    env = read_login_environment(entry)
    part = f"{kept}.{os.getpid()}"
    with open(part, "w") as file:
        json.dump({"stamp": stamp, "at": time.time(), "env": env}, file)
    os.replace(part, kept)
    return env


def read_login_environment(entry):
    """Runs a login shell and returns its environment. The shell writes it to a separate pipe, because a profile may print;
    that output is dropped. Refuses the request if the shell returns none."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        identity.apply_limits(entry)
        identity.become_user(entry)
        identity.enter_folder(entry, "")
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.set_inheritable(theirs, True)
        os.execv("/bin/bash", ["/bin/bash", "--login", "-c", 'exec env -0 >&"$0"', str(theirs)])
    os.close(theirs)
    # A background process of the profile may keep the pipe open, so the end of the shell also ends the answer.
    data, over, ends = b"", os.pidfd_open(child), time.monotonic() + LOGIN_S
    while len(data) <= MOST_ENVIRONMENT:
        ready = select.select([ours, over], [], [], max(0, ends - time.monotonic()))[0]
        piece = os.read(ours, identity.CHUNK) if ours in ready else b""
        data += piece
        if ready and not piece:
            break
        if not ready:
            data = b""
            break
    else:
        data = b""
    if not data:
        os.kill(child, signal.SIGKILL)
    os.close(over)
    os.close(ours)
    os.waitpid(child, 0)
    words = (word.partition("=") for word in data.decode(errors="surrogateescape").split("\0") if "=" in word)
    env = {name: value for name, _, value in words if name not in ("_", "SHLVL", "PWD", "OLDPWD")}
    if not env:
        identity.refuse(f"a login shell of {entry.pw_name} runs no command: check their .profile")
    return env
