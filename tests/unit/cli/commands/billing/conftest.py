"""The commands reach a server that knows one month."""

from __future__ import annotations

import pytest

from tests.support.billing.billing_fakes import Ledger


@pytest.fixture(autouse=True)
def ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.cli.common.connect", Ledger)
