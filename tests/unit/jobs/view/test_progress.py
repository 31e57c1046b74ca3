"""Step, loss and checkpoints are read from logs and reports, thinned, and merged over restarts."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.jobs.view.curve import MAX_POINTS
from headway.jobs.view.progress import (
    FIRST_READ_BYTES,
    MAX_ENDED_JOBS,
    READ_BYTES,
    JobProgress,
    ProgressReader,
    jobs_to_read,
)
from headway.transport.process import CommandResult
from headway.transport.program_io import MAX_OUTPUT
from tests.support.clusters.builders import job, machine, question_of


def of(*pieces: bytes) -> JobProgress:
    progress = JobProgress()
    for piece in pieces:
        progress.add_log(piece)
    return progress


@pytest.mark.parametrize(
    ("line", "step", "loss"),
    [
        (b"step 120 loss 1.873", 120, 1.873),
        (b"[rank0] 12:01 step=7 lr=1e-4 loss=2.5e-1 tok/s=900", 7, 0.25),
        (b"Step: 3 | Loss: 4", 3, 4.0),
        (b"10%|#  | \rstep 9 loss .5", 9, 0.5),
    ],
)
def test_step_and_loss_are_parsed_from_common_log_lines(line: bytes, step: int, loss: float) -> None:
    found = of(line + b"\n")
    assert (found.seen, found.step, found.loss) == (True, step, loss)


@pytest.mark.parametrize(
    "line", [b"steps 12 losses 3", b"step loss", b"misstep 1 gloss 2", b"the loss of 3 nodes", b"step 3 loss x"]
)
def test_other_lines_are_not_taken_for_progress(line: bytes) -> None:
    assert not of(line + b"\n").seen


@pytest.mark.parametrize("word", [b"step1 ", b"step 1 loss ", b"loss1", b"step 1 loss 1" + b"1" * 4000 + b"x", b"\r"])
def test_log_parsing_takes_linear_time(word: bytes) -> None:
    """Each of the first took seconds to minutes a MiB, in which nobody else was answered."""
    line = (word * 4096)[:4096]
    began = time.process_time()
    of(*[line + b"\n"] * 1024)
    assert time.process_time() - began < 10


def test_only_complete_lines_count() -> None:
    assert not of(b"step 1 loss 1.8").seen
    assert of(b"step 1 lo", b"ss 1.8", b"73\n").loss == 1.873


@given(st.integers(1, 3000), st.integers(1, 97))
def test_loss_series_is_thinned_evenly_and_ends_with_the_last_step(steps: int, cut: int) -> None:
    text = b"".join(b"step %d loss %d.0\n" % (i, steps - i) for i in range(steps))
    found = of(*(text[i : i + cut * 11] for i in range(0, len(text), cut * 11)))
    series = found.series
    assert len(series) <= MAX_POINTS
    assert series[0][0] == 0
    assert series[-1] == (steps - 1, 1.0)
    gaps = {b[0] - a[0] for a, b in pairwise(series[:-1])}
    assert len(gaps) <= 1


def test_restart_replaces_the_repeated_steps_in_the_series() -> None:
    found = of(b"".join(b"step %d loss %d\n" % (i, 9 - i) for i in range(6)))
    found.start_new_log()
    found.add_log(b"step 3 loss 5.5\nstep 4 loss 5.2\n")
    assert found.series == [(0, 9), (1, 8), (2, 7), (3, 5.5), (4, 5.2)]


def test_nan_loss_is_reported_but_kept_out_of_the_series() -> None:
    found = of(b"step 1 loss 2\nstep 2 loss nan\n")
    assert found.step == 2
    assert found.loss != found.loss
    assert found.series[0] == (1, 2.0)


def test_reports_are_json_lines_and_invalid_ones_are_ignored() -> None:
    found = JobProgress()
    found.add_reports(b'{"t": 1, "step": 1, "loss": 3.5}\n{"step": "x"}\nnonsense\n[]\n{"step": 3, "loss": 2.5, "tok')
    assert (found.step, found.tokens_per_s) == (1, None)
    found.add_reports(b'ens_per_s": 900.5}\n{"step": 4, "loss": "nan"}\n')
    assert found.series[:2] == [(1, 3.5), (3, 2.5)]
    assert (found.step, found.loss != found.loss) == (4, True)


def test_further_numbers_of_the_newest_report_are_kept_under_their_names() -> None:
    found = JobProgress()
    found.add_reports(
        b'{"t": 1, "step": 1, "lr": 0.1, "mfu": 0.25, "run_began": 1, "note": "x", "a b": 2, "big": 1e400}\n'
    )
    assert found.more == {"lr": 0.1, "mfu": 0.25}
    found.add_reports(b'{"t": 2, "step": 2, "grad_norm": 1, "ok": 1}\n')
    assert found.more == {"grad_norm": 1.0, "ok": 1.0}
    found.add_reports(json.dumps({f"x{n}": n for n in range(40)}).encode() + b"\n")
    assert len(found.more) == 16


def test_reports_without_loss_still_update_step_and_course() -> None:
    found = JobProgress()
    lines = [
        {"t": 1, "step": 1, "loss": 9}, {"t": 11, "step": 2, "tokens_per_s": 7.5}, {"t": 21, "step": 2, "lr": 0.1},
        {"t": 31, "step": 3, "loss": 8}, {"t": 41, "checkpoints": 1, "checkpoints_s": 2.0}, {"t": 51, "step": 4, "loss": "nan"},
        {"t": 61, "step": 2}, {"t": 71, "step": 5, "tokens_per_s": 9.5},
    ]  # fmt: skip
    found.add_reports(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert (found.step, found.at, found.tokens_per_s, found.stalls.count) == (5, 71, 9.5, 1)
    assert (found.effective_time.restarts, found.effective_time.up_s) == (1, 60)
    assert found.series == [(1, 9)], "a point has the step of its loss; what came after step 2 is done again"


async def test_loss_is_read_from_the_log_if_reports_have_only_steps() -> None:
    head = Head({"9": b'{"t": 1, "step": 5}\n', "/work/a.log": b"step 4 loss 2.5\n"})
    reader = ProgressReader(head, machine("lab-head"))  # type: ignore[arg-type]
    running = job(9, stdout="/work/a.log", start_time=1)
    await reader.read_jobs([running])
    known = reader.progress_of(9)
    assert known is not None
    assert (known.step, known.loss) == (4, 2.5)
    head.files["9"] += b'{"t": 2, "step": 6, "loss": 2.25}\n'
    await reader.read_jobs([running])
    known = reader.progress_of(9)
    assert known is not None
    assert (known.step, known.loss) == (6, 2.25)


def test_jobs_to_read_includes_recently_ended_jobs_up_to_a_limit() -> None:
    """As they end they say them, and short jobs say all of it between two looks."""
    runs, waits = job(1, start_time=1), job(2, "PENDING")
    ended = [job(number, "COMPLETED", start_time=1, end_time=1000 - number) for number in range(3, 2 * MAX_ENDED_JOBS)]
    long_ago = job(9, "FAILED", start_time=1, end_time=800)
    never = job(10, "CANCELLED", start_time=0, end_time=1000)
    assert jobs_to_read([runs, waits, long_ago, never, ended[0]], 1000) == (runs, ended[0])
    found = jobs_to_read(ended, 1000)
    assert [one.id for one in found] == list(range(3, 121))
    assert len(jobs_to_read([replace(one, end_time=1000) for one in ended], 1000)) == MAX_ENDED_JOBS


def test_checkpoints_are_counted_over_restarts() -> None:
    found = JobProgress()
    lines = [
        {"t": 1, "step": 0, "loss": 9}, {"t": 101, "step": 10, "loss": 8, "checkpoints": 2, "checkpoints_s": 6.0},
        {"t": 201, "step": 20, "loss": 7, "checkpoints": 4, "checkpoints_s": 14.0},
        {"t": 301, "step": 5, "loss": 8, "checkpoints": 1, "checkpoints_s": 5.0},  # started again: counts from 0
    ]  # fmt: skip
    found.add_reports(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert (found.stalls.count, found.stalls.stalled_s) == (5, 19.0)
    assert found.effective_time.up_s == 200  # the hundred seconds between the runs are none of its


def reports(*lines: dict[str, float]) -> bytes:
    return b"".join(json.dumps({"loss": 1.0, **line}).encode() + b"\n" for line in lines)


def test_changed_run_began_counts_as_a_restart() -> None:
    """It saved on the warning, waited five minutes for its nodes, and said nothing until it had saved more often than before."""
    found = JobProgress()
    found.add_reports(
        reports(
            {"t": 1000, "step": 0, "run_began": 990.5},
            {"t": 1100, "step": 10, "run_began": 990.5, "checkpoints": 2, "checkpoints_s": 6.0},
            {"t": 1400, "step": 11, "run_began": 1390.5},
            {"t": 1500, "step": 21, "run_began": 1390.5, "checkpoints": 3, "checkpoints_s": 9.0},
            {"t": 1510, "step": 22, "run_began": 990.5},  # of a process that was there before: nothing began
        )
    )
    assert (found.effective_time.restarts, found.effective_time.lost_s, found.effective_time.down_s) == (1, 0.0, 300.0)
    assert (found.effective_time.up_s, found.effective_time.losses) == (210.0, [(1100.0, 0.0)])
    assert (found.stalls.count, found.stalls.stalled_s) == (5, 15.0)


def test_reports_read_again_are_counted_once() -> None:
    """The head thins the file of a long training: its reader begins anew."""
    lines = [{"t": at, "step": at, "checkpoints": at // 10, "checkpoints_s": at / 10} for at in range(10, 100)]
    found = JobProgress()
    found.add_reports(reports(*lines))
    found.start_new_log()
    found.add_reports(reports(*lines[::2]))
    assert (found.stalls.count, round(found.stalls.stalled_s, 1)) == (9, 9.9)
    assert found.effective_time.restarts == 0


class Head:
    """Files of the test, read as node/user_helper reads them; reports under their job's number."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[dict[str, Any]] = []
        self.most: list[int] = []  # bytes that each question may be answered with

    async def remote(self, machine: Any, argv: Sequence[str], **options: Any) -> CommandResult:
        ask, _ = question_of(options["input"])
        assert ask["do"] == "read"
        lines = []
        self.most.append(sum(one["limit"] for one in [*ask["files"], *ask["reports"]]))
        for one in [*ask["files"], *ask["reports"]]:
            self.asked.append(one)
            data = self.files.get(one["path"] if "path" in one else str(one["job"]))
            if data is None:
                lines.append({"error": "", "missing": True})
                continue
            start = max(0, len(data) + one["offset"]) if one["offset"] < 0 else one["offset"]
            part = data[start : start + one["limit"]]
            lines.append({"size": len(data), "offset": start, "b64": base64.b64encode(part).decode()})
        return CommandResult((), 0, "\n".join(json.dumps(line) for line in lines), "", 0.0)

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("not followed")


