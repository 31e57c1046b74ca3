"""Keeps the pending jobs of a team whose budget is spent from starting, and releases them."""

from __future__ import annotations

from headway.domain.machines.machine import Machine
from headway.errors import CommandFailed
from headway.slurm.scontrol import TIMEOUT_S
from headway.transport.ssh import Remote


async def hold_team_jobs(connections: Remote, head: Machine, team: str, *, on: bool) -> None:
    """Keeps the team's pending jobs from starting while `on`; running jobs continue.

    Sets MaxJobsPerAccount of the team's QOS, which no cluster file sets, so that an apply leaves it unchanged, and which
    no limit of a partition replaces. A team that has left the cluster file has no QOS; releasing it does nothing."""
    ran = await connections.remote(head, hold_team_jobs_argv(team, on=on), timeout_s=TIMEOUT_S, check=False)
    if ran.code != 0 and (on or "nothing modified" not in ran.stdout.lower()):
        raise CommandFailed(ran.argv, ran.code, ran.stderr or ran.stdout, where=head.name)


def hold_team_jobs_argv(team: str, *, on: bool) -> list[str]:
    """Returns the command of `hold_team_jobs`."""
    return ["sacctmgr", "-i", "modify", "qos", "where", f"name={team}", "set", f"MaxJobsPerAccount={0 if on else -1}"]
