"""`srun python3 -m headway_train torchrun ... train.py`: passes Slurm's warning signal on to the ranks.

Slurm signals only the processes that srun started: the launcher, which would end, but not the ranks. This program runs
between srun and the launcher. It starts the launcher with the signals USR1 and USR2 ignored, passes a signal to all
processes below it that handle it, and exits with the launcher's exit code. If $HEADWAY_TENSORBOARD_DIR is set, it also reports
the scalars of TensorBoard event files (event_follower)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from headway_train import event_follower, progress

WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
RETRY_S = 1.0
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> int:
    """Runs the command and returns its exit code."""
    words = sys.argv[1:]
    if not words:
        print("usage: python3 -m headway_train COMMAND ...", file=sys.stderr)
        return 2
    ours = {*WARNINGS, *ENDINGS}
    # A signal that arrives before the handlers are set stays pending.
    signal.pthread_sigmask(signal.SIG_BLOCK, ours)

    def in_child() -> None:
        for number in WARNINGS:  # ignored signals stay ignored in the launcher and the ranks until they set a handler
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)

    follower = event_follower.follow(progress.run_began())
    env = {**os.environ, progress.BEGAN: str(progress.run_began())} if follower else None
    try:
        child = subprocess.Popen(words, preexec_fn=in_child, env=env)
    except OSError as error:
        print(f"headway_train: {words[0]}: {error.strerror}", file=sys.stderr)
        return 127
    for number in WARNINGS:
        signal.signal(number, lambda got, _: hand_on(child.pid, got))
    for number in ENDINGS:
        signal.signal(number, lambda got, _: child.send_signal(got))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)
    code = child.wait()
    if follower:
        follower.close()
    return code if code >= 0 else 128 - code


def hand_on(top: int, number: int) -> None:
    """Passes the signal to the processes below `top`. Tries again each second while no process handles it, because the
    training may still be starting."""
    if warn(top, number):
        signal.setitimer(signal.ITIMER_REAL, 0)
        return
    signal.signal(signal.SIGALRM, lambda *_: hand_on(top, number))
    signal.setitimer(signal.ITIMER_REAL, RETRY_S)


def warn(top: int, number: int) -> int:
    """Sends the signal to every process below `top` that handles it, and returns their number."""
    warned = 0
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat") as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
    for pid in parents:
        above = pid
        while above not in (top, 0, 1):
            above = parents.get(above, 0)
        if above == top and _listens(pid, number):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
                warned += 1
    return warned


def _listens(pid: int, number: int) -> bool:
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


if __name__ == "__main__":
    sys.exit(main())
