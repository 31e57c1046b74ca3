"""What is wrong with a submission before sbatch is asked: every fault at once, each with the field that it is about. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.domain.cluster import Cluster, Partition
from headway.errors import Fault
from headway.jobs.masks import masked_lines, masked_names
from headway.jobs.offer import Offer
from headway.jobs.saying import length
from headway.wire.work import SubmitIn

# Options that are looked at, by their long name; and the letters that some have.
_LETTERS = {"p": "partition", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "t": "time", "A": "account", "G": "gpus",
            "J": "job-name", "a": "array", "q": "qos", "D": "chdir", "o": "output", "e": "error"}  # fmt: skip
_LOOKED_AT = frozenset(
    {
        *_LETTERS.values(),
        "gpus-per-node",
        "gpus-per-task",
        "ntasks-per-node",
        "gres",
        "mem",
        "mem-per-gpu",
        "mem-per-cpu",
    }
)
_UNITS = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)B?", re.IGNORECASE)
_START = re.compile(
    r"to start at (?P<at>\S+)(?: using (?P<cpus>\d+) processors)?(?: on nodes? (?P<nodes>\S+))?(?: in partition (?P<part>\S+))?"
)
_HORIZON_S = 366 * 86400
# sbatch's own refusals -> the field they are about.
_ABOUT = (
    ("partition", "partition"), ("account", "account"), ("time limit", "time"), ("QOS", "account"), ("qos", "account"),
    ("Node count", "nodes"), ("node configuration", "gpus"), ("processors requested", "nodes"), ("GRES", "gpus"),
    ("gres", "gpus"), ("Memory", "memory"), ("dependency", "after"), ("option", "script"), ("script", "script"),
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What a script and its flags ask for; flags go before #SBATCH lines. None: not said."""

    options: dict[str, str]

    @property
    def nodes(self) -> int | None:
        found = re.match(r"(\d+)", self.options.get("nodes", ""))
        return int(found[1]) if found else None

    @property
    def gpus_per_node(self) -> int | None:
        """As far as it is said so; of --gpus for one node only."""
        if "gpus-per-node" in self.options:
            return _count(self.options["gpus-per-node"])
        if gres := self._gres:
            return sum(_count(part or "1") for part in gres)
        if "gpus" in self.options and self.nodes == 1:
            return _count(self.options["gpus"])
        return None

    @property
    def gpus(self) -> int:
        """Of the whole job."""
        if "gpus" in self.options:
            return _count(self.options["gpus"])
        return (self.gpus_per_node or 0) * (self.nodes or 1)

    @property
    def tasks(self) -> int:
        """Of an array (`0-99:2`, `1,3,5-7%4`); 1 for any other job, and where sbatch will refuse what was written."""
        words = self.options.get("array", "").partition("%")[0].split(",")
        parts = [re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,8}))?)?", word) for word in words]
        return sum(len(range(int(one[1]), int(one[2] or one[1]) + 1, int(one[3] or 1))) for one in parts if one) or 1

    @property
    def gpu_type(self) -> str:
        asked = (self.options.get(name, "").split(",")[0].removeprefix("gpu:") for name in ("gpus-per-node", "gpus"))
        for text in (*asked, *self._gres):
            words = text.split(":")
            if len(words) > 1 and not words[0].isdigit():
                return words[0]
        return ""

    @property
    def _gres(self) -> list[str]:
        """What --gres says of GPUs, behind that word; of other things (`tmp:10G`) nothing."""
        parts = (part.partition(":") for part in self.options.get("gres", "").split(","))
        return [count for name, _, count in parts if name == "gpu"]


def asked(request: SubmitIn) -> Asked:
    """Reads #SBATCH lines, down to the first command, and flags."""
    options: dict[str, str] = {}
    for line in (request.script or "").splitlines():
        if line.startswith("#SBATCH"):
            options |= _options(line.removeprefix("#SBATCH").partition(" #")[0].split())
        elif line.strip() and not line.startswith("#"):
            break
    return Asked(options | _options(request.args))


