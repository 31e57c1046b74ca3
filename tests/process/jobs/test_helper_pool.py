"""Helper processes on the head submit jobs for users; a submission has a defined outcome when a helper dies, and the
pool limits their number."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headway.errors import Refused, Unanswered
from headway.jobs.remote.helper_pool import HELPER_IDLE_S, MAX_HELPERS_PER_USER, HelperPool
from headway.jobs.remote.user_helper import call_helper, helper_argv
from headway.jobs.submission.submit import run_sbatch
from headway.schemas.submission.submit_request import SubmitIn
from headway.transport.process import CommandResult
from headway.transport.program_io import StreamSplitter
from tests.support.clusters.builders import Clock
from tests.support.machines.local_head import HEAD, PERSON, Machine, head_here
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")

SCRIPT = "#!/bin/bash\necho ä\n"


@pytest.fixture
def head(tmp_path: Path) -> Machine:
    return head_here(tmp_path)


@pytest.fixture
async def warm(head: Machine) -> AsyncIterator[HelperPool]:
    links = HelperPool(head)
    yield links
    await links.close()


def held(mood: str = "") -> SubmitIn:
    return SubmitIn(script=SCRIPT, script_name="train.sbatch", env={"MOOD": mood})


async def test_one_helper_submits_successive_jobs_as_the_user(warm: HelperPool, head: Machine) -> None:
    found = [(await run_sbatch(warm, HEAD, held(), PERSON)).job_id for _ in range(3)]
    assert found == [1, 2, 3]
    assert head.lines("submitted") == [f"{pwd.getpwnam('nobody').pw_uid} train.sbatch"] * 3
    assert (head.folder / "script").read_text() == SCRIPT
    assert (len(head.held), head.fresh) == (1, 0)


async def test_helper_removes_sbatch_wait_from_the_environment(tmp_path: Path) -> None:
    """Else the request would be cut off, and nobody could say whether there is a job."""
    head = head_here(tmp_path, "#!/bin/sh\necho .$SBATCH_WAIT >{folder}/waits\necho Submitted batch job 1\n")
    await run_sbatch(head, HEAD, SubmitIn(script=SCRIPT, env={"SBATCH_WAIT": "1"}), PERSON)
    assert head.lines("waits") == ["."]


async def test_session_limits_are_applied_once_per_helper(warm: HelperPool, head: Machine) -> None:
    await run_sbatch(warm, HEAD, held(), PERSON)
    await run_sbatch(warm, HEAD, held(), PERSON)
    assert head.lines("limits") == ["limited"]
    await call_helper(head, HEAD, {"do": "exec", "user": PERSON, "argv": ["true"], "cwd": ""}, timeout_s=20)
    assert head.lines("limits") == ["limited"] * 2


async def test_search_follow_and_tunnel_apply_session_limits(head: Machine) -> None:
    (head.folder / "log").write_text("here\n")
    search = {"do": "search", "user": PERSON, "path": str(head.folder / "log"), "text": "here", "most": 1}
    assert json.loads((await call_helper(head, HEAD, search, timeout_s=20)).stdout)["found"]
    assert head.lines("limits") == ["limited"]
    for number, ask in enumerate(({"do": "follow", "offset": 0}, {"do": "tunnel"}), 2):
        held = await head.hold(HEAD, helper_argv({**ask, "user": PERSON, "path": str(head.folder / "log")}))
        await eventually(lambda number=number: len(head.lines("limits")) >= number)
        await held.close()


async def test_helper_returns_the_error_message_of_sbatch(warm: HelperPool) -> None:
    with pytest.raises(Refused, match="no such thing"):
        await run_sbatch(warm, HEAD, held("sour"), PERSON)
    assert (await run_sbatch(warm, HEAD, held(), PERSON)).job_id == 2


async def test_helper_killed_during_submission_causes_no_second_job(warm: HelperPool, head: Machine) -> None:
    sending = asyncio.create_task(run_sbatch(warm, HEAD, held("slow"), PERSON))
    await head.until("began")
    os.kill(head.held[0].pid, signal.SIGKILL)
    with pytest.raises(Unanswered, match="did not report whether the job is submitted") as error:
        await sending
    assert "headway queue" in error.value.hint
    assert (len(head.lines("submitted")), len(head.held), head.fresh) == (1, 1, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(head.held[0].pid, signal.SIGKILL)  # what slept
    assert (await run_sbatch(warm, HEAD, held(), PERSON)).job_id == 2  # with a new one
    assert len(head.held) == 2


async def test_submission_falls_back_if_the_helper_dies_before_it_begins(warm: HelperPool, head: Machine) -> None:
    await run_sbatch(warm, HEAD, held(), PERSON)
    os.kill(head.held[0].pid, signal.SIGSTOP)  # it lives, as far as anybody knows here
    sending = asyncio.create_task(run_sbatch(warm, HEAD, held(), PERSON))
    await asyncio.sleep(0)
    os.kill(head.held[0].pid, signal.SIGKILL)
    assert (await sending).job_id == 2
    assert (len(head.lines("submitted")), head.fresh) == (2, 1)


@pytest.mark.parametrize("said", [[], [b"begun\n"]])
async def test_broken_helper_connection_leaves_the_outcome_unknown(said: list[bytes]) -> None:
    head = Counting(answer=b"")
    sending = asyncio.create_task(run_sbatch(HelperPool(head), HEAD, held(), PERSON))
    await eventually(lambda: head.made)
    for piece in (*said, b""):
        head.made[0].says.put_nowait(piece)
    with pytest.raises(Unanswered, match="did not report whether the job is submitted"):
        await sending
    assert head.fresh == 0


async def test_submission_repeated_with_the_same_tag_creates_one_job(warm: HelperPool, head: Machine) -> None:
    first = await run_sbatch(warm, HEAD, held(), PERSON, tag="a")
    assert [(await run_sbatch(links, HEAD, held(), PERSON, tag="a")) for links in (warm, HelperPool(head))] == [
        first,
        first,
    ]
    assert (await run_sbatch(warm, HEAD, held(), PERSON, tag="b")).job_id == 2
    with pytest.raises(Refused, match="no such thing"):
        await run_sbatch(warm, HEAD, held("sour"), PERSON, tag="c")
    assert (await run_sbatch(warm, HEAD, held(), PERSON, tag="c")).job_id == 4  # there is no job of the refused one
    assert len(head.lines("submitted")) == 4


async def test_sbatch_option_error_is_returned_on_every_retry(tmp_path: Path) -> None:
    """It ends with 255 then, which is no signal; the same submission sent again is asked anew, not "cut off"."""
    said = "sbatch: unrecognized option '--container-image=x'"
    head = head_here(tmp_path, f'#!/bin/sh\necho "{said}" >&2\nexit 255\n')
    warm = HelperPool(head)
    for links in (warm, head, head):
        with pytest.raises(Refused, match="unrecognized option"):
            await run_sbatch(links, HEAD, held(), PERSON, tag="a")
    await warm.close()


async def test_error_names_the_signal_that_ended_sbatch(tmp_path: Path) -> None:
    head = head_here(tmp_path, "#!/bin/sh\nkill -9 $$\n")
    warm = HelperPool(head)
    for links in (warm, head):
        with pytest.raises(Unanswered, match="ended by signal 9"):
            await run_sbatch(links, HEAD, held(), PERSON)
    await warm.close()


async def test_second_submission_with_a_tag_waits_for_the_first(head: Machine) -> None:
    """The server that sent the first was killed; another one asks again. What a signal ended may have been submitted."""
    sending = asyncio.create_task(run_sbatch(HelperPool(head), HEAD, held("slow"), PERSON, tag="a"))
    await head.until("began")
    second = asyncio.create_task(run_sbatch(HelperPool(head), HEAD, held(), PERSON, tag="a"))
    os.kill(int(head.lines("began")[0]), signal.SIGKILL)
    with pytest.raises(Unanswered):
        await sending
    with pytest.raises(Unanswered, match="an earlier try of this request was interrupted"):
        await second
    assert len(head.lines("submitted")) == 1


async def test_interrupted_tagged_submission_is_not_repeated(warm: HelperPool, head: Machine) -> None:
    sending = asyncio.create_task(run_sbatch(warm, HEAD, held("slow"), PERSON, tag="a"))
    await head.until("began")
    os.killpg(head.held[0].pid, signal.SIGKILL)  # the machine, say
    with pytest.raises(Unanswered):
        await sending
    with pytest.raises(Unanswered, match="an earlier try of this request was interrupted"):
        await run_sbatch(warm, HEAD, held(), PERSON, tag="a")
    assert len(head.lines("submitted")) == 1


async def test_helper_killed_between_submissions_is_replaced(warm: HelperPool, head: Machine) -> None:
    await run_sbatch(warm, HEAD, held(), PERSON)
    os.kill(head.held[0].pid, signal.SIGKILL)
    await head.held[0].wait()
    assert (await run_sbatch(warm, HEAD, held(), PERSON)).job_id == 2
    assert (len(head.held), head.fresh) == (2, 0)


async def test_cancelled_submission_ends_its_helper(warm: HelperPool, head: Machine) -> None:
    sending = asyncio.create_task(run_sbatch(warm, HEAD, held("slow"), PERSON))
    await head.until("began")
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert head.held[0].returncode is not None
    assert (await run_sbatch(warm, HEAD, held(), PERSON)).job_id == 2  # not the answer of the one before


async def test_background_output_of_a_submission_does_not_block_the_helper(warm: HelperPool) -> None:
    """A profile may have started something that holds sbatch's output, and writes."""
    async with asyncio.timeout(60):
        with contextlib.suppress(Refused):  # the number may drown in it
            await run_sbatch(warm, HEAD, held("loud"), PERSON)
        await run_sbatch(warm, HEAD, held(), PERSON)


