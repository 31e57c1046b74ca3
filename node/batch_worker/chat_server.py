"""Sends rows to an HTTP server with the OpenAI API that runs inside the job, such as vLLM."""

import contextlib
import http.client
import itertools
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from batch_worker.plan import encode
from batch_worker.process_groups import has_ended, kill_group
from batch_worker.program import MOST_UNANSWERED, CallEnded, CallFailed, StartFailed

_LISTENS = "0A"  # the state of a socket, see net/tcp_states.h of Linux
_ENDS_S = 30.0  # after SIGTERM
_PATHS = (("messages", "chat/completions"), ("prompt", "completions"), ("input", "embeddings"))


class ChatServer:
    """A server that is started with a command, in which {port} and {model} are replaced. A row is the body of a request, or
    has it in `body` (with `url`), as in files of OpenAI's batches. Its result is the row with the answer in `response`."""

    def __init__(self, command, model, parallel, start_s, request_s):
        self._command, self._model, self._start_s, self._request_s = command, model, start_s, request_s
        self._process = None
        self._port = 0
        self._answered = False  # whether the server answered a request of the call
        self._doubtful = False  # whether a request of the call may have failed because the server ended or hangs
        self._unanswered = 0  # calls in a row
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # $http_proxy is for others
        self._pool = ThreadPoolExecutor(parallel)

    def call(self, texts):
        """Returns the results of rows, both as JSON texts; CallFailed as the result of a request that failed, CallEnded if the
        server ended before it was answered, or was ended because it answered no request of the call. Raises StartFailed if the
        server does not become healthy or never answers."""
        if self._process is None or has_ended(self._process):
            self._start()
        self._answered = self._doubtful = False
        results = list(self._pool.map(self._result, texts))
        if self._answered:
            self._unanswered = 0
        if not self._doubtful:
            return results
        if self._answered and self._becomes_healthy():
            return [CallFailed(str(result)) if isinstance(result, CallEnded) else result for result in results]
        self._end_process()
        if not self._answered:
            self._unanswered += 1
            if self._unanswered >= MOST_UNANSWERED:
                raise StartFailed(f"no request of {self._unanswered} calls in a row was answered")
        return results

    def _result(self, text):
        try:
            return self._request(text)
        except CallFailed as error:
            return error
        except RecursionError:
            return CallFailed("the row or its answer is nested too deep")

    def _request(self, text):
        row = json.loads(text)
        if not isinstance(row, dict):
            raise CallFailed("a row must be an object: the body of a request")
        body, url = row.get("body", row), row.get("url", "")
        if not isinstance(body, dict) or not isinstance(url, str):
            raise CallFailed("body of a row must be an object, and url a text")
        path = next((path for field, path in _PATHS if field in body), "")
        path = url.removeprefix("/v1/") or path
        if not path:
            raise CallFailed("a row needs messages, prompt or input")
        given = {"model": self._model, **body}
        request = urllib.request.Request(
            f"{self._base()}/v1/{path}", encode(given), {"Content-Type": "application/json"}, method="POST"
        )
        try:
            code, content = self._exchange(request)
            if code in range(200, 300):
                return encode({**row, "response": json.loads(content)})
        except (ValueError, http.client.InvalidURL) as error:
            raise CallFailed(f"the address or the answer of the request is faulty: {error}") from None
        except (OSError, http.client.HTTPException) as error:
            self._doubtful = True
            raise CallEnded(f"the server did not answer: {error}") from None
        why = f"the server answered {code}: {content.decode(errors='replace')}"
        if code < 500:
            raise CallFailed(why)
        self._doubtful = True  # servers that are about to end answer so
        raise CallEnded(why)

    def _exchange(self, request):
        """Returns the status and the content of an answer, or the beginning of the content of a refusal."""
        try:
            with self._open(request, timeout=self._request_s) as answer:
                content = answer.read()
                self._answered = True
                return answer.status, content
        except urllib.error.HTTPError as refusal:
            self._answered = True
            return refusal.code, refusal.read(1000)
        except http.client.IncompleteRead:
            self._answered = True  # the server does not hang
            raise

    def _start(self):
        self._end_process()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        words = [
            word.replace("{port}", str(self._port)).replace("{model}", self._model)
            for word in shlex.split(self._command)
        ]
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=os.environ, start_new_session=True
        )
        if self._becomes_healthy():
            return
        if not has_ended(self._process):
            raise StartFailed(f"the server was not healthy within {self._start_s} s")
        self._process.wait()
        raise StartFailed(f"the server ended with code {self._process.returncode}; see the job's log")

    def _becomes_healthy(self):
        """Waits until the server is healthy. Returns False if it has ended, or if that takes longer than `start_s`."""
        until = time.monotonic() + self._start_s
        while not has_ended(self._process) and time.monotonic() < until:
            if self._healthy() and _is_ours(self._port):
                return True
            time.sleep(0.2)
        return False

    def _base(self):
        return f"http://127.0.0.1:{self._port}"

    def _healthy(self):
        try:
            with self._open(f"{self._base()}/health", timeout=5) as answer:
                return answer.status == 200
        except (OSError, http.client.HTTPException):
            return False

    def _end_process(self):
        if self._process is not None:
            kill_group(self._process, signal.SIGTERM)
            until = time.monotonic() + _ENDS_S
            while not has_ended(self._process) and time.monotonic() < until:
                time.sleep(0.1)
            kill_group(self._process)
            self._process.wait()
            self._process = None

    def kill(self):
        """Ends the server at once, also while requests wait for it."""
        kill_group(self._process)

    def close(self):
        """Ends the server, and with it the requests that wait for it."""
        self._end_process()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _is_ours(port):
    """Returns whether the socket that listens on a port belongs to this user. Between the choice of the port and the start of
    the server another user of the node can listen there."""
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError), open(name) as file:
            for line in itertools.islice(file, 1, None):
                words = line.split()
                if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                    return int(words[7]) == os.geteuid()
    return False
