"""A helper process that serves many requests one after another: of one user, or reads of any user's files."""

import json
import os
import select
import sys
import warnings  # noqa: F401  (os.execvpe imports it; imported here once instead of in each child)

from user_helper import identity
from user_helper.logs import read_log_part
from user_helper.submit import sbatch

IDLE_S = 900  # without a request; Headway itself ends a helper much earlier
MOST_ANSWER = 64 * 1024 * 1024  # bytes kept of each output; the rest is read and dropped
DOES = {"sbatch": sbatch, "read": read_log_part}


def serve(opening):
    """Answers requests until standard input ends or no request has come for IDLE_S. A helper for one user applies the
    user's limits at its start, which saves time in each request. Each request drops root in its own child process, which
    can't use the pipes of the helper."""
    user = opening["user"]
    if user:
        entry = identity.user_entry(user)
        identity.must_be_current(entry)
        identity.apply_limits(entry)
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")  # neither is inherited through exec
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    answers.write(b"ready\n")
    answers.flush()
    while select.select([questions], [], [], IDLE_S)[0]:
        line = questions.readline()
        if not line.endswith(b"\n"):
            return
        request = json.loads(line)
        data = questions.read(request["size"])
        if len(data) < request["size"]:
            return
        # If the helper ends before this line, the request has not started and can be sent to another helper.
        answers.write(b"begun\n")
        answers.flush()
        code, out, err = serve_request(request["ask"], data, user, (questions, answers))
        answers.write(json.dumps({"code": code, "out": len(out), "err": len(err)}).encode() + b"\n" + out + err)
        answers.flush()


def serve_request(request, data, user, ours):
    """Returns (exit code, standard output, standard error) of one request, run in a child process."""
    if (request["do"], request.get("user", "")) not in (("sbatch", user), ("read", user)):
        return identity.REFUSED, b"", b"this helper process does not serve this request\n"
    out, err = os.pipe(), os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        for number in (*out, *err):
            os.close(number)
        output = f"{os.uname().nodename}: no process can be started for {user or 'root'}: {error.strerror}\n"
        return identity.REFUSED, b"", output.encode()
    if child == 0:
        be_served(request, data, out[1], err[1], ours)
    os.close(out[1])
    os.close(err[1])
    output = gather_output(child, out[0], err[0])
    return identity.end_of(child), *output


def be_served(request, data, out, err, ours):
    """Carries out the request in the child process, with its data as standard input."""
    code = 1
    try:
        for number in ours:
            os.close(number.fileno())
        feed = os.memfd_create("input")
        view = memoryview(data)
        while view:
            view = view[os.write(feed, view) :]
        os.lseek(feed, 0, os.SEEK_SET)
        for number, place in ((feed, 0), (out, 1), (err, 2)):
            os.dup2(number, place)
        DOES[request["do"]](request)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException as error:
        identity.refuse(f"{type(error).__name__}: {error}")
    sys.stdout.flush()
    os._exit(code)


def gather_output(child, *numbers):
    """Returns the child's output up to its end. Does not wait for processes that it leaves behind, which may keep the
    pipes open."""
    found = {number: bytearray() for number in numbers}
    ended = os.pidfd_open(child)
    watch = select.poll()
    for number in (*numbers, ended):
        watch.register(number, select.POLLIN)
    for number in numbers:
        os.set_blocking(number, False)
    over = False
    while not over:
        # checked before reading, so that everything the child wrote is in the pipes
        over = ended in [number for number, _ in watch.poll()]
        for number, data in found.items():
            pour(number, data, watch)
    for number in (*numbers, ended):
        os.close(number)
    return [bytes(data) for data in found.values()]


def pour(number, data, watch):
    """Reads the present content of a pipe. Stops after eight reads, enough for a full pipe, so that a process that keeps
    writing can't block the helper."""
    for _ in range(8):
        try:
            piece = os.read(number, identity.CHUNK)
        except BlockingIOError:
            return
        if not piece:
            try:
                watch.unregister(number)
            except KeyError:
                pass
            return
        data += piece[: max(0, MOST_ANSWER - len(data))]
