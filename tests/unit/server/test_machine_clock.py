"""Whether the machine's clock is synchronized is what the kernel says."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from headway.server.machine_clock import is_clock_synchronized


def use(monkeypatch: pytest.MonkeyPatch, **functions: Callable[[object], int]) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: SimpleNamespace(**functions))


@pytest.mark.parametrize(("state", "synchronized"), [(0, True), (1, True), (5, False), (-1, True)])
def test_clock_is_as_the_kernel_says(monkeypatch: pytest.MonkeyPatch, state: int, synchronized: bool) -> None:
    use(monkeypatch, adjtimex=lambda _words: state)
    assert is_clock_synchronized() is synchronized


def test_kernel_is_only_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    use(monkeypatch, adjtimex=lambda words: asked.append(list(words)) or 0)  # type: ignore[call-overload,func-returns-value]
    is_clock_synchronized()
    assert asked == [[0] * 32]  # the first word says which fields to change: none


def test_a_machine_without_the_call_raises_no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch)
    assert is_clock_synchronized()
