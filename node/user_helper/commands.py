"""Runs commands as a user: in place of this program, or watched with streamed output."""

import os
import select
import signal
import sys

from user_helper import identity

GRACE_S = 5  # from SIGTERM to SIGKILL


def as_login(argv):
    """Returns the command wrapped in a login shell, so that /etc/profile (environment modules) is read. Arguments are
    passed unchanged."""
    return ["/bin/bash", "--login", "-c", 'exec "$@"', "headway", *argv]


def restore_signals():
    """Gives signals that Python, or what started it, ignores their usual effect: a command inherits ignored ones, and then `yes |
    head` fails with "Broken pipe", and Ctrl-C does nothing."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def exec_(request):
    """Becomes the user and replaces this process with the command."""
    restore_signals()
    entry = identity.user_entry(request["user"])
    if not request.get("operator"):  # Headway's Slurm operator account also has no login shell, so it is not checked
        identity.must_be_current(entry)
        identity.apply_limits(entry)
    identity.become_user(entry)
    identity.enter_folder(entry, request["cwd"])
    os.execv("/bin/bash", as_login(request["argv"]))


def run_command(request):
    """Runs the command in its own session, so that all its processes can be signalled, and exits with its exit code. Ends
    it on SIGTERM and when its output is no longer read."""
    identity.mark = "\0refused\0"
    if request["user"] != "root":
        identity.must_be_current(identity.user_entry(request["user"]))
    wake_pipe = os.pipe()

    def on_sigterm(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # ignore further signals
        os.close(wake_pipe[1])

    signal.signal(signal.SIGTERM, on_sigterm)  # before the fork, so that no child is left behind
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        start_command(request)
    os.close(0)
    ended = os.pidfd_open(child)
    watch = select.poll()
    watch.register(ended, select.POLLIN)
    for number in (1, wake_pipe[0]):  # poll reports an error when the other end is closed
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


def start_command(request):
    """Replaces this process with the command, as the user or as root."""
    restore_signals()
    if request["user"] != "root":
        exec_({**request, "cwd": ""})
    argv = request["argv"]
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        sys.stderr.write(f"{argv[0]}: {'command not found' if missing else error.strerror}\n")
        sys.stderr.flush()
        os._exit(127 if missing else 126)