async def test_reader_continues_at_its_offset_and_restarts_a_truncated_log() -> None:
    one = replace(job(7), user="alice", stdout="/home/alice/a.out", start_time=1)
    head = Head({})
    reader = ProgressReader(head, machine("lab-head"))
    await reader.read_jobs([one])
    assert reader.progress_of(7) is None
    head.files["/home/alice/a.out"] = b"step 1 loss 3\n"
    await reader.read_jobs([one])
    await reader.read_jobs([one])
    head.files["/home/alice/a.out"] += b"step 2 loss 2\n"
    await reader.read_jobs([one])
    asked = [a for a in head.asked if "path" in a]
    assert [(a["offset"], a["limit"]) for a in asked] == [
        (-FIRST_READ_BYTES, FIRST_READ_BYTES),
        (-FIRST_READ_BYTES, FIRST_READ_BYTES),
        (14, READ_BYTES),
        (14, READ_BYTES),
    ]
    assert {a["user"] for a in asked} == {"alice"}
    known = reader.progress_of(7)
    assert known is not None
    assert known.series == [(1, 3.0), (2, 2.0)]
    head.files["/home/alice/a.out"] = b"step 2 loss 1\n"
    await reader.read_jobs([one])
    await reader.read_jobs([one])
    assert known.series == [(1, 3.0), (2, 1.0)]
    await reader.read_jobs([])
    assert reader.progress_of(7) is None, "jobs that are over are forgotten"


