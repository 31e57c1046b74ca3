"""`srun python3 -m headway_train torchrun ... train.py`: hands Slurm's warning on to the ranks.

Slurm signals only what srun itself started: that is the launcher, which ends on it, and not the ranks. This stands in
between. It runs the launcher with the signal ignored, passes a warning (USR1, USR2) to all processes below it that listen
for it, as soon as there is one, and ends as the launcher ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
RETRY_S = 1.0
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> int:
    words = sys.argv[1:]
    if not words:
        print("usage: python3 -m headway_train COMMAND ...", file=sys.stderr)
        return 2
    ours = {*WARNINGS, *ENDINGS}
    signal.pthread_sigmask(signal.SIG_BLOCK, ours)  # one that comes before we can hand it on waits until we can

    def in_child() -> None:
        for number in WARNINGS:  # what is ignored stays so in the launcher and in the ranks, until they listen
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)

    try:
        child = subprocess.Popen(words, preexec_fn=in_child)
    except OSError as error:
        print(f"headway_train: {words[0]}: {error.strerror}", file=sys.stderr)
        return 127
    for number in WARNINGS:
        signal.signal(number, lambda got, _: hand_on(child.pid, got))
    for number in ENDINGS:
        signal.signal(number, lambda got, _: child.send_signal(got))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)
    code = child.wait()
    return code if code >= 0 else 128 - code


def hand_on(top: int, number: int) -> None:
    """Warns those below `top`; tries again each second while nobody listens yet, as when a training still starts."""
    if warn(top, number):
        signal.setitimer(signal.ITIMER_REAL, 0)
        return
    signal.signal(signal.SIGALRM, lambda *_: hand_on(top, number))
    signal.setitimer(signal.ITIMER_REAL, RETRY_S)


def warn(top: int, number: int) -> int:
    """Sends the signal to every process below `top` that has a handler for it, and to no other; how many those are."""
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