def seconds(text: str) -> int | None:
    """Slurm's time: minutes, MM:SS, HH:MM:SS, D-HH[:MM[:SS]]. None for what is none; 0 for UNLIMITED."""
    if text.upper() in ("UNLIMITED", "INFINITE", "-1"):
        return 0
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if found is None:
        return None
    days, *rest = found.groups()
    one, two, three = (int(word) if word else None for word in rest)
    assert one is not None
    if days is not None:
        return int(days) * 86400 + one * 3600 + (two or 0) * 60 + (three or 0)
    if two is None:
        return one * 60
    return one * 60 + two if three is None else one * 3600 + two * 60 + three


def faults(request: SubmitIn, cluster: Cluster, user: str, offer: Offer) -> list[Fault]:
    """All of them, by field: script, args, flags, partition, nodes, gpus, cpus, memory, time, account."""
    want = asked(request)
    return [
        *_script(request),
        *_masked(request),
        *_partition(want, cluster, user),
        *_size(want, cluster, offer),
        *_team(want, cluster, user),
    ]


def start_of(said: str, now: float) -> tuple[int, str, str]:
    """(unix seconds, nodes, partition) of sbatch --test-only under SLURM_TIME_FORMAT=%s; zero and "" where it does not say,
    or names the end of a reservation that is made for good (spare nodes): no job starts by that."""
    found = _START.search(said)
    if found is None:
        return 0, "", ""
    at, partition = int(found["at"]) if found["at"].isdigit() else 0, found["part"] or ""
    return (0, "", partition) if at > now + _HORIZON_S else (at, found["nodes"] or "", partition)


def refusal(said: str, hint: str) -> Fault:
    """sbatch's own words, with the field that they are about."""
    lines = [line.partition("error: ")[2] or line for line in said.splitlines() if line.strip()]
    text = "; ".join(dict.fromkeys(line.removeprefix("allocation failure: ") for line in lines)) or "sbatch refuses it"
    field = next((field for word, field in _ABOUT if word in text), "script")
    return Fault(field, text, hint)


def _script(request: SubmitIn) -> Iterator[Fault]:
    script = request.script
    if script is None:
        return
    if not script.strip():
        yield Fault("script", "there is no script", "paste one, or choose a file")
    elif not script.startswith("#!"):
        yield Fault("script", "the first line must name an interpreter", "begin with #!/bin/bash")
    elif "\r\n" in script:
        yield Fault("script", "it has Windows line ends, which sbatch refuses", "dos2unix, or set your editor to LF")


def _masked(request: SubmitIn) -> Iterator[Fault]:
    """What was shown without the values of secrets can't be sent so."""
    again = "type the value again"
    for line, name in masked_lines(request.script or ""):
        yield Fault("script", f"line {line}: the value of {name} was left out, as it is a secret", again)
    for field, words in (("args", request.script_args), ("flags", request.args)):
        for name in masked_names(words):
            yield Fault(field, f"the value of {name} was left out, as it is a secret", again)


def _partition(want: Asked, cluster: Cluster, user: str) -> Iterator[Fault]:
    by_name = {one.name: one for one in cluster.partitions}
    names = [name for name in want.options.get("partition", "").split(",") if name]
    unknown = [name for name in names if name not in by_name]
    if unknown:
        yield Fault("partition", f"there is no partition {unknown[0]!r}", f"{cluster.name} has {', '.join(by_name)}")
        return
    chosen = [by_name[name] for name in names] or [one for one in cluster.partitions if one.default]
    mine = {team.name for team in cluster.teams if user in team.users}
    if chosen and all(one.teams and not mine.intersection(one.teams) for one in chosen):
        yield Fault("partition", f"{chosen[0].name} is for {', '.join(chosen[0].teams)} alone", "choose another")
    yield from _limits(want, chosen)


