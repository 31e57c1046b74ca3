"""Jobs whose time on a node is over: which are requeued, which are let be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from headway.cluster.env import Env
from headway.cluster.sendaway import SendAway
from headway.domain.machine import Machine
from headway.machines.run import Ran
from tests import builders

LAB = builders.cluster(3, 0)
HEAD = builders.machine(LAB.head)
NODE = "lab-1-1"


class Controller:
    """Jobs in Slurm's words, all on one node; one that is PENDING, or gone, holds nothing of it."""

    def __init__(self, **words: str) -> None:
        self.words = {int(name.removeprefix("job")): word for name, word in words.items()}
        self.did: list[str] = []
        self.said: list[str] = []
        self.now = 1000.0
        self.ends_at = 1010.0  # until then a job that ends is completing

    async def remote(self, _: Machine, argv: Sequence[str], *, check: bool = True, **__: Any) -> Ran:
        if argv[0] == "squeue":
            there = [job for job, word in self.words.items() if word != "PENDING"]
            return Ran(tuple(argv), 0, "".join(f"{job} {NODE}\n" for job in there), "", 0.0)
        if "show" in argv:
            out = "".join(f"JobId={job} JobState={word} Reason=None\n" for job, word in self.words.items())
            return Ran(tuple(argv), 0, out, "", 0.0)
        assert argv[:2] == ["scontrol", "requeue"], argv
        self.did.append(" ".join(argv[1:]))
        self.words[int(argv[2])] = "PENDING"
        return Ran(tuple(argv), 0, "", "", 0.0)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.ends_at:
            self.words = {job: word for job, word in self.words.items() if word != "COMPLETING"}

    async def say(self, step: str, text: str, **_: Any) -> None:
        self.said.append(f"{step}: {text}")

    def away(self) -> SendAway:
        env = Env(cast(Any, None), cast(Any, None), cast(Any, self), Path("/nowhere"))
        return SendAway(LAB, env, self.say, HEAD, "its node leaves", lambda: self.now, self.sleep)


async def test_what_has_ended_while_its_epilog_runs_is_waited_for_and_not_run_again() -> None:
    slurm = Controller(job7="COMPLETING", job8="RUNNING", job9="SUSPENDED")
    await slurm.away().now({NODE: (7, 8, 9)})
    assert slurm.did == ["requeue 8", "requeue 9"]
    assert slurm.now == slurm.ends_at


async def test_what_was_requeued_since_the_look_is_let_be() -> None:
    slurm = Controller(job7="PENDING")
    await slurm.away().now({NODE: (7,)})
    assert slurm.did == []
    assert slurm.now == 1000.0
