"""How many examples a property is tried with."""

from __future__ import annotations

from hypothesis import settings

_USUAL = 100  # examples without a number of their own, in full runs


def examples(full: int, *, cases: int = 1) -> int:
    """Returns the number of examples for a property that gets `full` in full runs: a fifth of it in `make check`, as other
    properties do (tests/conftest.py). `cases`: of a property with slow examples, the cases that share this number there."""
    usual = settings.default.max_examples
    return max(1, full * usual // _USUAL // (cases if usual < _USUAL else 1))