async def test_helper_pool_refuses_an_unknown_user(warm: HelperPool, head: Machine) -> None:
    with pytest.raises(Exception, match="there is no user eve on lab-head"):
        await run_sbatch(warm, HEAD, held(), "eve")
    assert head.fresh == 1


async def test_helper_of_a_user_refuses_other_users_and_requests(head: Machine) -> None:
    process = await head.hold(HEAD, helper_argv({"do": "serve", "user": PERSON}))
    try:
        assert await process.read() == b"ready\n"
        for ask in (
            {"do": "sbatch", "user": "bob", "has_script": False, "args": [], "cwd": ""},
            {"do": "exec", "user": PERSON, "argv": ["id"], "cwd": ""},
            {"do": "read", "files": [], "reports": []},
        ):
            await process.write(json.dumps({"ask": ask, "size": 0}).encode() + b"\n")
            answers = StreamSplitter(process.read)
            assert await answers.line() == b"begun"
            document = json.loads(await answers.line() or b"")
            assert (document["code"], document["out"]) == (97, 0)
            await answers.exactly(document["err"])
    finally:
        await process.close()


async def test_helper_exits_when_its_connection_closes(head: Machine) -> None:
    process = await head.hold(HEAD, helper_argv({"do": "serve", "user": ""}))
    assert await process.read() == b"ready\n"
    assert process.process.stdin is not None
    process.process.stdin.close()
    async with asyncio.timeout(60):
        assert await process.process.wait() == 0


