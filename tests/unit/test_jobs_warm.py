"""Helpers that stay on the head: node/as_person itself as `serve`, and what becomes of a submission when one dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headway.errors import Refused, Unanswered
from headway.jobs.remote import call, command
from headway.jobs.submit import submit
from headway.jobs.warm import KEPT_S, MOST_EACH, Warm
from headway.machines.program import program
from headway.machines.run import Ran
from headway.wire.work import SubmitIn
from tests.builders import Clock, machine, open_to_all

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes somebody else")

HEAD = machine("lab-head")
SCRIPT = "#!/bin/bash\necho ä\n"
PERSON = "alice"  # on this machine: nobody
SBATCH = """\
#!/bin/sh
cd {folder} || exit 9
for word; do last=$word; done
echo "$(id -u) $(basename "$last")" >>submitted
cat "$last" >script
case "$MOOD" in
slow) echo here >began; exec sleep 60;;
sour) echo "sbatch: error: no such thing" >&2; exit 3;;
loud) yes & ;;
esac
echo "Submitted batch job $(wc -l <submitted)"
"""


@dataclass
class Machine:
    """A head that is this machine: programs are real, except for sbatch, and `alice` is nobody."""

    folder: Path
    held: list[asyncio.subprocess.Process] = field(default_factory=list)
    fresh: int = 0

    def argv(self, argv: Sequence[str]) -> list[str]:
        nobody = pwd.getpwnam("nobody")
        entry = (PERSON, "x", nobody.pw_uid, nobody.pw_gid, "", str(self.folder), "/bin/bash")
        code = f"""
import pwd
exec({program("as_person")!r}, {{"__name__": "p"}})
from as_person import __main__, identity, login
people = {{{PERSON!r}: pwd.struct_passwd({entry!r})}}
def person(name):
    return people[name] if name in people else identity.refuse(f"there is no user {{name}} on lab-head")
def quietly(*_):
    open({str(self.folder / "limits")!r}, "a").write("limited\\n")
