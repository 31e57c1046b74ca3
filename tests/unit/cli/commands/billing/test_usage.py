"""usage prints sums, runs and node states."""

from __future__ import annotations

import pytest

from headway.cli.commands.billing.usage import usage
from headway.cli.output.output_formats import ReportFormat


def test_usage_prints_a_table_or_csv(capsys: pytest.CaptureFixture[str]) -> None:
    usage(by="team")
    captured = capsys.readouterr()
    assert "vision     1       8.50  0.50  0.00      0.25  ~7.0  33.20" in captured.out
    assert captured.out.splitlines()[-1].startswith("all")
    assert "away" in captured.err
    usage(by="team", output=ReportFormat.csv)
    assert capsys.readouterr().out.splitlines()[1] == "vision,1,8.5,1.0,0.5,0.0,0.25,33.20,7.0,True"


def test_usage_of_nodes_prints_node_states_from_all_pages(capsys: pytest.CaptureFixture[str]) -> None:
    usage(nodes=True, start="2026-10")
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert ("up" in first, "1:30 " in first) == (True, True)
    assert ("drained" in second, "1:30+  XID 79" in second) == (True, True)
    usage(nodes=True, start="2026-10", output=ReportFormat.csv)
    assert [line.split(",")[2] for line in capsys.readouterr().out.splitlines()] == ["state", "up", "drained"]


def test_usage_with_cause_requests_runs_of_that_cause(capsys: pytest.CaptureFixture[str]) -> None:
    usage(cause="lab-1-2 failed", start="2026-10")
    assert "no matching run" in capsys.readouterr().out
