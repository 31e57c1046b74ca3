"""A job between two formats: every reader fills a `Job`, every writer writes one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

# lost: not in the result. changed: in the result, with another meaning. same: the target does this without being asked.
Outcome = Literal["lost", "changed", "same"]


@dataclass(frozen=True, slots=True)
class Loss:
    """A directive or field that is not in the result as it was written. `where`: "line 4" or a field's path. `remedy`: the
    next step, "" if none is needed."""

    where: str
    text: str
    outcome: Outcome
    why: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """A directive or field of a file."""

    where: str
    text: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the node that a container sees."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """A program that runs once, on the first node, and starts the others itself. `first_line`: the line in the file of the
    first of `lines`."""

    lines: tuple[str, ...]
    interpreter: str = "/bin/bash"
    first_line: int = 1


@dataclass(frozen=True, slots=True)
class Group:
    """Equal nodes that run the same shell text, all at once. `words`: the same as one
    command, quoted, () if it is more than that. `shell`: runs the text. `variables`: of this group's
    nodes, as in PerNode.rank_variables."""

    name: str
    nodes: int
    text: str
    words: tuple[str, ...] = ()
    shell: str = "bash"
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PerNode:
    """Programs that run on each node of their group. `rank_variables`: variables of each node, with shell text that uses
    Slurm's variables. `head_variables`: variables that are set once, before the nodes start."""

    groups: tuple[Group, ...]
    head_variables: tuple[tuple[str, str], ...] = ()
    rank_variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RayProgram:
    """A program for a Ray cluster of all nodes."""

    entrypoint: str


Program = Script | PerNode | RayProgram


@dataclass(frozen=True, slots=True)
class Used:
    """What a job has used of each node, with a reserve. Pods request it; what the job had is their limit."""

    cpus: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Served:
    """How an HTTP server is served: `words` is the command of a replica, which listens on `port`. More than `least` replicas run,
    up to `most`, while more than `requests` requests for each of them run."""

    words: tuple[str, ...]
    port: int
    health: str
    least: int
    most: int
    requests: int
    start_s: int
    drain_s: int


@dataclass(slots=True)
class Job:
    """A job. `options`: options of sbatch by their long names, with "" for those without a value. `places`: where each
    option comes from. The environment has no secrets."""

    source: str
    options: dict[str, str] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    image: str = ""
    mounts: dict[str, Mount] = field(default_factory=dict)  # by the folder in the container
    workdir: str = ""
    preamble: list[str] = field(default_factory=list)  # shell lines before the program
    program: Program = Script(())
    used: Used | None = None  # of each node; None: not known
    queue: str = ""  # of Kueue; "": none

    def number(self, option: str) -> int | None:
        """Returns the value of an option that is a whole number, else None."""
        value = self.options.get(option, "")
        return int(value) if value.isdecimal() else None


def in_file_order(losses: Iterable[Loss]) -> list[Loss]:
    """Returns the losses, those with line numbers by their line, without repetitions."""
    unique = list(dict.fromkeys(losses))
    return sorted(unique, key=lambda loss: _line(loss.where))


def _line(where: str) -> int:
    number = where.removeprefix("line ").partition(":")[0]
    return int(number) if where.startswith("line ") and number.isdecimal() else 0
