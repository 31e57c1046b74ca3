"""Reads where the ranks of a job are: the Python stack of each rank's main thread, and NCCL's own status. Sent as the program
text of `python3 -c` with one JSON argument, and py-spy on standard input; runs as root. Needs only the standard library.

  {"job": 12, "py_spy": 2936517}      the job, and how many bytes of py-spy follow on standard input (0: none)

Prints {"ranks": [{"rank": 0, "pid": 7, "frames": ["train (train.py:41)", ...], "error": ""}], "nccl": "..."}, the innermost frame
first. A rank is the topmost process of the job with its RANK in the environment; its data loaders inherit that."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

PY_SPY_S = 10
AT_ONCE = 16  # ranks that are read at the same time: one that does not answer takes PY_SPY_S
NCCL_RAS = ("127.0.0.1", 28028)  # NCCL 2.24 and later; its text protocol is described in NCCL's documentation, "RAS"
NCCL_RAS_S = 5
NCCL_RAS_BYTES = 65536
FRAMES = 40


def environment(pid):
    """Returns the environment of a process; {} if it has ended."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = (pair.split(b"=", 1) for pair in file.read().split(b"\0") if b"=" in pair)
            return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in pairs}
    except OSError:
        return {}


def parent(pid):
    """Returns the parent of a process; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def ranks_of(job):
    """Yields (rank, pid) of the job's ranks on this machine."""
    known = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            env = environment(int(name))
            if env.get("SLURM_JOB_ID") == str(job) and env.get("RANK", "").isdigit():
                known[int(name)] = int(env["RANK"])
    for pid, rank in sorted(known.items()):
        if known.get(parent(pid)) != rank:
            yield rank, pid


def stack(py_spy, pid):
    """Returns (frames of the main thread, error)."""
    if not py_spy:
        return [], "py-spy is not available"
    argv = [py_spy, "dump", "--json", "--pid", str(pid)]
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=PY_SPY_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], str(error)
    if ran.returncode:
        return [], ran.stderr.strip().splitlines()[-1] if ran.stderr.strip() else f"py-spy ended with {ran.returncode}"
    try:
        threads = json.loads(ran.stdout)
        main = next((one for one in threads if one.get("thread_name") == "MainThread"), threads[0])
        frames = main["frames"][:FRAMES]
        return [f"{one['name']} ({one['short_filename'] or one['filename']}:{one['line']})" for one in frames], ""
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return [], "py-spy printed an unknown format"


def nccl_status():
    """Returns what NCCL says about the communicators of this machine's processes; "" without NCCL."""
    parts = []
    with contextlib.suppress(OSError), socket.create_connection(NCCL_RAS, timeout=NCCL_RAS_S) as one:
        one.settimeout(NCCL_RAS_S)
        one.sendall(b"verbose status\n")
        while sum(map(len, parts)) < NCCL_RAS_BYTES:
            part = one.recv(8192)
            if not part:
                break
            parts.append(part)
    return b"".join(parts).decode(errors="replace")


def main():
    request = json.loads(sys.argv[1])
    py_spy = ""
    size = int(request["py_spy"])
    if size:
        # A file in memory: nothing is left on the machine, and /tmp may forbid programs.
        memory = os.memfd_create("py-spy", 0)
        with os.fdopen(os.dup(memory), "wb") as file:
            file.write(sys.stdin.buffer.read(size))
        py_spy = f"/proc/{os.getpid()}/fd/{memory}"
    ranks = list(ranks_of(request["job"]))
    with ThreadPoolExecutor(AT_ONCE) as readers:
        stacks = readers.map(lambda one: stack(py_spy, one[1]), ranks)
    found = [
        {"rank": rank, "pid": pid, "frames": frames, "error": error}
        for (rank, pid), (frames, error) in zip(ranks, stacks, strict=True)
    ]
    json.dump({"ranks": found, "nccl": nccl_status()}, sys.stdout)


if __name__ == "__main__":
    main()
