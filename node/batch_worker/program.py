"""Runs a person's Python function in a process of its own, so that its crash or its output harms nothing here."""

import contextlib
import importlib.util
import json
import os
import select
import subprocess
import sys
import threading
import time

from batch_worker.plan import encode
from batch_worker.process_groups import has_ended, kill_group

DEFAULT_FUNCTION = "predict"
_ENDS_S = 10.0  # a process that has closed its answers ends within this time, and tells its exit code
_LOOK_S = 0.2  # between two looks whether the process has ended
MOST_UNANSWERED = 20  # calls in a row; more than those in which one row is found among all of a call


class CallFailed(Exception):
    """Rows were not computed; the message says why."""


class CallEnded(CallFailed):
    """A call ended before a row was answered. This row or another one of the call may be the cause."""


class StartFailed(Exception):
    """The program can't compute any row; the message says why."""


class Program:
    """A function of a Python file that gets a list of rows and returns a list of results of the same length. Its process and the
    processes that it starts are a group, which is ended as a whole."""

    def __init__(self, program, arguments, start_s, call_s):
        """`program`: FILE.py or FILE.py:FUNCTION. `arguments`: begin a process that calls `serve_calls`. `start_s`, `call_s`:
        seconds within which the program must be loaded, and a call answered."""
        self._arguments, self._start_s, self._call_s = [*arguments, program], start_s, call_s
        self._process = None
        self._handle = -1  # of the pipe with its answers
        self._read = bytearray()  # from it, and not yet used
        self._unanswered = 0  # calls in a row

    def call(self, texts):
        """Returns the results of rows, both as JSON texts. Raises CallFailed if the function fails, if it returns another number
        of results, if it does not answer in time, or if its process ends; StartFailed if it can't be loaded or never answers in
        time."""
        if self._process is None or self._has_ended():
            self._start()
        until = time.monotonic() + self._call_s
        watch = threading.Timer(self._call_s, self.kill)  # ends also a call that the process does not read
        watch.start()
        try:
            self._process.stdin.write(b"[" + b",".join(texts) + b"]\n")
            self._process.stdin.flush()
            answer = self._line(until)
            results = [self._line(until) for _ in range(len(texts) if answer[:1] == b"+" else 0)]
        except (BrokenPipeError, EOFError):
            watch.cancel()
            raise self._fault(until) from None
        finally:
            watch.cancel()
        self._unanswered = 0
        if answer[:1] == b"-":
            raise CallFailed(json.loads(answer[1:]))
        return results

    def _fault(self, until):
        """Ends the processes after a call without an answer. Returns the exception that says why."""
        late = time.monotonic() >= until
        self.close(wait_s=0.0 if late else _ENDS_S)
        if not late:
            return CallFailed(f"the program ended: {_end(self._process.returncode)}")
        self._unanswered += 1
        if self._unanswered >= MOST_UNANSWERED:
            return StartFailed(f"{self._unanswered} calls in a row were not answered within {self._call_s} s each")
        return CallFailed(f"the program did not answer within {self._call_s} s")

    def _line(self, until):
        """Returns the next line that the process has written. Raises EOFError if it has ended before the line's end, or if the
        time is over. A process that it has started may hold the pipe open, so its end is looked at too."""
        end = self._read.find(b"\n")
        while end < 0:
            ready, _, _ = select.select([self._handle], [], [], _LOOK_S)
            if not ready and (self._has_ended() or time.monotonic() >= until):
                raise EOFError
            if ready:
                some = os.read(self._handle, 1 << 20)
                if not some:
                    raise EOFError
                end = some.find(b"\n") + len(self._read) if b"\n" in some else -1
                self._read += some
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        return line

    def _start(self):
        self.close()
        ours, theirs = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*self._arguments, str(theirs)],
                stdin=subprocess.PIPE,
                stdout=sys.stderr,
                pass_fds=[theirs],
                start_new_session=True,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._handle, self._read = ours, bytearray()
        until = time.monotonic() + self._start_s
        try:
            self._line(until)
        except EOFError:
            if time.monotonic() >= until:
                self.close()
                raise StartFailed(f"the program was not loaded within {self._start_s} s") from None
            self.close(wait_s=_ENDS_S)
            raise StartFailed(
                f"the program could not be loaded: {_end(self._process.returncode)}; see the job's log"
            ) from None

    def _has_ended(self):
        return has_ended(self._process)

    def kill(self):
        """Ends the processes at once, also while a call waits for them."""
        kill_group(self._process)

    def close(self, wait_s=0.0):
        """Ends the processes. `wait_s`: seconds within which the first one may end by itself."""
        if self._handle < 0:
            return
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        until = time.monotonic() + wait_s
        while not self._has_ended() and time.monotonic() < until:
            time.sleep(_LOOK_S)
        self.kill()
        self._process.wait()
        os.close(self._handle)
        self._handle = -1


def _end(code):
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def serve_calls(program, handle):
    """Answers calls from standard input on the file with this number, until the input ends."""
    path, _, function = program.partition(":")
    out = os.fdopen(int(handle), "wb")
    os.set_inheritable(out.fileno(), False)
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
    try:
        rows = json.loads(line)
        results = list(call(rows))
        if len(results) != len(rows):
            raise ValueError(f"it returned {len(results)} results for {len(rows)} rows")
        return b"+\n" + b"".join(encode(result) + b"\n" for result in results)
    except Exception as error:
        return b"-" + encode(f"{type(error).__name__}: {error}"[:2000]) + b"\n"
