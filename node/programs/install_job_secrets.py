"""Writes the secrets of a cluster's jobs to a file on a head, which its agent reads (node/agent/jobs/secret_server.py). Runs as
root; standard input is the file's content: {"revision": NUMBER, "users": ..., "teams": ..., "members": ...}. An older revision
does not replace a newer one."""

import fcntl
import json
import os
import sys

JOB_SECRETS_FILE = "/var/lib/headway/job-secrets.json"


def install(file, content):
    """Writes the file with mode 600, atomically."""
    os.makedirs(os.path.dirname(file), mode=0o755, exist_ok=True)
    with open(f"{file}.lock", "w") as lock:  # two servers may write at the same time
        os.fchmod(lock.fileno(), 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if json.loads(content)["revision"] < revision_of(file):
            return
        new = f"{file}.new"
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            os.fchmod(out.fileno(), 0o600)
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(new, file)


def revision_of(file):
    """Returns the revision of the file that is there; -1 if there is no readable one."""
    try:
        with open(file, encoding="utf-8") as opened:
            return int(json.load(opened)["revision"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1


if __name__ == "__main__":
    install(JOB_SECRETS_FILE, sys.stdin.read())
