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
from batch_worker.program import CallFailed, StartFailed

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
        self._doubtful = False  # whether a request found no server
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # $http_proxy is for others
        self._pool = ThreadPoolExecutor(parallel)

    def call(self, texts):
        """Returns the results of rows, both as JSON texts; CallFailed as the result of a request that failed. Raises StartFailed
        if the server does not become healthy."""
        if self._process is not None and self._doubtful:
            self._await_end_or_health()
        if self._process is None or has_ended(self._process):
            self._start()
        return list(self._pool.map(self._result, texts))

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
            with self._open(request, timeout=self._request_s) as answer:
                return encode({**row, "response": json.load(answer)})
        except urllib.error.HTTPError as error:
            raise CallFailed(f"the server answered {error.code}: {error.read(1000).decode(errors='replace')}") from None
        except (OSError, http.client.HTTPException) as error:
            self._doubtful = True
            raise CallFailed(f"the server did not answer: {error}") from None
        except ValueError as error:
            raise CallFailed(f"the address or the answer of the request is faulty: {error}") from None

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
        self._await_end_or_health()
        if has_ended(self._process):
            self._process.wait()
            raise StartFailed(f"the server ended with code {self._process.returncode}; see the job's log")

    def _await_end_or_health(self):
        until = time.monotonic() + self._start_s
        while not (self._healthy() and _is_ours(self._port)) and not has_ended(self._process):
            if time.monotonic() > until:
                raise StartFailed(f"the server was not healthy within {self._start_s} s")
            time.sleep(0.2)
        self._doubtful = False

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
