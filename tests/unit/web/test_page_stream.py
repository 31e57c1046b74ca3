"""A page's stream wakes at each change and at each pulse, misses no change, and unsubscribes when it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from headway.web import page_stream


async def test_idle_stream_sends_pulses_and_unsubscribes_when_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_stream, "PULSE_S", 0.01)
    closed = asyncio.Event()

    async def silent() -> AsyncIterator[None]:
        try:
            await asyncio.Event().wait()
            yield
        finally:
            closed.set()

    ticks = page_stream.update_ticks(silent())
    for _ in range(3):
        await asyncio.wait_for(anext(ticks), 60)
    await ticks.aclose()  # type: ignore[attr-defined]
    assert closed.is_set()


async def test_stream_subscribes_before_its_first_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_stream, "PULSE_S", 60)
    monkeypatch.setattr(page_stream, "COALESCE_S", 0)
    news = asyncio.Event()
    listening = []

    async def wakes() -> AsyncIterator[None]:
        listening.append(True)
        await news.wait()
        yield

    ticks = page_stream.update_ticks(wakes())
    await anext(ticks)
    assert listening, "the first reading happened before anybody listened"
    news.set()
    await asyncio.wait_for(anext(ticks), 60)
    await ticks.aclose()  # type: ignore[attr-defined]
