"""Commands of sacctmgr: changes of accounts, users and limits, as `headway.changes.account_changes` lists them; ending
runaway jobs; whether slurmdbd answers. `sacctmgr_reader` reads what there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.domain.machines.machine import Machine
from headway.slurm.scontrol import TIMEOUT_S
from headway.transport.ssh import Remote

_SACCTMGR = ("sacctmgr", "-i")


def account_change_argv(data: Mapping[str, Any]) -> list[str]:
    """Returns the command that carries out one change of `headway.changes.account_changes`.

    `data`: "verb" (add, modify, delete, cancel_jobs), "entity" (qos, account, user) and "name"; for associations
    "account", and "partition" for those in one partition; "set" is a list of "option=value". cancel_jobs cancels the jobs of
    user "name" in "account". Raises ValueError for any other verb."""
    account = [f"{key}={data[key]}" for key in ("account", "partition") if key in data]
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


def add_argv(entity: str, name: str) -> list[str]:
    """Returns the command that adds a cluster or QOS without settings."""
    return [*_SACCTMGR, "add", entity, name]


_ADD_MISSING_QOS = """\
listed() { sacctmgr -nP show qos format=name | grep -qxF "$1"; }
listed "$1" || { sacctmgr -i add qos "$1"; listed "$1"; }"""


def add_missing_qos_argv(name: str) -> list[str]:
    """Returns the command that adds a QOS without limits unless it is there, and that succeeds if it is there then."""
    return ["sh", "-c", _ADD_MISSING_QOS, "sh", name]


async def apply_account_change(connections: Remote, head: Machine, data: Mapping[str, Any]) -> None:
    """Runs the command of `account_change_argv` on the head. Raises CommandFailed or Unreachable."""
    await connections.remote(head, account_change_argv(data), timeout_s=TIMEOUT_S)


def show_config_argv() -> list[str]:
    """Returns a command that succeeds only when slurmdbd answers."""
    return ["sacctmgr", "-nP", "show", "config"]


def close_runaway_jobs_argv() -> list[str]:
    """Returns the command that ends jobs that are open in accounting and unknown to the controller. It reads "y" on stdin."""
    return [*_SACCTMGR, "show", "runawayjobs"]