async def test_reader_stops_reading_the_log_of_a_job_that_reports() -> None:
    one = replace(job(7), user="alice", stdout="/home/alice/a.out", start_time=1)
    quiet = replace(job(8), user="bob", stdout="/dev/null", start_time=1)
    head = Head({"/home/alice/a.out": b"step 1 loss 9\n"})
    reader = ProgressReader(head, machine("lab-head"))
    await reader.read_jobs([one, quiet])
    assert (reader.progress_of(7) or JobProgress()).loss == 9
    head.files["7"] = b'{"t": 1, "step": 5, "loss": 2.0, "tokens_per_s": 10}\n'
    head.files["8"] = b'{"t": 1, "step": 1, "loss": 4.0}\n'
    await reader.read_jobs([one, quiet])
    known = reader.progress_of(7)
    assert known is not None
    assert (known.step, known.loss, known.tokens_per_s) == (5, 2.0, 10)
    assert (reader.progress_of(8) or JobProgress()).loss == 4.0
    head.asked.clear()
    await reader.read_jobs([one, quiet])
    assert [a.get("path") for a in head.asked if a.get("user") == "alice"] == []
    head.files["7"] = b'{"t": 2, "step": 3, "loss": 2.5}\n'  # thinned: shorter than what was read
    await reader.read_jobs([one, quiet])
    await reader.read_jobs([one, quiet])
    assert reader.progress_of(7).step == 3  # type: ignore[union-attr]


