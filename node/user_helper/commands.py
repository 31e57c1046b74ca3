"""Runs commands as a user: in place of this program, or watched with streamed output."""

import os
import select
import signal
import sys

from user_helper import identity

GRACE_S = 5  # from SIGTERM to SIGKILL


def as_login(argv):
    """The same through a login shell, so that /etc/profile (modules) has been read; words stay words."""
    return ["/bin/bash", "--login", "-c", 'exec "$@"', "headway", *argv]


def exec_(ask):
    entry = identity.person(ask["user"])
    if not ask.get("operator"):  # Headway's own Slurm operator has no login shell either
        identity.must_be_current(entry)
        identity.limit(entry)
    identity.become(entry)
    identity.enter(entry, ask["cwd"])
    os.execv("/bin/bash", as_login(ask["argv"]))


def run(ask):
    """A session of its own, so that all the command started can be ended; the watcher stays what sshd started."""
    identity.mark = "\0refused\0"
    if ask["user"] != "root":
        identity.must_be_current(identity.person(ask["user"]))
    told = os.pipe()

    def heard(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        os.close(told[1])

    signal.signal(signal.SIGTERM, heard)  # before there is anything that would be left behind
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        start(ask)
    os.close(0)
    ended = os.pidfd_open(child)
    watch = select.poll()
    watch.register(ended, select.POLLIN)
    for number in (1, told[0]):  # either says so when its other end is gone
        watch.register(number, 0)
    if ended not in [number for number, _ in watch.poll()]:
        for last_word in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(child, last_word)
            except ProcessLookupError:
                break
            if select.select([ended], [], [], GRACE_S)[0]:
                break
    os._exit(identity.end_of(child))


def start(ask):
    if ask["user"] != "root":
        exec_({**ask, "cwd": ""})
    argv = ask["argv"]
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        sys.stderr.write(f"{argv[0]}: {'command not found' if missing else error.strerror}\n")
        sys.stderr.flush()
        os._exit(127 if missing else 126)
