"""A growing job log for page tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.logs.follow import log_piece
from headway.jobs.logs.log_part import last_lines
from headway.schemas.jobs import LogFoundOut, LogLineOut, LogPartOut
from tests.support.site.server import Site


class Log:
    """A growing log file, its job, and its followers."""

    def __init__(self, demo: Site, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
        self.demo, self.data, self.ended = demo, data, False
        self.news = asyncio.Event()
        self.starts: list[int] = []
        self.read: list[int] = []  # ids of the jobs whose logs were requested
        monkeypatch.setattr(demo.backend.jobs, "follow_log", self.follow)
        demo.backend.answers |= {"log_part": self.part, "search_log": self.search}

    def write(self, data: bytes, *, end: bool = False) -> None:
        self.data += data
        self.ended = end
        self.demo.loop.call_soon_threadsafe(self.news.set)

    async def follow(self, _: Cluster, job: JobState, *, start: int = 0, **__: Any) -> AsyncIterator[bytes]:
        self.starts.append(start)
        self.read.append(job.id)
        while True:
            self.news.clear()
            if len(self.data) > start:
                piece = log_piece(self.data[start:], start)
                start += len(piece)
                yield piece
            if self.ended:
                return
            await self.news.wait()

    def part(self, _: Cluster, job: JobState, before: int | None, lines: int, __: bool) -> LogPartOut:
        self.read.append(job.id)
        data = self.data[:before]
        return last_lines(data, 0, len(self.data), lines, 0)

    def search(self, _: Cluster, job: JobState, text: str, __: bool) -> LogFoundOut:
        self.read.append(job.id)
        at, found = 0, []
        for number, line in enumerate(self.data.splitlines(keepends=True), 1):
            if text.encode() in line:
                found.append(LogLineOut(offset=at, line=number, text=line.decode(errors="replace").rstrip()))
            at += len(line)
        return LogFoundOut(found=found)
