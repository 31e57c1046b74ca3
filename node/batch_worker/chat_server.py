"""Sends rows to an HTTP server with the OpenAI API that runs inside the job, such as vLLM."""

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from batch_worker.plan import encode
from batch_worker.program import CallFailed, StartFailed

_REQUEST_S = 3600.0  # of one request; a server that is overloaded answers late
_ENDS_S = 1.0  # a server that does not answer, because it ends, has ended within this time
_PATHS = (("messages", "chat/completions"), ("prompt", "completions"), ("input", "embeddings"))


class _NoAnswer(CallFailed):
    """The server did not answer; the message says why."""


class ChatServer:
    """A server that is started with a command, in which {port} and {model} are replaced. A row is the body of a request, or
    has it in `body` (with `url`), as in files of OpenAI's batches. Its result is the row with the answer in `response`."""

    def __init__(self, command, model, parallel, start_s):
        self._command, self._model, self._start_s = command, model, start_s
        self._process = None
        self._base = ""
        self._pool = ThreadPoolExecutor(parallel)

    def call(self, texts):
        """Returns the results of rows, both as JSON texts; CallFailed as the result of a request that failed. Raises StartFailed
        if the server does not become healthy."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        results = list(self._pool.map(self._result, texts))
        if any(isinstance(result, _NoAnswer) for result in results):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDS_S)  # else the next call would find a server that is about to end
        return results

    def _result(self, text):
        try:
            return self._request(text)
        except CallFailed as error:
            return error

    def _request(self, text):
        row = json.loads(text)
        if not isinstance(row, dict):
            raise CallFailed("a row must be an object: the body of a request")
        body = row.get("body", row)
        path = next((path for field, path in _PATHS if field in body), "")
        path = row.get("url", "").removeprefix("/v1/") or path
        if not path:
            raise CallFailed("a row needs messages, prompt or input")
        given = {"model": self._model, **body}
        request = urllib.request.Request(
            f"{self._base}/v1/{path}", encode(given), {"Content-Type": "application/json"}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_S) as answer:
                return encode({**row, "response": json.load(answer)})
        except urllib.error.HTTPError as error:
            raise CallFailed(f"the server answered {error.code}: {error.read(1000).decode(errors='replace')}") from None
        except (OSError, ValueError) as error:
            raise _NoAnswer(f"the server did not answer: {error}") from None

    def _start(self):
        self._end_process()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._base = f"http://127.0.0.1:{port}"
        words = [
            word.replace("{port}", str(port)).replace("{model}", self._model) for word in shlex.split(self._command)
        ]
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=os.environ)
        until = time.monotonic() + self._start_s
        while not self._healthy():
            if self._process.poll() is not None:
                raise StartFailed(f"the server ended with code {self._process.returncode}; see the job's log")
            if time.monotonic() > until:
                raise StartFailed(f"the server was not healthy within {self._start_s} s")
            time.sleep(0.2)

    def _healthy(self):
        try:
            with urllib.request.urlopen(f"{self._base}/health", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def _end_process(self):
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def close(self):
        """Ends the server."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._end_process()  # ends the requests that it has not answered
