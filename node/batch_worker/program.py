"""Runs a person's Python function in a process of its own, so that its crash or its output harms nothing here."""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys

from batch_worker.plan import encode

DEFAULT_FUNCTION = "predict"
_ENDS_S = 10.0  # a process that has closed its answers ends within this time, and tells its exit code


class CallFailed(Exception):
    """Rows were not computed; the message says why."""


class StartFailed(Exception):
    """The program can't compute any row; the message says why."""


class Program:
    """A function of a Python file that gets a list of rows and returns a list of results of the same length."""

    def __init__(self, program, arguments):
        """`program`: FILE.py or FILE.py:FUNCTION. `arguments`: begin a process that calls `serve_calls`."""
        self._arguments = [*arguments, program]
        self._process = None
        self._answers = None

    def call(self, texts):
        """Returns the results of rows, both as JSON texts. Raises CallFailed if the function fails, if it returns another number
        of results, or if its process ends; StartFailed if it can't be loaded."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        try:
            self._process.stdin.write(b"[" + b",".join(texts) + b"]\n")
            self._process.stdin.flush()
            answer = self._answers.readline()
        except BrokenPipeError:
            answer = b""
        if not answer.endswith(b"\n"):
            self.close(wait_s=_ENDS_S)
            raise CallFailed(f"the program ended: {_end(self._process.returncode)}")
        if answer[:1] == b"-":
            raise CallFailed(json.loads(answer[1:]))
        return [self._answers.readline()[:-1] for _ in range(len(texts))]

    def _start(self):
        self.close()
        ours, theirs = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*self._arguments, str(theirs)], stdin=subprocess.PIPE, stdout=sys.stderr, pass_fds=[theirs]
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._answers = os.fdopen(ours, "rb")
        if self._answers.readline() != b"ready\n":
            self.close(wait_s=_ENDS_S)
            raise StartFailed(f"the program could not be loaded: {_end(self._process.returncode)}; see the job's log")

    def close(self, wait_s=0.0):
        """Ends the process. `wait_s`: seconds within which it may end by itself."""
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            try:
                self._process.wait(wait_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._answers.close()


def _end(code):
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def serve_calls(program, handle):
    """Answers calls from standard input on the file with this number, until the input ends."""
    path, _, function = program.partition(":")
    out = os.fdopen(int(handle), "wb")
    rows_in = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the function must not read the calls
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    found = importlib.util.spec_from_file_location("headway_batch_program", path)
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    call = getattr(module, function or DEFAULT_FUNCTION)
    out.write(b"ready\n")
    out.flush()
    for line in rows_in:
        out.write(_answer(call, line))
        out.flush()


def _answer(call, line):
    rows = json.loads(line)
    try:
        results = list(call(rows))
        if len(results) != len(rows):
            raise ValueError(f"it returned {len(results)} results for {len(rows)} rows")
        return b"+\n" + b"".join(encode(result) + b"\n" for result in results)
    except Exception as error:
        return b"-" + encode(f"{type(error).__name__}: {error}"[:2000]) + b"\n"
