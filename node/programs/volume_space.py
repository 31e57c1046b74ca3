"""Measures how full file systems are; prints one JSON line for each path. Runs as root.

    volume_space.py '{"paths": ["/home", "/scratch"], "mounted_s": 1}'

`mounted_s`: seconds within which each path must be mounted. Each path is read by a process of its own, because a file system
whose server is away may block the reader for ever, and not even SIGKILL ends it. While such a process exists, no other is
started."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
import time

ANSWER_S = 5.0
LOOKS = "/run/headway/looks"  # one file for each path, locked by the process that reads it


def begin_reading(path: str) -> tuple[int, float]:
    """Returns (the lock, 0), or (-1, seconds) if an earlier reader has had no answer for so long."""
    os.makedirs(LOOKS, mode=0o700, exist_ok=True)
    late = False
    while True:
        lock = os.open(f"{LOOKS}/{path.replace('%', '%25').replace('/', '%2F')}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            since_s = time.time() - os.fstat(lock).st_mtime
            os.close(lock)
            if since_s > ANSWER_S and late:
                return -1, since_s
            late = since_s > ANSWER_S
            time.sleep(0.02)  # another process reads it now, and may not have set the time yet
            continue
        os.utime(lock)
        return lock, 0.0


def mounted(path: str, within_s: float) -> bool:
    """Returns whether the path becomes a mount point within `within_s`."""
    end = time.monotonic() + within_s
    while True:
        with open("/proc/self/mounts", errors="surrogateescape") as file:
            if path in [line.split()[1] for line in file]:
                return True
        if time.monotonic() >= end:
            return False
        time.sleep(0.05)


def print_error(path: str, error: str) -> None:
    """Prints an error line for the path."""
    print(json.dumps({"path": path, "error": error}), flush=True)


def read_usage(path: str) -> dict[str, object]:
    """Returns size and free space of the file system in bytes, or an error."""
    try:
        stats = os.statvfs(path)
    except OSError as error:
        return {"path": path, "error": error.strerror}
    return {"path": path, "size": stats.f_frsize * stats.f_blocks, "free": stats.f_frsize * stats.f_bavail}


def main() -> None:
    """Reads every path of the request, each in a child process."""
    request = json.loads(sys.argv[1])
    children = {}
    for path in request["paths"]:
        if "mounted_s" in request and not mounted(path, request["mounted_s"]):
            print_error(path, "is not mounted")
            continue
        lock, since_s = begin_reading(path)
        if lock < 0:
            print_error(path, f"no answer for {since_s:.0f} s")
            continue
        answer, says = os.pipe()
        child = os.fork()
        if child == 0:
            # else a caller that reads until they are closed would wait for a child that can't end
            for number in (0, 1, 2):
                os.close(number)
            os.write(says, json.dumps(read_usage(path)).encode())  # short enough to be written in one piece
            os._exit(0)
        os.close(says)
        os.close(lock)  # the child holds it as long as it lives
        children[answer] = (child, path)
    end = time.monotonic() + ANSWER_S
    while children:
        ready = select.select(list(children), [], [], max(0.0, end - time.monotonic()))[0]
        if not ready:  # select ran once more after the limit, because this process may have been suspended
            break
        for answer in ready:
            child, path = children.pop(answer)
            output = os.read(answer, 1 << 16)
            print(output.decode() if output else json.dumps({"path": path, "error": "can't be read"}), flush=True)
            os.waitpid(child, 0)
    for child, path in children.values():
        os.kill(child, signal.SIGKILL)  # it ends when its server answers
        print_error(path, f"no answer for {ANSWER_S:g} s")


if __name__ == "__main__":
    main()
