"""Runs a request once per tag: a repeated request gets the first one's answer, also when it comes through another
server.

Each tag has a file in the user's home for a day. The file is locked while the request runs, so a repeated request waits.
It is marked before the request starts, so that an interrupted request can be told from one that never started."""

import errno
import json
import os
import time

from user_helper import identity

FOLDER = ".headway-once"
KEPT_S = 86400 - 600  # shorter than the server keeps a key, so that a key that the server accepts again also runs again
NOBODY_KNOWS = 98
# Exit codes of a program that a signal ended, perhaps after its work was done. 255 is sbatch's code for a refusal.
SIGNALLED = range(128, 193)
# Messages of Slurm's commands when the controller received the request but did not answer; the request may succeed.
UNSURE = (b"timed out on send/recv", b"Zero Bytes were transmitted", b"Unexpected message received")
# Errors of Lustre without flock and of NFSv3 without lockd. The request then runs without a lock: two servers rarely send
# the same request at the same time.
NO_LOCKS = (
    errno.ENOSYS,
    errno.ENOLCK,
    errno.EOPNOTSUPP,
)


def run_once(tag, work):
    """Runs `work` once for this tag, writes its output to standard output and error, and returns its exit code. `work`
    replaces its process by a program. A request that failed runs again when it is repeated. Returns NOBODY_KNOWS if an
    earlier run was interrupted, because its effect is unknown."""
    try:
        file = open_tag_file(tag)
    except OSError as error:
        identity.refuse(f"{os.environ['HOME']} can't be written, so nothing was submitted: {error.strerror}")
    try:
        os.lockf(file, os.F_LOCK, 0)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    if stored := os.pread(file, 1 << 22, 0):
        try:
            answer = json.loads(stored)
        except ValueError:  # "begun", or an answer of which the head lost a part with its power
            os.write(2, b"an earlier try of this request was interrupted\n")
            return NOBODY_KNOWS
        for number, name in ((1, "out"), (2, "err")):
            pour(number, answer[name].encode("latin-1"))
        return 0
    store_answer(file, b"begun")
    os.fsync(
        file
    )  # a head that loses its power must not forget it; of the answer it may: that is the server's to store
    code, out, err = run_in_child(work)
    if code and any(word in err for word in UNSURE):
        pour(2, err)
        return NOBODY_KNOWS
    words = {"out": out.decode("latin-1"), "err": err.decode("latin-1")}
    if code not in SIGNALLED:
        store_answer(file, json.dumps(words).encode() if code == 0 else b"")
    pour(1, out)
    pour(2, err)
    return code


def open_tag_file(tag):
    """Returns the tag's open file in the user's home."""
    folder = os.path.join(os.environ["HOME"], FOLDER)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        # A tag is the hash of a key: one request in 256 looks at all files, each of which costs a round trip on NFS.
        for name in os.listdir(folder) if tag.startswith("00") else (tag,):
            forget_old(os.path.join(folder, name))
    return os.open(os.path.join(folder, tag), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def forget_old(path):
    """Deletes a tag's file that is older than KEPT_S."""
    try:
        if time.time() - os.stat(path, follow_symlinks=False).st_mtime > KEPT_S:
            os.unlink(path)
    except OSError:
        pass


def store_answer(file, data):
    """Writes the answer to the tag's file."""
    # Written before truncating: if the machine fails in between, the file is not empty. An empty file would run again.
    os.pwrite(file, data, 0)
    os.ftruncate(file, len(data))


def run_in_child(work):
    """Returns (exit code, standard output, standard error) of the work, run in a child process."""
    pipes = os.memfd_create("out"), os.memfd_create("err")

    def apart():
        os.dup2(pipes[0], 1)
        os.dup2(pipes[1], 2)
        work()

    code = identity.in_child(apart)
    return code, *(os.pread(number, 1 << 20, 0) for number in pipes)


def pour(number, data):
    """Writes all of the data."""
    view = memoryview(data)
    while view:
        view = view[os.write(number, view) :]