def _limits(want: Asked, chosen: Sequence[Partition]) -> Iterator[Fault]:
    if not chosen:
        return
    largest = max(len(one.nodes) for one in chosen)
    if want.nodes is not None and want.nodes > largest:
        yield Fault("nodes", f"{want.nodes} nodes are asked for, {chosen[0].name} has {largest}", "ask for fewer")
    text = want.options.get("time", "")
    time_s = seconds(text) if text else None
    if text and time_s is None:
        yield Fault("time", f"{text!r} is no length of time", "minutes, HH:MM:SS or D-HH:MM:SS")
    longest = None if any(one.max_time_s is None for one in chosen) else max(one.max_time_s or 0 for one in chosen)
    if time_s is not None and longest is not None and (time_s == 0 or time_s > longest):
        asks = "no limit" if time_s == 0 else length(time_s)
        yield Fault("time", f"{asks} is asked for, {chosen[0].name} allows {length(longest)}", "ask for less")


def _size(want: Asked, cluster: Cluster, offer: Offer) -> Iterator[Fault]:
    gpus = want.gpus_per_node or 0
    if gpus > offer.gpus:
        has = f"a node of {cluster.name} has {offer.gpus}" if offer.gpus else f"{cluster.name} has none"
        yield Fault("gpus", f"{gpus} GPUs on each node are asked for; {has}", "ask for more nodes instead")
    elif want.gpus > offer.gpus_in_all:
        yield Fault("gpus", f"{want.gpus} GPUs are asked for; {cluster.name} has {offer.gpus_in_all}", "ask for fewer")
    types = offer.gpu_types
    if want.gpu_type and types and want.gpu_type.lower() not in {one.lower() for one in types}:
        yield Fault("gpus", f"there is no GPU of type {want.gpu_type}", f"{cluster.name} has {' and '.join(types)}")
    cpus = _number(want.options.get("cpus-per-task", "")) * max(1, _number(want.options.get("ntasks-per-node", "")))
    if cpus > offer.cpus:
        yield Fault("cpus", f"{cpus} CPUs on each node are asked for; a node has {offer.cpus}", "ask for fewer")
    memory = _mib(want.options.get("mem", ""))
    if memory > offer.memory_mib:
        yield Fault("memory", f"{memory // 1024} GiB on each node are asked for; a node has {offer.memory_mib // 1024}")


def _team(want: Asked, cluster: Cluster, user: str) -> Iterator[Fault]:
    by_name = {team.name: team for team in cluster.teams}
    mine = [team.name for team in cluster.teams if user in team.users]
    name = want.options.get("account", "") or (mine[0] if mine else "")
    if not mine:
        yield Fault("account", f"{user} is in no team of {cluster.name}", "an admin adds people in the cluster's file")
        return
    if name not in mine:
        there = "is not yours" if name in by_name else f"is none of {cluster.name}'s"
        yield Fault("account", f"team {name!r} {there}", f"you are in {', '.join(mine)}")
        return
    team = by_name[name]
    if team.gpus is not None and want.gpus > team.gpus:
        yield Fault(
            "gpus", f"{want.gpus} GPUs are asked for; team {name} may hold {team.gpus} at once", "ask for fewer"
        )
    time_s = seconds(want.options.get("time", ""))
    if team.gpu_hours is not None and time_s and want.gpus * time_s / 3600 > team.gpu_hours.hours:
        cap = f"team {name} has {team.gpu_hours.hours.normalize():f} a {team.gpu_hours.per}"
        yield Fault(
            "time", f"it may use {want.gpus * time_s / 3600:.4g} GPU hours; {cap}", "ask for less time or fewer GPUs"
        )


def _options(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if name in _LOOKED_AT:
                found[name] = value if equals else (left.pop(0) if left else "")
        elif word.startswith("-") and len(word) > 1 and word[1] in _LETTERS:
            found[_LETTERS[word[1]]] = word[2:].removeprefix("=") or (left.pop(0) if left else "")
    return {name: value.strip("\"'") for name, value in found.items()}


def _count(text: str) -> int:
    """`h100:8` -> 8, `8` -> 8, `h100` -> 1"""
    last = text.split(",")[0].rpartition(":")[2].partition("(")[0]
    return int(last) if last.isdigit() else 1


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _mib(text: str) -> int:
    found = _MEMORY.fullmatch(text)
    return int(float(found[1]) * _UNITS[found[2].upper() or "M"]) if found else 0