async def test_log_read_uses_a_helper_and_is_retried_if_it_dies(warm: HelperPool, head: Machine) -> None:
    log = head.folder / "log"
    log.write_bytes(b"x" * 300_000)
    ask = {"do": "read", "files": [{"user": PERSON, "path": str(log), "offset": 0, "limit": 1 << 20}]}
    ran = await call_helper(warm, HEAD, ask, timeout_s=20)
    assert json.loads(ran.stdout)["size"] == 300_000
    assert (len(head.held), head.fresh) == (1, 0)
    os.kill(head.held[0].pid, signal.SIGSTOP)
    reading = asyncio.create_task(call_helper(warm, HEAD, ask, timeout_s=20))
    await asyncio.sleep(0)
    os.kill(head.held[0].pid, signal.SIGKILL)
    assert json.loads((await reading).stdout)["size"] == 300_000


# ---- how many there are


@dataclass(eq=False)
class Obedient:
    """Says what it is told to say, when it is."""

    says: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    asked: list[bytes] = field(default_factory=list)
    over: bool = False
    closed: bool = False

    async def write(self, data: bytes) -> None:
        self.asked.append(data)

    async def read(self) -> bytes:
        return await self.says.get()

    async def ended(self) -> bool:
        return False  # its connection broke

    async def close(self) -> None:
        self.closed = self.over = True


