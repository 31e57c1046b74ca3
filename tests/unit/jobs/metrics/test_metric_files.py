"""Every reported number is kept, charts read little, and later steps replace repeated ones."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.jobs.metrics import metric_files
from headway.jobs.metrics.metric_files import JobMetrics, MetricFiles


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def run(began: float, steps: Sequence[int], value: Any = float, name: str = "loss") -> bytes:
    return lines({"run": began}, {"names": [name]}, *([step, began + step, value(step)] for step in steps))


@pytest.fixture
def files(tmp_path: Path) -> MetricFiles:
    return MetricFiles(tmp_path)


def append(files: MetricFiles, *pieces: bytes) -> JobMetrics:
    for piece in pieces:
        known = files.read("lab", 7)
        files.append("lab", 7, known, piece)
    return files.read("lab", 7)


def test_few_points_are_returned_as_they_were_reported(files: MetricFiles) -> None:
    known = append(files, lines({"run": 5.0}, {"names": ["loss", "lr"]}, [1, 6.0, 2.5, None], [3, 8.5, 2.25, 0.1]))
    loss, lr = (files.series("lab", 7, known, name, 100) for name in ("loss", "lr"))
    assert (loss.steps, loss.times, loss.values, loss.lows) == ([1, 3], [6.0, 8.5], [2.5, 2.25], [2.5, 2.25])
    assert (lr.steps, lr.values, lr.points) == ([3], [0.1], 1)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1024, 5000, 100_000])
def test_many_points_keep_their_range_and_mean(files: MetricFiles, count: int) -> None:
    value = random.Random(count).random
    numbers = [value() for _ in range(count)]
    pieces = [run(5.0, range(begin, min(begin + 7000, count)), numbers.__getitem__) for begin in range(0, count, 7000)]
    known = append(files, *pieces)
    for most in (10, 100, 500):
        found = files.series("lab", 7, known, "loss", most)
        assert found.points == count
        assert len(found.steps) <= most * 1.1 + 3
        assert len(found.steps) >= min(count, most // 2)
        assert (found.steps[-1], found.times[-1]) == (count - 1, 5.0 + count - 1)
        assert found.steps == sorted(set(found.steps))
        assert (min(filter(None, found.lows)), max(filter(None, found.highs))) == (min(numbers), max(numbers))
        assert all(
            low <= mean <= high  # type: ignore[operator]
            for low, mean, high in zip(found.lows, found.values, found.highs, strict=True)
        )


def test_values_that_are_not_finite_are_kept_and_named(files: MetricFiles) -> None:
    values = {10: math.nan, 11: math.inf, 2000: -math.inf}
    known = append(files, run(5.0, range(3000), lambda step: values.get(step, 1.0)))
    exact = files.series("lab", 7, known, "loss", 5000)
    assert exact.not_finite == [(10, "nan"), (11, "inf"), (2000, "-inf")]
    assert (exact.values[10], exact.lows[11], exact.values[12]) == (None, None, 1.0)
    few = files.series("lab", 7, known, "loss", 10)
    assert [word for _, word in few.not_finite] == ["nan", "inf", "-inf"]
    assert set(few.values) == {1.0}
    rows = {row[1]: row[3] for row in files.rows("lab", 7, known, "loss")}
    assert math.isnan(rows[10])
    assert (rows[11], rows[2000]) == (math.inf, -math.inf)


def test_restart_replaces_the_steps_that_it_repeats_and_keeps_the_old_points(files: MetricFiles) -> None:
    pieces = run(5.0, range(100)), run(900.0, range(50, 60), lambda step: -step)
    known = append(files, *pieces)
    found = files.series("lab", 7, known, "loss", 1000)
    assert found.steps == list(range(60))
    assert found.values[48:52] == [48.0, 49.0, -50, -51]
    rows = list(files.rows("lab", 7, known, "loss"))
    assert len(rows) == 110
    assert (rows[99], rows[100]) == ((0, 99, 104.0, 99.0), (1, 50, 950.0, -50.0))
    assert [(one.began, one.step) for one in known.restarts] == [(5.0, 0), (900.0, 50)]


def test_restart_also_cuts_metrics_that_it_has_not_reported_yet(files: MetricFiles) -> None:
    known = append(
        files, run(5.0, range(0, 1000, 100), name="val"), run(900.0, range(550, 560), name="loss"),
    )  # fmt: skip
    assert files.series("lab", 7, known, "val", 100).steps == [0, 100, 200, 300, 400, 500]


def test_last_report_of_a_step_counts(files: MetricFiles) -> None:
    known = append(
        files, lines({"run": 5.0}, {"names": ["loss"]}, [1, 6.0, 1.0], [1, 6.5, 2.0]),
        lines([1, 7.0, 3.0], [2, 8.0, 4.0], [2, 8.0, 5.0]),
    )  # fmt: skip
    found = files.series("lab", 7, known, "loss", 10)
    assert (found.steps, found.values, found.times) == ([1, 2], [3.0, 5.0], [7.0, 8.0])


def test_replaced_last_value_of_a_summary_is_summarised_again(files: MetricFiles) -> None:
    known = append(files, run(5.0, range(64), lambda step: 1.0), lines([63, 70.0, 9.0], [64, 71.0, 1.0]))
    found = files.series("lab", 7, known, "loss", 2)
    assert found.points == 65
    assert max(filter(None, found.highs)) == 9.0


def test_metric_that_goes_back_in_one_run_shows_its_newest_steps(files: MetricFiles) -> None:
    known = append(files, run(5.0, [0, 1, 2, 3, 0, 1]))
    assert files.series("lab", 7, known, "loss", 10).steps == [0, 1]
    assert len(list(files.rows("lab", 7, known, "loss"))) == 6


def test_points_written_by_a_killed_server_are_overwritten(files: MetricFiles, tmp_path: Path) -> None:
    piece = run(5.0, range(3))
    before = append(files, piece)
    stored = (tmp_path / "lab/7/state.json").read_text()
    append(files, lines([3, 9.0, 3.0], [4, 9.0, 4.0]))
    (tmp_path / "lab/7/state.json").write_text(stored)  # killed before the rename
    assert files.read("lab", 7).offset == before.offset == len(piece)
    known = append(files, lines([3, 9.0, 33.0]))
    assert files.series("lab", 7, known, "loss", 10).values == [0.0, 1.0, 2.0, 33.0]


def test_limits_are_said_and_the_rest_is_kept(files: MetricFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_files, "MAX_POINTS", 5)
    known = append(files, run(5.0, range(8)))
    assert (known.points, known.dropped) == (5, 3)
    assert known.why == "a job's metrics may have 5 points; report fewer steps"
    monkeypatch.setattr(metric_files, "MAX_METRICS", 1)
    monkeypatch.setattr(metric_files, "MAX_POINTS", 100)
    known = append(files, lines({"names": ["loss", "lr"]}, [9, 1.0, 2.0, 3.0]))
    assert (known.points, known.dropped, known.why) == (6, 4, "a job may have 1 metrics")


@pytest.mark.parametrize(
    "line",
    [b"x", b"[]", b'["1", 2, 3]', b"[-1, 2.0, 3.0]", b"[1e400, 2.0, 3.0]", b'{"names": 3}', b"{}", b"[" * 5000, b"3",
     b"[" + b"9" * 400 + b", 1, 1]", b"\xff\xfe", b"[1" + b", 1" * 40000 + b"]"],
)  # fmt: skip
def test_damaged_lines_are_counted_and_the_next_line_is_kept(files: MetricFiles, line: bytes) -> None:
    known = append(files, run(5.0, [1]) + line + b"\n" + lines({"names": ["loss"]}, [2, 3.0, 4.0]))
    assert known.dropped == 1
    assert files.series("lab", 7, known, "loss", 10).steps == [1, 2]


def test_names_that_are_no_names_are_left_out(files: MetricFiles) -> None:
    names = ["loss", "../x", "a" * 200, "", "=1+1", "train/loss"]
    known = append(files, lines({"run": 5.0}, {"names": names}, [1, 2.0, *range(6)]))
    assert [metric.name for metric in known.metrics] == ["loss", "train/loss"]
    assert known.dropped == 0