identity.person, identity.quietly, identity.UNIFIED = person, quietly, "/nowhere"
login.login_environment = lambda entry: {{"PATH": {str(self.folder / "bin")!r} + ":/usr/bin:/bin"}}
__main__.main()
"""
        return [sys.executable, "-I", "-S", "-c", code, argv[-1]]

    async def hold(self, machine: Any, argv: Sequence[str]) -> Process:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self.argv(argv), stdin=pipe, stdout=pipe, start_new_session=True
        )
        self.held.append(process)
        return Process(process)

    async def remote(self, machine: Any, argv: Sequence[str], **options: Any) -> Ran:
        pipe = asyncio.subprocess.PIPE
        self.fresh += 1
        process = await asyncio.create_subprocess_exec(*self.argv(argv), stdin=pipe, stdout=pipe, stderr=pipe)
        out, err = await process.communicate(options.get("input"))
        return Ran(tuple(argv), process.returncode or 0, out.decode(), err.decode(), 0.0, out)

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is streamed")

    def converse(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nobody talks")

    def lines(self, name: str) -> list[str]:
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    async def until(self, name: str) -> None:
        """Until the stand-in for sbatch has written the file."""
        async with asyncio.timeout(20):
            while not self.lines(name):
                await asyncio.sleep(0.01)


@dataclass
class Process:
    process: asyncio.subprocess.Process

    @property
    def over(self) -> bool:
        assert self.process.stdout is not None
        return self.process.stdout.at_eof() or self.process.returncode is not None

    async def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self.process.stdin.write(data)
            await self.process.stdin.drain()

    async def read(self) -> bytes:
        assert self.process.stdout is not None
        return await self.process.stdout.read(65536)

    async def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()


@pytest.fixture
def head(tmp_path: Path) -> Machine:
    open_to_all(tmp_path)
    work = tmp_path / "home"
    (work / "bin").mkdir(parents=True)
    work.chmod(0o777)
    sbatch = work / "bin" / "sbatch"
    sbatch.write_text(SBATCH.format(folder=work))
    sbatch.chmod(0o755)
    return Machine(work)


@pytest.fixture
async def warm(head: Machine) -> AsyncIterator[Warm]:
    links = Warm(head)
    yield links
    await links.close()


def held(mood: str = "") -> SubmitIn:
    return SubmitIn(script=SCRIPT, script_name="train.sbatch", env={"MOOD": mood})


async def test_one_helper_submits_one_job_after_the_other_as_the_person(warm: Warm, head: Machine) -> None:
    found = [(await submit(warm, HEAD, held(), PERSON)).job_id for _ in range(3)]
    assert found == [1, 2, 3]
    assert head.lines("submitted") == [f"{pwd.getpwnam('nobody').pw_uid} train.sbatch"] * 3
    assert (head.folder / "script").read_text() == SCRIPT
    assert (len(head.held), head.fresh) == (1, 0)


async def test_the_limits_of_the_person_s_sessions_are_put_on_once_before_anything_is_theirs(
    warm: Warm, head: Machine
) -> None:
    await submit(warm, HEAD, held(), PERSON)
    await submit(warm, HEAD, held(), PERSON)
    assert head.lines("limits") == ["limited"]
    await call(head, HEAD, {"do": "exec", "user": PERSON, "argv": ["true"], "cwd": ""}, timeout_s=20)
    assert head.lines("limits") == ["limited"] * 2


async def test_sbatch_s_own_words_come_back(warm: Warm) -> None:
    with pytest.raises(Refused, match="no such thing"):
        await submit(warm, HEAD, held("sour"), PERSON)
    assert (await submit(warm, HEAD, held(), PERSON)).job_id == 2


async def test_a_helper_killed_under_a_submission_is_one_error_and_no_second_job(warm: Warm, head: Machine) -> None:
    sending = asyncio.create_task(submit(warm, HEAD, held("slow"), PERSON))
    await head.until("began")
    os.kill(head.held[0].pid, signal.SIGKILL)
    with pytest.raises(Unanswered, match="did not say whether the job is submitted") as said:
        await sending
    assert "headway queue" in said.value.hint
    assert (len(head.lines("submitted")), len(head.held), head.fresh) == (1, 1, 0)
    os.killpg(head.held[0].pid, signal.SIGKILL)  # what slept
    assert (await submit(warm, HEAD, held(), PERSON)).job_id == 2  # with a new one
    assert len(head.held) == 2


async def test_one_that_dies_between_submissions_is_not_noticed(warm: Warm, head: Machine) -> None:
    await submit(warm, HEAD, held(), PERSON)
    os.kill(head.held[0].pid, signal.SIGKILL)
    await head.held[0].wait()
    assert (await submit(warm, HEAD, held(), PERSON)).job_id == 2
    assert (len(head.held), head.fresh) == (2, 0)


async def test_a_submission_that_is_given_up_takes_its_helper_with_it(warm: Warm, head: Machine) -> None:
    sending = asyncio.create_task(submit(warm, HEAD, held("slow"), PERSON))
    await head.until("began")
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert head.held[0].returncode is not None
    assert (await submit(warm, HEAD, held(), PERSON)).job_id == 2  # not the answer of the one before


async def test_nobody_waits_for_what_a_submission_leaves_behind(warm: Warm) -> None:
    """A profile may have started something that holds sbatch's output, and writes."""
    async with asyncio.timeout(20):
        with contextlib.suppress(Refused):  # the number may drown in it
            await submit(warm, HEAD, held("loud"), PERSON)
        await submit(warm, HEAD, held(), PERSON)


async def test_people_who_are_not_there_are_refused_in_the_same_words(warm: Warm, head: Machine) -> None:
    with pytest.raises(Exception, match="there is no user eve on lab-head"):
        await submit(warm, HEAD, held(), "eve")
    assert head.fresh == 1


