"""The thread that keeps software environments on this node's disk and in its memory."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable

from agent.environments import page_cache
from agent.environments.local_copies import LocalCopies, list_versions
from agent.log import log

LOOK_S = 15.0
READ_S = 300.0  # between two looks at the page cache


class EnvironmentKeeper(threading.Thread):
    """Runs next to the agent's main loop, because network storage may block for ever. `idle`: returns whether no job
    runs on this node."""

    def __init__(
        self,
        idle: Callable[[], bool],
        copies: LocalCopies | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(daemon=True)
        self._idle, self._sleep, self._clock = idle, sleep, clock
        self._copies = copies or LocalCopies(clock=time.time)
        self._read_at = -READ_S
        self._fault = ""

    def run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while True:
            self.look_once()
            self._sleep(LOOK_S)

    def look_once(self) -> None:
        """Looks at the copies, and, on an idle node, at the page cache. A fault is logged once."""
        try:
            self._copies.look_once()
            if self._idle() and self._clock() - self._read_at >= READ_S:
                self._read_at = self._clock()
                paths = itertools.chain.from_iterable(map(page_cache.files, page_cache.folders(list_versions())))
                page_cache.read_into_memory(paths, int(page_cache.MOST_SHARE * page_cache.available_bytes()))
            self._fault = ""
        except Exception as error:  # the thread must go on: the storage may come back
            if str(error) != self._fault:
                log(f"environments can't be kept on this node: {type(error).__name__}: {error}")
            self._fault = str(error)
