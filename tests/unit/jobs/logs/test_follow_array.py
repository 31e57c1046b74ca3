"""The logs of an array are followed as its tasks write them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import NotFound
from headway.jobs.logs.follow_array import follow_array_logs
from headway.transport.process import CommandResult
from tests.support.clusters.builders import job, machine, question_of

HEAD = machine("lab-head")


def task(number: int, state: str, path: str = "") -> JobState:
    path = path or f"/home/alice/{number}.log"
    return replace(
        job(100 + number), user="alice", state=state, array_job_id=9, array_task=str(number), stdout=path, stderr=path
    )


class Files:
    """The head's files; each question is kept."""

    def __init__(self, **files: bytes) -> None:
        self.files = {f"/home/alice/{name.strip('_')}.log": data for name, data in files.items()}
        self.most = 0

    async def remote(self, _: Any, argv: Sequence[str], **options: Any) -> CommandResult:
        answers = []
        for one in question_of(options["input"])[0]["files"]:
            data = self.files.get(one["path"])
            if data is None:
                answers.append(json.dumps({"error": "", "missing": True}))
                continue
            part = data[one["offset"] : one["offset"] + one["limit"]]
            self.most = max(self.most, len(part))
            answers.append(
                json.dumps({"size": len(data), "offset": one["offset"], "b64": base64.b64encode(part).decode()})
            )
        return CommandResult((), 0, "\n".join(answers), "", 0.0)

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is streamed")


async def read(files: Files, *looks: Sequence[JobState], follow: bool = True) -> bytes:
    """`looks`: the tasks at each look, the last one from then on."""
    left = list(looks)

    async def now() -> Sequence[JobState]:
        return left.pop(0) if len(left) > 1 else left[0]

    return b"".join([piece async for piece in follow_array_logs(files, HEAD, now, follow=follow, poll_s=0)])


async def test_each_array_log_line_starts_with_its_task_number() -> None:
    files = Files(_1=b"one\ntwo\n", _2=b"three")
    assert await read(files, [task(1, "COMPLETED"), task(2, "FAILED")]) == b"[1] one\n[1] two\n[2] three\n"


async def test_array_follow_waits_for_complete_lines_of_running_tasks() -> None:
    files = Files(_1=b"half")
    looks = [task(1, "RUNNING")], [task(1, "COMPLETED"), task(2, "COMPLETED")]
    left = list(looks)

    async def now() -> Sequence[JobState]:
        found = left.pop(0) if len(left) > 1 else left[0]
        if found is looks[1]:
            files.files |= {"/home/alice/1.log": b"half and whole\n", "/home/alice/2.log": b"late\n"}
        return found

    said = [piece async for piece in follow_array_logs(files, HEAD, now, follow=True, poll_s=0)]
    assert b"".join(said) == b"[1] half and whole\n[2] late\n"


async def test_array_follow_prints_the_unfinished_last_line_of_an_ended_task() -> None:
    files = Files(_1=b"loss 0.5\nKilled", _2=b"x\n")
    first, second = task(1, "RUNNING"), task(2, "RUNNING")
    ended = replace(first, state="FAILED")
    said = await read(files, [first, second], [ended, second], [ended, replace(second, state="COMPLETED")])
    assert said == b"[1] loss 0.5\n[2] x\n[1] Killed\n"


async def test_array_follow_reads_a_requeued_task_again() -> None:
    files = Files(_1=b"first run\n", _2=b"x\n")
    ended, beside = task(1, "FAILED"), task(2, "RUNNING")
    looks = [[ended, beside], [replace(ended, state="RUNNING"), beside], [task(1, "COMPLETED"), task(2, "COMPLETED")]]

    async def now() -> Sequence[JobState]:
        found = looks.pop(0) if len(looks) > 1 else looks[0]
        if found[0].state == "RUNNING":
            files.files["/home/alice/1.log"] = b"anew\n"
        return found

    said = [piece async for piece in follow_array_logs(files, HEAD, now, follow=True, poll_s=0)]
    assert b"".join(said) == b"[1] first run\n[2] x\n[1] anew\n"


async def test_array_follow_refuses_tasks_without_a_readable_log() -> None:
    tasks = [task(number, "COMPLETED", "/dev/null") for number in (1, 2)]
    with pytest.raises(NotFound, match=r"has a log file \(its output goes to /dev/null\)"):
        await read(Files(), tasks)
    with pytest.raises(NotFound, match="has written a log") as caught:
        await read(Files(), [task(1, "COMPLETED")])
    assert "logs -f" not in caught.value.hint, "nothing comes any more"


async def test_array_follow_prints_the_pending_reason_once() -> None:
    waits = replace(task(1, "PENDING"), reason="Priority", array_task="1-5")
    files = Files(_1=b"x\n")
    said = b"--- pending (Priority): waits behind jobs of higher priority ---\n[1] x\n"
    assert await read(files, [waits], [waits], [task(1, "COMPLETED")]) == said


async def test_log_file_shared_by_tasks_is_read_once() -> None:
    tasks = [task(n, "COMPLETED", "/home/alice/all.log") for n in range(3)]
    assert await read(Files(all=b"x\n"), tasks) == b"x\n"


async def test_large_array_log_is_read_in_pieces() -> None:
    files = Files(_1=b"0123456789abcde\n" * 40_000)
    said = await read(files, [task(1, "COMPLETED")], follow=False)
    assert said.count(b"[1] 0123456789abcde\n") == 40_000
    assert files.most <= 128 * 1024


async def test_array_log_without_any_file_raises_not_found() -> None:
    with pytest.raises(NotFound, match="no task"):
        await read(Files(), [task(1, "COMPLETED")], follow=False)
