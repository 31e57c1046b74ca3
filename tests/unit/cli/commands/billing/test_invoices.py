"""invoice and chargeback print tables for people and exports for spreadsheets."""

from __future__ import annotations

import json

import pytest

from headway.cli.commands.billing.invoices import chargeback, invoice
from headway.cli.output.output_formats import ReportFormat


def test_chargeback_prints_json_numbers_table_and_csv(capsys: pytest.CaptureFixture[str]) -> None:
    chargeback(period="2026-10", output=ReportFormat.json)
    captured = json.loads(capsys.readouterr().out)
    assert captured["invoice_total_usd"] == 2.0
    assert (captured["teams"][0]["total_usd"], captured["unassigned"][0]["usd"]) == (1.3, 0.7)
    chargeback(period="2026-10")
    shown = capsys.readouterr()
    assert ("(broken, it)" in shown.out, "no team" in shown.out) == (True, True)
    assert "may still change" in shown.err
    chargeback(period="2026-10", output=ReportFormat.csv)
    assert capsys.readouterr().out.splitlines()[-1] == "(broken: it),,,,,,,,0.70"


def test_invoice_shows_spare_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    invoice()
    captured = capsys.readouterr().out
    assert "open, until" in captured
    assert "spare  main   on demand  1.0000      23.9200  23.92" in captured