async def test_reader_batches_requests_below_the_output_limit() -> None:
    """What is over the bound of an answer is dropped without a word, in the middle of a line."""
    paths = [f"/home/alice/{'d' * 200}/{'ü' * 200}/{n}.out" for n in range(1, 121)]
    many = [replace(job(n), user="alice", stdout=path, start_time=1) for n, path in enumerate(paths, 1)]
    head = Head(dict.fromkeys(paths, b"step 1 loss 3\n"))
    reader = ProgressReader(head, machine("lab-head"))
    for _ in range(2):
        await reader.read_jobs(many)
    assert all(reader.progress_of(n) for n in range(1, 121))
    assert max(head.most) * 4 / 3 < MAX_OUTPUT
    assert len(head.asked) == 2 * 2 * 120


@pytest.mark.parametrize(
    "values",
    [
        {"checkpoints": 1e20, "checkpoints_s": 1}, {"checkpoints": 2**31, "checkpoints_s": 1},
        {"checkpoints": -1, "checkpoints_s": 1}, {"checkpoints": 3, "checkpoints_s": -1},
        {"checkpoints": 3, "checkpoints_s": 1e300}, {"checkpoints": 3, "checkpoints_s": "nan"},
        {"checkpoints": 3, "checkpoints_s": "inf"}, {"step": 1e300}, {"step": -5},
    ],
)  # fmt: skip
def test_impossible_report_values_are_ignored(values: dict[str, Any]) -> None:
    """No database holds them: the ledger of all jobs would stand still for one."""
    found = JobProgress()
    found.add_reports(reports({"t": 1, "step": 1, "checkpoints": 2, "checkpoints_s": 5.0}, {"t": 2, **values}))
    assert (found.step, found.stalls.count, found.stalls.stalled_s) == (1, 2, 5.0)


@pytest.mark.parametrize("at", ["nan", "inf", -1])
def test_report_with_an_invalid_time_does_not_change_the_course(at: Any) -> None:
    found = JobProgress()
    found.add_reports(reports({"t": 5, "step": 1}, {"t": at, "step": 2}, {"t": 8, "step": 3}))
    assert (found.step, found.effective_time.last_report_at, found.effective_time.up_s) == (3, 8.0, 3.0)


def test_checkpoint_totals_over_many_runs_are_capped() -> None:
    """Each run may say the most there is."""
    found = JobProgress()
    lines = [
        {"t": at, "step": 1, "checkpoints": (2**31 - 1) * (at % 2), "checkpoints_s": 2e9 * (at % 2)}
        for at in range(1, 8)
    ]
    found.add_reports(reports(*lines))
    assert (found.stalls.count, found.stalls.stalled_s) == (2**31 - 1, 2.0**31 - 1)


@pytest.mark.parametrize(
    ("flag", "says"),
    [("torch_without_cuda", "built without CUDA"), ("torch_cuda_too_new", "built for a newer CUDA than the driver")],
)
def test_found_pytorch_that_can_not_use_its_gpus_is_kept_without_becoming_a_step(flag: str, says: str) -> None:
    progress = JobProgress()
    progress.add_reports(f'{{"{flag}": 1, "t": 5.0}}\n'.encode())
    assert (says in progress.torch_warning, progress.seen) == (True, False)
    progress.add_reports(b'{"step": 3, "loss": 1.5, "t": 6.0}\n')
    assert (says in progress.torch_warning, progress.step) == (True, 3)
    assert progress.more == {}
