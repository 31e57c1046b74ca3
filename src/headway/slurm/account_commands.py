"""Commands that change Slurm accounting: account changes with sacctmgr, holding a team's jobs, and closing runaway
jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.domain.machines.machine import Machine
from headway.errors import CommandFailed
from headway.slurm.scontrol import TIMEOUT_S
from headway.transport.ssh import Remote

_SACCTMGR = ("sacctmgr", "-i")


def account_change_argv(data: Mapping[str, Any]) -> list[str]:
    """Returns the command that carries out one change of `headway.changes.account_changes`.

    `data`: "verb" (add, modify, delete, cancel_jobs), "entity" (qos, account, user) and "name"; for associations
    "account"; "set" is a list of "option=value". cancel_jobs cancels the jobs of user "name" in "account". Raises
    ValueError for any other verb."""
    account = [f"account={data['account']}"] if "account" in data else []
    settings = list(data.get("set", ()))
    match data["verb"]:
        case "cancel_jobs":
            return ["scancel", f"--user={data['name']}", f"--account={data['account']}"]
        case "add" if data["entity"] == "user":
            return [*_SACCTMGR, "add", "user", data["name"], *account, *settings]
        case "add":
            return [*_SACCTMGR, "add", data["entity"], data["name"], "set", *settings]
        case "modify":
            where = [f"name={data['name']}", *account]
            return [*_SACCTMGR, "modify", data["entity"], "where", *where, "set", *settings]
        case "delete":
            return [*_SACCTMGR, "delete", data["entity"], "where", f"name={data['name']}", *account]
    raise ValueError(f"not an account change: {data!r}")


async def apply_account_change(connections: Remote, head: Machine, data: Mapping[str, Any]) -> None:
    """Runs the command of `account_change_argv` on the head. Raises CommandFailed or Unreachable."""
    await connections.remote(head, account_change_argv(data), timeout_s=TIMEOUT_S)


async def hold_team_jobs(connections: Remote, head: Machine, team: str, *, on: bool) -> None:
    """Keeps the team's pending jobs from starting while `on`; running jobs continue.

    Sets MaxJobsPerUser of the team's QOS, which no cluster file sets, so that an apply leaves it unchanged. A team
    that has left the cluster file has no QOS; releasing it does nothing."""
    ran = await connections.remote(head, hold_team_jobs_argv(team, on=on), timeout_s=TIMEOUT_S, check=False)
    if ran.code != 0 and (on or "nothing modified" not in ran.stdout.lower()):
        raise CommandFailed(ran.argv, ran.code, ran.stderr or ran.stdout, where=head.name)


def hold_team_jobs_argv(team: str, *, on: bool) -> list[str]:
    """Returns the command of `hold_team_jobs`."""
    return [*_SACCTMGR, "modify", "qos", "where", f"name={team}", "set", f"MaxJobsPerUser={0 if on else -1}"]


def show_config_argv() -> list[str]:
    """Returns a command that succeeds only when slurmdbd answers."""
    return ["sacctmgr", "-nP", "show", "config"]


def close_runaway_jobs_argv() -> list[str]:
    """Returns the command that ends jobs that are open in accounting and unknown to the controller. It reads "y" on stdin."""
    return [*_SACCTMGR, "show", "runawayjobs"]