class Counting(Machine):
    def __init__(self, answer: bytes = b'{"code": 0, "out": 2, "err": 0}\n7\n') -> None:
        super().__init__(Path("/nonexistent"))
        self.made: list[Obedient] = []
        self.answer = answer

    async def hold(self, machine: Any, argv: Sequence[str]) -> Any:
        one = Obedient()
        one.says.put_nowait(b"ready\n")
        if self.answer:
            one.says.put_nowait(self.answer)
        self.made.append(one)
        return one

    async def remote(self, machine: Any, argv: Sequence[str], **options: Any) -> CommandResult:
        self.fresh += 1
        return CommandResult(tuple(argv), 0, "8\n", "", 0.0, b"8\n")


async def test_helper_answer_may_arrive_in_any_pieces() -> None:
    head = Counting(answer=b"")
    warm = HelperPool(head)
    sending = asyncio.create_task(run_sbatch(warm, HEAD, held(), PERSON))
    await eventually(lambda: head.made)
    for byte in b'{"code": 0, "out": 2, "err": 3}\n7\nerr':
        head.made[0].says.put_nowait(bytes([byte]))
    assert (await sending).message == "7\nerr"


async def test_pool_limits_helpers_per_user_and_then_starts_fresh_programs() -> None:
    head = Counting(answer=b"")
    warm = HelperPool(head)
    waiting = [asyncio.create_task(run_sbatch(warm, HEAD, held(), PERSON)) for _ in range(MAX_HELPERS_PER_USER)]
    await eventually(lambda: len(head.made) >= MAX_HELPERS_PER_USER and all(one.asked for one in head.made))
    assert (await run_sbatch(warm, HEAD, held(), PERSON)).job_id == 8
    assert (len(head.made), head.fresh) == (MAX_HELPERS_PER_USER, 1)
    for one in head.made:
        one.says.put_nowait(b'{"code": 0, "out": 2, "err": 0}\n7\n')
    assert [(await one).job_id for one in waiting] == [7] * MAX_HELPERS_PER_USER


async def test_pool_closes_idle_helpers() -> None:
    head, clock = Counting(), Clock()
    warm = HelperPool(head, clock=clock)
    await run_sbatch(warm, HEAD, held(), PERSON)
    assert (warm.has_idle_helper(PERSON), warm.has_idle_helper("bob")) == (True, False)
    clock.now += HELPER_IDLE_S + 1
    assert not warm.has_idle_helper(PERSON)
    await run_sbatch(warm, HEAD, held(), PERSON)
    assert [one.closed for one in head.made] == [True, False]


async def test_pool_limits_the_total_number_of_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.jobs.remote.helper_pool.MAX_HELPERS", 2)
    head = Counting()
    warm = HelperPool(head)
    for user in ("ann", "bob", "cyd"):
        await run_sbatch(warm, HEAD, held(), user)
    assert [one.closed for one in head.made] == [True, False, False]