async def test_a_person_s_helper_does_nothing_for_anybody_else(head: Machine) -> None:
    process = await head.hold(HEAD, command({"do": "serve", "user": PERSON}))
    try:
        assert await process.read() == b"ready\n"
        for ask in (
            {"do": "sbatch", "user": "bob", "has_script": False, "args": [], "cwd": ""},
            {"do": "exec", "user": PERSON, "argv": ["id"], "cwd": ""},
            {"do": "read", "files": [], "reports": []},
        ):
            await process.write(json.dumps({"ask": ask, "size": 0}).encode() + b"\n")
            assert b'"code": 97' in await process.read()
    finally:
        await process.close()


async def test_it_ends_with_its_connection(head: Machine) -> None:
    process = await head.hold(HEAD, command({"do": "serve", "user": ""}))
    assert await process.read() == b"ready\n"
    assert process.process.stdin is not None
    process.process.stdin.close()
    async with asyncio.timeout(20):
        assert await process.process.wait() == 0


async def test_logs_are_read_by_a_helper_and_once_more_when_it_dies(warm: Warm, head: Machine) -> None:
    log = head.folder / "log"
    log.write_bytes(b"x" * 300_000)
    ask = {"do": "read", "files": [{"user": PERSON, "path": str(log), "offset": 0, "limit": 1 << 20}]}
    ran = await call(warm, HEAD, ask, timeout_s=20)
    assert json.loads(ran.stdout)["size"] == 300_000
    assert (len(head.held), head.fresh) == (1, 0)
    os.kill(head.held[0].pid, signal.SIGSTOP)
    reading = asyncio.create_task(call(warm, HEAD, ask, timeout_s=20))
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

    async def remote(self, machine: Any, argv: Sequence[str], **options: Any) -> Ran:
        self.fresh += 1
        return Ran(tuple(argv), 0, "8\n", "", 0.0, b"8\n")


async def test_an_answer_may_come_in_any_pieces() -> None:
    head = Counting(answer=b"")
    warm = Warm(head)
    sending = asyncio.create_task(submit(warm, HEAD, held(), PERSON))
    while not head.made:
        await asyncio.sleep(0)
    for byte in b'{"code": 0, "out": 2, "err": 3}\n7\nerr':
        head.made[0].says.put_nowait(bytes([byte]))
    assert (await sending).message == "7\nerr"


async def test_who_asks_for_many_at_once_gets_some_helpers_and_then_fresh_programs() -> None:
    head = Counting(answer=b"")
    warm = Warm(head)
    waiting = [asyncio.create_task(submit(warm, HEAD, held(), PERSON)) for _ in range(MOST_EACH)]
    while len(head.made) < MOST_EACH or not all(one.asked for one in head.made):
        await asyncio.sleep(0)
    assert (await submit(warm, HEAD, held(), PERSON)).job_id == 8
    assert (len(head.made), head.fresh) == (MOST_EACH, 1)
    for one in head.made:
        one.says.put_nowait(b'{"code": 0, "out": 2, "err": 0}\n7\n')
    assert [(await one).job_id for one in waiting] == [7] * MOST_EACH


async def test_a_helper_nobody_has_asked_for_long_is_let_go() -> None:
    head, clock = Counting(), Clock()
    warm = Warm(head, clock=clock)
    await submit(warm, HEAD, held(), PERSON)
    assert (warm.ready(PERSON), warm.ready("bob")) == (True, False)
    clock.now += KEPT_S + 1
    assert not warm.ready(PERSON)
    await submit(warm, HEAD, held(), PERSON)
    assert [one.closed for one in head.made] == [True, False]


async def test_the_head_holds_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.jobs.warm.MOST", 2)
    head = Counting()
    warm = Warm(head)
    for user in ("ann", "bob", "cyd"):
        await submit(warm, HEAD, held(), user)
    assert [one.closed for one in head.made] == [True, False, False]
