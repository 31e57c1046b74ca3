"""Runs scontrol on the head, and reads what it reports about the controller itself."""

from __future__ import annotations

import re

from headway.domain.machines.machine import Machine
from headway.transport.process import CommandResult
from headway.transport.ssh import Remote

TIMEOUT_S = 30.0
UNIX_TIMES = ("env", "SLURM_TIME_FORMAT=%s")  # before a Slurm command: it prints times as unix seconds
_BOOT_TIME = re.compile(r"^BOOT_TIME\s*=\s*(\d+)", re.MULTILINE)


async def run_scontrol(connections: Remote, head: Machine, *words: str, check: bool = True) -> CommandResult:
    """Runs `scontrol WORDS` on the head. Raises CommandFailed (unless `check` is off) or Unreachable."""
    return await connections.remote(head, ["scontrol", *words], timeout_s=TIMEOUT_S, check=check)


def one_line(text: str) -> str:
    """Returns the text on one line, as Slurm stores reasons and messages; never empty."""
    return " ".join(text.split()) or "no reason given"


def ping_argv() -> list[str]:
    """Returns the command that checks whether the controllers of a cluster are up."""
    return ["scontrol", "ping"]


async def controller_started_at(connections: Remote, head: Machine) -> int:
    """Returns when slurmctld started, in unix seconds; 0 when it does not report it."""
    argv = [*UNIX_TIMES, "scontrol", "show", "config"]
    ran = await connections.remote(head, argv, timeout_s=TIMEOUT_S)
    found = _BOOT_TIME.search(ran.stdout)
    return int(found[1]) if found else 0


async def controller_active_since(connections: Remote, head: Machine, active_file: str) -> int:
    """Returns when one of two heads became the active controller, in unix seconds; 0 when none has.

    The backup controller's process starts long before it takes over, so the time is that of `active_file`, which the controller
    writes when it becomes active."""
    ran = await connections.remote(head, ["stat", "-c", "%Y", active_file], timeout_s=TIMEOUT_S, check=False)
    return int(ran.stdout) if ran.code == 0 else 0
