"""What a script and its flags ask of Slurm, read as sbatch does: flags go before #SBATCH lines, and a heterogeneous job has
components that ask each for themselves. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
        "exclusive",
        "gres",
        "mem",
        "mem-per-gpu",
        "mem-per-cpu",
    }
)
_ALONE = frozenset({"exclusive"})  # a value follows only behind "="
_HET = ("hetjob", "packjob")  # `#SBATCH hetjob` is between two components; Slurm once said packjob
# What the next component asks for too, as sbatch has it, unless it says otherwise.
_INHERITED = ("account", "array", "chdir", "error", "job-name", "output", "qos", "time")


@dataclass(frozen=True)
class Asked:
    """What one component asks for. None: not said."""

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
    def least_nodes(self) -> int:
        """By what it says of nodes, or of tasks and how many of them a node has."""
        on_each = _number(self.options.get("ntasks-per-node", ""))
        return self.nodes or (-(-_number(self.options.get("ntasks", "")) // on_each) if on_each else 0) or 1

    @property
    def processes(self) -> int:
        """Tasks that srun would start, as Slurm calls them."""
        on_each = _number(self.options.get("ntasks-per-node", "")) or 1
        return _number(self.options.get("ntasks", "")) or on_each * self.least_nodes

    @property
    def cpus(self) -> int:
        """Of all its nodes."""
        return max(self.least_nodes, self.processes * (_number(self.options.get("cpus-per-task", "")) or 1))

    @property
    def gpus(self) -> int:
        """Of all its nodes."""
        if "gpus" in self.options:
            return _count(self.options["gpus"])
        if self.gpus_per_node is None and "gpus-per-task" in self.options:
            return _count(self.options["gpus-per-task"]) * self.processes
        return (self.gpus_per_node or 0) * self.least_nodes

    @property
    def exclusive(self) -> bool:
        """Its nodes are its own as a whole; with `=user` they are only nobody else's."""
        return self.options.get("exclusive") == ""

    @property
    def tasks(self) -> int:
        """Of an array (`0-99:2`, `1,3,5-7%4`); 1 for any other job, and where sbatch will refuse what was written."""
        words = self.options.get("array", "").partition("%")[0].split(",")
        parts = [re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,8}))?)?", word) for word in words]
        return sum(len(range(int(one[1]), int(one[2] or one[1]) + 1, int(one[3] or 1))) for one in parts if one) or 1

    @property
    def gpu_type(self) -> str:
        asked = (
            self.options.get(name, "").split(",")[0].removeprefix("gpu:")
            for name in ("gpus-per-node", "gpus", "gpus-per-task")
        )
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


def asked(request: SubmitIn) -> tuple[Asked, ...]:
    """Of each component; of one for any job that is not heterogeneous."""
    script, flags = list(_sections(request.script or "")), _split(request.args)
    found: list[Asked] = []
    for number in range(max(len(script), len(flags))):
        kept = {name: value for name, value in found[-1].options.items() if name in _INHERITED} if found else {}
        own = script[number] if number < len(script) else {}
        last = flags[min(number, len(flags) - 1)]  # the last ones are for all components that follow
        found.append(Asked(kept | own | _options(last)))
    return tuple(found)


def first_flags(args: Sequence[str], more: Sequence[str]) -> list[str]:
    """`more` flags behind those of the first component."""
    at = list(args).index(":") if ":" in args else len(args)
    return [*args[:at], *more, *args[at:]]


def _sections(script: str) -> Iterator[dict[str, str]]:
    """The #SBATCH lines of each component, down to the first command."""
    options: dict[str, str] = {}
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            words = line.removeprefix("#SBATCH").partition(" #")[0].split()
            if words and words[0] in _HET:
                yield options
                options = {}
            else:
                options |= _options(words)
        elif line.strip() and not line.startswith("#"):
            break
    yield options


def _split(args: Sequence[str]) -> list[list[str]]:
    """At each lone `:`"""
    found: list[list[str]] = [[]]
    for word in args:
        if word == ":":
            found.append([])
        else:
            found[-1].append(word)
    return found


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


def _options(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if name in _LOOKED_AT:
                found[name] = value if equals or name in _ALONE else (left.pop(0) if left else "")
        elif word.startswith("-") and len(word) > 1 and word[1] in _LETTERS:
            found[_LETTERS[word[1]]] = word[2:].removeprefix("=") or (left.pop(0) if left else "")
    return {name: value.strip("\"'") for name, value in found.items()}


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _count(text: str) -> int:
    """`h100:8` -> 8, `8` -> 8, `h100` -> 1"""
    last = text.split(",")[0].rpartition(":")[2].partition("(")[0]
    return int(last) if last.isdigit() else 1
