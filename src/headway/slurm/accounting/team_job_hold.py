"""Keeps the pending jobs of a team whose budget is spent from starting, and releases them."""

from __future__ import annotations

from headway.domain.machines.machine import Machine
from headway.errors import CommandFailed
from headway.slurm.scontrol import TIMEOUT_S
from headway.transport.ssh import Remote


async def hold_team_jobs(connections: Remote, head: Machine, team: str, *, on: bool) -> None:
    """Keeps the team's pending jobs from starting while `on`; running jobs continue.

    Sets limits that no cluster file sets, so that an apply leaves them unchanged, and that no limit of a partition or QOS
    replaces: MaxJobsPerAccount of the team's QOS, and GrpTRESRunMins of its account for jobs that choose another QOS. A team
    that has left the cluster file has neither; releasing it does nothing."""
    for argv in hold_team_jobs_argv(team, on=on):
        ran = await connections.remote(head, argv, timeout_s=TIMEOUT_S, check=False)
        if ran.code != 0 and (on or "nothing modified" not in ran.stdout.lower()):
            raise CommandFailed(ran.argv, ran.code, ran.stderr or ran.stdout, where=head.name)


def hold_team_jobs_argv(team: str, *, on: bool) -> list[list[str]]:
    """Returns the commands of `hold_team_jobs`."""
    modify, where, most = ["sacctmgr", "-i", "modify"], ["where", f"name={team}", "set"], 0 if on else -1
    return [
        [*modify, "qos", *where, f"MaxJobsPerAccount={most}"],
        [*modify, "account", *where, f"GrpTRESRunMins=cpu={most}"],
    ]
