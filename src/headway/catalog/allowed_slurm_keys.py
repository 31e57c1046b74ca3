"""The slurm.conf keys that a cluster file may set, by Slurm version, and the form of their values.

This is an allowlist: Headway writes all other keys itself, and one unknown key stops every Slurm command and daemon.
Each key was looked up in slurm.conf(5) of both versions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headway.catalog.node_images import IMAGES
from headway.catalog.slurm_releases import is_at_least
from headway.validation import syntax_rules


@dataclass(frozen=True, slots=True)
class SlurmKey:
    """A key of slurm.conf and the form of its value."""

    pattern: str  # regular expression for the whole value, or the text that `_number` returns
    form: str  # the form in words, for messages
    since: str = ""  # the first Slurm release that has the key; "" = all supported ones


def _number(highest: int, lowest: int = 0) -> str:
    """Returns a pattern for whole numbers in a range, which `_fits` checks."""
    return f"int:{lowest}:{highest}"


_U32 = SlurmKey(_number(4_294_967_294), "a whole number")
_WEIGHT = _U32
_SECONDS = SlurmKey(_number(65533, 1), "seconds, 1 to 65533")
_MINUTES = SlurmKey(f"{_number(65533)}|UNLIMITED", "minutes, 0 to 65533, or UNLIMITED")
_YES_NO = SlurmKey("YES|NO", "YES or NO")
_TIME = SlurmKey(
    r"[0-9]{1,4}-[0-9]{1,2}(:[0-9]{2}){0,2}|[0-9]{1,6}(:[0-9]{2}){0,2}", "a time such as 7-0 or 14-00:00:00"
)
_HALF_LIFE = SlurmKey(f"(?=.*[1-9])({_TIME.pattern})", f"{_TIME.form}; not 0: use would never fade")
_CODE = "(1?[0-9]{1,2}|2[0-4][0-9]|25[0-5])"
_EXIT_CODES = SlurmKey(f"{_CODE}(-{_CODE})?(,{_CODE}(-{_CODE})?)*", "exit codes up to 255, such as 1,100-110")
_FLAG = "ACCRUE_ALWAYS|CALCULATE_RUNNING|DEPTH_OBLIVIOUS|INCR_ONLY|MAX_TRES|NO_FAIR_TREE|SMALL_RELATIVE_TO_TIME"
_LEVEL = SlurmKey("quiet|fatal|error|info|verbose|debug[2-5]?", "quiet, fatal, error, info, verbose or debug to debug5")
_TRES_WEIGHTS = SlurmKey(
    r"[A-Za-z]+(/[a-z0-9_]+)?=[0-9]+(\.[0-9]+)?[KMG]?(,[A-Za-z]+(/[a-z0-9_]+)?=[0-9]+(\.[0-9]+)?[KMG]?)*",
    "weights such as CPU=1000,GRES/gpu=3000",
)

_LICENSES = SlurmKey(
    r"[A-Za-z][A-Za-z0-9_-]{0,62}(@[A-Za-z0-9_.-]{1,64})?:[0-9]{1,7}(,[A-Za-z][A-Za-z0-9_-]{0,62}(@[A-Za-z0-9_.-]{1,64})?:[0-9]{1,7})*",
    "licenses and their number, such as matlab:10,ansys@server:4",
)

CLUSTER_KEYS: dict[str, SlurmKey] = {
    "BatchStartTimeout": _SECONDS,
    "CompleteWait": SlurmKey(_number(65533), "seconds, 0 to 65533"),
    "DisableRootJobs": _YES_NO,
    "EnforcePartLimits": SlurmKey("ALL|ANY|NO", "ALL, ANY or NO"),
    "FairShareDampeningFactor": SlurmKey(_number(65533, 1), "a whole number, 1 to 65533"),
    "InactiveLimit": SlurmKey(_number(65533), "seconds, 0 to 65533"),
    "JobFileAppend": SlurmKey("0|1", "0 or 1"),
    "JobRequeue": SlurmKey("0|1", "0 or 1"),
    "KillOnBadExit": SlurmKey("0|1", "0 or 1"),
    "KillWait": _SECONDS,
    "Licenses": _LICENSES,
    "MailDomain": SlurmKey(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,200}[A-Za-z0-9])?", "a domain name"),
    "MaxArraySize": SlurmKey(_number(4_000_001, 2), "a whole number, 2 to 4000001"),
    "MaxBatchRequeue": SlurmKey(_number(1000, 1), "a whole number, 1 to 1000", since="24.11"),
    "MaxJobCount": SlurmKey(_number(10_000_000, 1000), "a whole number, 1000 to 10000000"),
    "MaxStepCount": SlurmKey(_number(10_000_000, 1), "a whole number, 1 to 10000000"),
    "MaxTasksPerNode": SlurmKey(_number(65533, 1), "a whole number, 1 to 65533"),
    "MessageTimeout": SlurmKey(_number(100, 5), "seconds, 5 to 100"),
    "MinJobAge": SlurmKey(_number(86400, 2), "seconds, 2 to 86400"),
    "OverTimeLimit": _MINUTES,
    "PriorityCalcPeriod": SlurmKey(_number(1440, 1), "minutes, 1 to 1440"),
    "PriorityDecayHalfLife": _HALF_LIFE,
    "PriorityFavorSmall": _YES_NO,
    "PriorityFlags": SlurmKey(f"({_FLAG})(,({_FLAG}))*", f"flags of {_FLAG.replace('|', ', ')}"),
    "PriorityMaxAge": _TIME,
    "PriorityWeightAge": _WEIGHT,
    "PriorityWeightAssoc": _WEIGHT,
    "PriorityWeightFairshare": _WEIGHT,
    "PriorityWeightJobSize": _WEIGHT,
    "PriorityWeightPartition": _WEIGHT,
    "PriorityWeightQOS": _WEIGHT,
    "PriorityWeightTRES": _TRES_WEIGHTS,
    "RequeueExit": _EXIT_CODES,
    "RequeueExitHold": _EXIT_CODES,
    "ResvOverRun": _MINUTES,
    "SlurmctldDebug": _LEVEL,
    "SlurmdDebug": _LEVEL,
    "SlurmdTimeout": SlurmKey(_number(65533, 5), "seconds, 5 to 65533"),
    "TCPTimeout": SlurmKey(_number(60, 1), "seconds, 1 to 60"),
    "TreeWidth": SlurmKey(_number(65533, 1), "a whole number, 1 to 65533"),
    "UnkillableStepTimeout": _SECONDS,
    "WaitTime": SlurmKey(_number(65533), "seconds, 0 to 65533"),
}

PARTITION_KEYS: dict[str, SlurmKey] = {
    "DefCpuPerGPU": SlurmKey(_number(65533, 1), "a whole number, 1 to 65533"),
    "DefMemPerCPU": SlurmKey(_number(100_000_000, 1), "MiB"),
    "DefMemPerGPU": SlurmKey(_number(100_000_000, 1), "MiB"),
    "DisableRootJobs": _YES_NO,
    "ExclusiveTopo": SlurmKey("YES|NO", "YES or NO", since="24.11"),
    "ExclusiveUser": _YES_NO,
    "Hidden": _YES_NO,
    "LLN": _YES_NO,
    "MaxCPUsPerNode": SlurmKey(f"{_number(65533)}|UNLIMITED", "a whole number or UNLIMITED"),
    "MaxCPUsPerSocket": SlurmKey(f"{_number(65533)}|UNLIMITED", "a whole number or UNLIMITED", since="24.11"),
    "MaxMemPerCPU": SlurmKey(_number(100_000_000, 1), "MiB"),
    "MaxMemPerNode": SlurmKey(_number(100_000_000, 1), "MiB"),
    "MaxNodes": SlurmKey(f"{_number(1_000_000, 1)}|UNLIMITED", "a whole number or UNLIMITED"),
    "MinNodes": SlurmKey(_number(65533), "a whole number"),
    "OverSubscribe": SlurmKey("NO|EXCLUSIVE", "NO or EXCLUSIVE"),
    "OverTimeLimit": _MINUTES,
    "PriorityJobFactor": SlurmKey(_number(65533), "a whole number, 0 to 65533"),
    "ReqResv": _YES_NO,
    "TRESBillingWeights": _TRES_WEIGHTS,
}

MESSAGE_TIMEOUT_S = 20  # default that Headway writes

# Keys that Headway sets itself, and the field of the cluster file to use instead.
OWNED = {
    "AllowAccounts": "use the partition's teams",
    "Default": "use the partition's default: true",
    "DefaultTime": "use the partition's default_time",
    "GraceTime": "use the partition's grace_time",
    "MaxTime": "use the partition's max_time",
    "Nodes": "use the partition's nodes",
    "PreemptMode": "use preempts of a partition or QOS",
    "PriorityTier": "use the partition's tier",
    "ClusterName": "use name",
    "GresTypes": "the plan says which GPUs there are",
    "TopologyPlugin": "use fabric",
    "MailProg": "use mail",
    "PreemptType": "use preempts of a partition or QOS",
    "PrivateData": "squeue shows the same as the dashboard: the queue to all users, a team's usage to its members only",
    "ReturnToService": "Headway decides when a node returns",
}
_PREFIXES_OWNED = ("Slurmctld", "Slurmd", "Accounting", "Auth", "Select", "Proctrack", "Task", "Prolog", "Epilog")


def key_fault(key: str, value: str, version: str, *, partition: bool) -> tuple[str, str]:
    """Returns what is wrong with one key and value and what to do, or ("", "")."""
    table = PARTITION_KEYS if partition else CLUSTER_KEYS
    known = table.get(key)
    if known is None:
        return _unknown(key, partition)
    if known.since and not is_at_least(version, known.since):
        newer = next(image for image in IMAGES.values() if is_at_least(image.slurm.name, known.since))
        return f"Slurm {version} does not have this key", f"image {newer.name} carries Slurm {newer.slurm.name}"
    fits = _fits(value, known.pattern) and (known is not _EXIT_CODES or _rise(value))
    return ("", "") if fits else (f"must be {known.form}", "")


def least_unkillable_s(slurm: Mapping[str, str]) -> int:
    """Returns the lowest allowed UnkillableStepTimeout in seconds for this MessageTimeout. Slurm logs an error at each
    start if it is lower."""
    message = slurm.get("MessageTimeout", "")
    return 5 * (int(message) if _fits(message, CLUSTER_KEYS["MessageTimeout"].pattern) else MESSAGE_TIMEOUT_S)


def _fits(text: str, pattern: str) -> bool:
    if not pattern.startswith("int:"):
        return len(text) <= 400 and re.fullmatch(pattern, text, re.ASCII) is not None
    number, _, word = pattern.partition("|")
    lowest, highest = map(int, number.split(":")[1:])
    if re.fullmatch(r"[0-9]{1,10}", text, re.ASCII):
        return lowest <= int(text) <= highest
    return bool(word) and text == word


def _rise(ranges: str) -> bool:
    """Returns whether no range in a list like 1,100-110 ends below its start."""
    ends = [[int(end) for end in part.split("-")] for part in ranges.split(",")]
    return all(part[0] <= part[-1] for part in ends)


def _unknown(key: str, partition: bool) -> tuple[str, str]:
    for name, instead in OWNED.items():
        if name.lower() == key.lower():
            return "Headway sets this key itself", instead
    here, there = (PARTITION_KEYS, CLUSTER_KEYS) if partition else (CLUSTER_KEYS, PARTITION_KEYS)
    if key in there:
        place = "at the top of the file, under slurm" if partition else "under a partition's slurm"
        return "does not belong here", f"it goes {place}"
    hint = syntax_rules.did_you_mean(key, here)
    if not hint and key.startswith(_PREFIXES_OWNED):
        return "Headway sets this key itself", ""
    return "is not a slurm.conf key that a cluster file may set", hint or "the list is in the schema: headway schema"
