"""Limits of accounts, users and QOS of a site as sections of the cluster file, with verdicts on the keys they come from."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from headway.slurm_import.values import LARGEST_LIMIT, memory_text, tres, whole_number
from headway.slurm_import.verdicts import Item, Ledger
from headway.validation.times_and_sizes import parse_size

# Slurm's resource -> field
RESOURCES = {"gres/gpu": "gpus", "cpu": "cpus", "node": "nodes", "mem": "memory"}
JOB_COUNTS = {"grpjobs": "running_jobs", "grpsubmitjobs": "submitted_jobs", "grpsubmit": "submitted_jobs"}
PER_JOB_TRES = ("maxtres", "maxtresperjob", "maxtrespj")
OTHER_RESOURCES = "limit CPUs, GPUs, nodes or memory"
# Limits on jobs of a user in one account. Of an account: those that each of its users has
USER_COUNTS = {"maxjobs": "running_jobs", "maxsubmitjobs": "submitted_jobs"}
# Limits of each user of a QOS: keys of `sacctmgr show qos` of all versions -> field
QOS_USER_COUNTS = {
    "maxjobspu": "running_jobs", "maxjobsperuser": "running_jobs", "maxsubmitpu": "submitted_jobs",
    "maxsubmitjobspu": "submitted_jobs", "maxsubmitjobsperuser": "submitted_jobs",
}  # fmt: skip
QOS_USER_TRES = ("maxtrespu", "maxtresperuser")
_NONE = ("0 lets no job run", "leave out those who may run none")
_LARGEST_MEMORY_MIB = 999_999 * 1024
_TOO_MANY = (f"is no number up to {LARGEST_LIMIT:,}", "leave the limit out: no cluster reaches it")


class LimitSection:
    """One section of limits. `place`: its path in the cluster file; `owner`: who has no other limits, for reasons."""

    def __init__(self, place: str, owner: str, ledger: Ledger) -> None:
        self.place, self.owner, self.values = place, owner, dict[str, Any]()
        self._ledger = ledger

    def count(self, item: Item, name: str, why: str = "") -> None:
        """Takes a limit on a number of jobs; of two limits on the same number the smaller one counts."""
        number = whole_number(item.value)
        if number:
            self._least(name, number)
            self._ledger.carried(item, f"{self.place}.{name}", why)
        else:
            self._ledger.dropped(item, *(_NONE if number == 0 else _TOO_MANY))

    def resources(self, item: Item) -> None:
        """Takes a limit on resources, such as cpu=64,gres/gpu=8."""
        found = {name: number for name, number in tres(item.value).items() if _is_limit(name, number)}
        for name, number in found.items():
            if name == "mem":
                self._least_memory(number)
            else:
                self._least(RESOURCES[name], number)
        rest = ",".join(part for part in _parts(item.value) if part.partition("=")[0].lower() not in found)
        places = ", ".join(f"{self.place}.{RESOURCES[name]}" for name in found)
        if not rest and not found:
            self._ledger.same(item, "no limit")
        elif not rest:
            self._ledger.carried(item, places)
        elif rest.endswith("=0"):
            self._ledger.dropped(item, *_NONE)
        else:
            carried = f"{places} {'has' if len(found) == 1 else 'have'} the rest; " if found else ""
            self._ledger.dropped(item, f"{carried}{self.owner} has no limit on {rest}", OTHER_RESOURCES)

    def recent_gpu_hours(self, item: Item) -> None:
        """Takes GrpTRESMins of a user's association: GPU-minutes that fade."""
        minutes = re.fullmatch(r"gres/gpu=([0-9]{1,10})", item.value.strip(), re.IGNORECASE)
        if minutes and int(minutes[1]):
            # Rounded up, so that the whole minutes of these hours are the same number.
            self.values["recent_gpu_hours"] = math.ceil(int(minutes[1]) / 60 * 1e6) / 1e6
            self._ledger.carried(item, f"{self.place}.recent_gpu_hours")
        else:
            self._ledger.dropped(item, f"{self.owner} has such a limit for GPUs only", "give recent_gpu_hours")

    def _least(self, name: str, number: int) -> None:
        self.values[name] = min(number, self.values.get(name, number))

    def _least_memory(self, mib: int) -> None:
        known = self.values.get("memory")
        self.values["memory"] = memory_text(mib if known is None else min(mib, parse_size(known) // 1024**2))


def _parts(value: str) -> Iterator[str]:
    return (part.strip() for part in value.split(",") if part.strip())


def _is_limit(name: str, number: int) -> bool:
    return name in RESOURCES and 0 < number <= (_LARGEST_MEMORY_MIB if name == "mem" else LARGEST_LIMIT)


def take_user_limits(keys: Mapping[str, Item], section: LimitSection) -> None:
    """Takes the limits of a QOS on each user. `keys`: those of the QOS."""
    for key, item in keys.items():
        if key in QOS_USER_COUNTS:
            section.count(item, QOS_USER_COUNTS[key])
        elif key in QOS_USER_TRES:
            section.resources(item)


def take_job_limits(keys: Mapping[str, Item], together: LimitSection, each_job: LimitSection) -> None:
    """Takes the limits of a QOS on all its jobs together and on each of them."""
    for key, item in keys.items():
        if key in JOB_COUNTS:
            together.count(item, JOB_COUNTS[key])
        elif key == "grptres":
            together.resources(item)
        elif key in PER_JOB_TRES:
            each_job.resources(item)


def limit_reason(key: str, value: str, owner: str = "a team") -> tuple[str, str]:
    """Returns why a limit of accounting is not carried, and what to do instead."""
    minutes = tres(value).get("gres/gpu")
    match key:
        case "grptresmins" | "grptresmin" | "grpcpumins" if minutes:
            return (
                "this use fades with PriorityDecayHalfLife; a team's cap counts from the start of a period",
                f"give limits.gpu_hours: {{hours: {max(1, minutes // 60)}, per: month}}",
            )
        case "maxwall" | "maxwalldurationperjob":
            return f"{owner} has no time limit", "give a QOS max_time and make it default_qos of the team"
        case "maxtres" | "maxtresperjob" | "maxcpus" | "maxnodes":
            return (
                f"{owner} has no limit of each job",
                "give a QOS limits.per_job and make it default_qos of the team",
            )
        case "grpwall":
            return f"{owner} has no limit on the time of its jobs together", "give the team a budget"
        case "priority":
            return (
                f"{owner} has no priority of its own",
                "give the team a larger share, or a partition with a higher tier",
            )
        case _:
            return (
                "a cluster file has no such limit",
                "limit GPUs, running jobs, or the partition's max_time, MaxNodes, MaxMemPerNode",
            )
