"""Requests to a service from several threads, until they are stopped: none may fail."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from types import TracebackType
from urllib.parse import urlsplit

THREADS = 4
ANSWER_S = 120.0


class RequestLoop:
    """Asks a service without pause while the context is open: half of the threads on kept connections, half on new ones.
    `answers` counts the answers of each replica, `failed` has everything else."""

    def __init__(self, url: str, key: str, path: str = "/wait?s=0.05") -> None:
        self._url, self._key, self._path = urlsplit(url), key, path
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self.answers: Counter[str] = Counter()
        self.failed: list[str] = []
        self._threads = [threading.Thread(target=self._ask, args=(n % 2 == 0,)) for n in range(THREADS)]

    def __enter__(self) -> RequestLoop:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for_more(self, count: int = 20, patience_s: float = 120.0) -> None:
        """Waits until so many further requests were answered, or one has failed."""
        with self._changed:
            wanted = self.answers.total() + count
            assert self._changed.wait_for(lambda: self.failed or self.answers.total() >= wanted, patience_s), (
                "no answers"
            )

    def _ask(self, keep: bool) -> None:
        connection: http.client.HTTPConnection | None = None
        while not self._stop.is_set():
            connection = connection or http.client.HTTPConnection(
                str(self._url.hostname), self._url.port, timeout=ANSWER_S
            )
            try:
                headers = {"Authorization": f"Bearer {self._key}"}
                connection.request("GET", self._url.path + self._path, headers=headers)
                answer = connection.getresponse()
                body = answer.read()
                self._note(
                    json.loads(body)["replica"] if answer.status == 200 else None, f"{answer.status} {body[:80]!r}"
                )
            except (OSError, http.client.HTTPException) as error:
                self._note(None, repr(error))
                connection.close()
                connection = None
                continue
            if not keep:
                connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _note(self, replica: str | None, text: str) -> None:
        with self._changed:
            if replica is None:
                self.failed.append(text)
            else:
                self.answers[replica] += 1
            self._changed.notify_all()
