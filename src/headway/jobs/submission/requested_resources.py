"""The resources that a script and its flags request, read as sbatch reads them: flags override #SBATCH lines, and
each component of a heterogeneous job has its own. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.domain.slurm.hostlist import expand
from headway.domain.slurm.sbatch_options import LONG, parse_options, remove_options, remove_script_options, script_lines
from headway.schemas.submission.submit_request import SubmitIn

_HET = ("hetjob", "packjob")  # `#SBATCH hetjob` separates two components; older versions of Slurm call it packjob
# Options that a component inherits from the one before, as in sbatch.
_INHERITED = ("account", "array", "chdir", "error", "job-name", "output", "qos", "time")
# Options that count GPUs, and those that count other things.
_OF_A_NODE = ("gpus-per-node", "gres", "gpus-per-socket")
_OF_A_TASK = ("gpus-per-task", "tres-per-task")
_NUMBERS = ("ntasks", "ntasks-per-node", "ntasks-per-gpu", "cpus-per-task")
# Prefixes of options that may count nodes or GPUs, also in newer versions of sbatch.
_ABOUT_SIZE = ("gpu", "gres", "tres", "node")
# `h100:8`, `8`, or `h100` for one; `8k` does not match.
_GPUS = re.compile(r"(?:((?=\d*[^\d:()])(?!\d+[a-zA-Z](?:\(|$))[^:()]+)(?::(\d{1,9}))?|(\d{1,9}))(?:\(.*\))?")
# `2`, `2-4`, `1k`; `2-8:2` means 2, 4, 6 or 8.
_NODES = re.compile(r"(\d{1,6})([kKmM]?)(?:-(\d{1,6})([kKmM]?))?(?::\d{1,6})?")
_TIMES = {"": 1, "k": 1024, "m": 1024 * 1024}
_MOST_NAMED = 100_000


@dataclass(frozen=True)
class RequestedResources:
    """The options of one component, by their long names. A property is None if no option sets it."""

    options: dict[str, str]

    @property
    def nodes(self) -> int | None:
        """Returns the number of nodes; the smallest where --nodes gives a range."""
        found = _range(self.options.get("nodes", ""))
        return found[0] if found else None

    @property
    def gpus_per_node(self) -> int | None:
        """Returns the GPUs of each node, where an option gives them per node; also from --gpus for a job of one
        node."""
        each = self._gpus_of_a_node
        return _count(self._listed("gpus")) if each is None and "gpus" in self.options and self.nodes == 1 else each

    @property
    def min_nodes(self) -> int:
        """Returns the smallest number of nodes: from --nodes, else from tasks and tasks per node, else from all
        GPUs and GPUs per node; at least the number of nodes in --nodelist."""
        on_each = self._number("ntasks-per-node")
        by_tasks = _over(self._number("ntasks"), on_each)
        by_gpus = _over(_count(self._listed("gpus")), self._gpus_of_a_node or 0)
        return max(self.nodes or by_tasks or by_gpus or 1, self._named or 0)

    @property
    def has_node_range(self) -> bool:
        """Returns whether --nodes leaves the number of nodes to Slurm."""
        node_range = _range(self.options.get("nodes", ""))
        return node_range is not None and node_range[0] != node_range[1]

    def max_nodes_on(self, gpus: int, cpus: int) -> int:
        """Returns the largest number of nodes, on nodes with `gpus` GPUs and `cpus` CPUs each: the upper end of
        --nodes, else as many nodes as the requested tasks and GPUs fill."""
        if node_range := _range(self.options.get("nodes", "")):
            return max(node_range[1], self._named or 0)
        tasks_on_each = max(1, cpus // (self._number("cpus-per-task") or 1))
        return max(self.min_nodes, _over(self.min_tasks, tasks_on_each), _over(self.gpus, gpus))

    @property
    def min_tasks(self) -> int:
        """Returns the smallest number of tasks that srun would start."""
        return self._processes(self.min_nodes)

    @property
    def gpus(self) -> int:
        """Returns the GPUs of all nodes, at least."""
        return self.gpus_on(self.min_nodes)

    def cpus_on(self, nodes: int) -> int:
        """Returns the CPUs of the job when it has `nodes` nodes."""
        return max(nodes, self._processes(nodes) * (self._number("cpus-per-task") or 1))

    def gpus_on(self, nodes: int) -> int:
        """Returns the GPUs of the job when it has `nodes` nodes."""
        if "gpus" in self.options:
            return _count(self._listed("gpus"))
        if (each := self._gpus_of_a_node) is not None:
            return each * nodes
        if self._gpus_of_a_task:
            return self._gpus_of_a_task * self._processes(nodes)
        return _over(self._processes(nodes), self._number("ntasks-per-gpu"))

    @property
    def unparsed_options(self) -> list[str]:
        """Returns the options that give a number of nodes or GPUs in a form that can't be read here."""
        named = self.options.get("nodelist") and self._named is None
        found = [name for name in ("gpus", *_OF_A_NODE, *_OF_A_TASK) if None in map(_GPUS.fullmatch, self._parts(name))]
        found += [name for name in _NUMBERS if _integer(self.options.get(name, "0")) is None]
        found += ["nodes"] if "nodes" in self.options and _range(self.options["nodes"]) is None else []
        found += ["nodelist"] if named else []
        found += ["gpus-per-socket"] if "gpus-per-socket" in self.options and not self._sockets else []
        strange = (name for name in self.options if name not in LONG and name.startswith(_ABOUT_SIZE))
        return list(dict.fromkeys([*found, *strange, *({"nodefile"} & self.options.keys())]))

    def gres_of_a_node(self, name: str) -> int:
        """Returns the count of another GRES than gpu, as `shard`, that --gres asks for on each node."""
        words = (word.replace("=", ":").split(":") for word in self.options.get("gres", "").split(",") if word)
        return sum(_integer(rest[-1]) or 0 if rest else 1 for kind, *rest in words if kind == name)

    @property
    def exclusive(self) -> bool:
        """Returns whether the job gets whole nodes (--exclusive). `--exclusive=user` only keeps other users off
        its nodes."""
        return self.options.get("exclusive") == ""

    @property
    def array_size(self) -> int:
        """Returns the number of tasks of an array (`0-99:2`, `1,3,5-7%4`); 1 for any other job, and for a text
        that sbatch will refuse."""
        words = self.options.get("array", "").partition("%")[0].split(",")
        parts = [re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,8}))?)?", word) for word in words]
        return (
            sum(len(range(int(part[1]), int(part[2] or part[1]) + 1, int(part[3] or 1))) for part in parts if part) or 1
        )

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """Returns the types of GPU that the options name."""
        listed = (self._listed(name) for name in ("gpus", *_OF_A_NODE, *_OF_A_TASK))
        return tuple(dict.fromkeys(kind for pairs in listed for kind, _ in pairs if kind))

    def _processes(self, nodes: int) -> int:
        gpus = _count(self._listed("gpus"))
        by_gpus = gpus * self._number("ntasks-per-gpu") or _over(gpus, self._gpus_of_a_task)
        return self._number("ntasks") or by_gpus or (self._number("ntasks-per-node") or 1) * nodes

    @property
    def _gpus_of_a_node(self) -> int | None:
        for name in _OF_A_NODE:
            if listed := self._listed(name):
                return _count(listed) * (self._sockets if name == "gpus-per-socket" else 1)
        return None

    @property
    def _gpus_of_a_task(self) -> int:
        return next((_count(listed) for name in _OF_A_TASK if (listed := self._listed(name))), 0)

    @property
    def _sockets(self) -> int:
        """Returns the sockets of a node, 0 where the options do not say."""
        extra = self.options.get("extra-node-info", "").partition(":")[0]
        return self._number("sockets-per-node") or _integer(extra) or 0

    @property
    def _named(self) -> int | None:
        """Returns how many nodes --nodelist names, or None where it can't be read."""
        text = self.options.get("nodelist", "")
        try:
            return None if "/" in text else len(expand(text, _MOST_NAMED))
        except ValueError:
            return None

    def _listed(self, name: str) -> list[tuple[str, int]]:
        """Returns (type or "", count) of each kind of GPU that an option names."""
        found = map(_GPUS.fullmatch, self._parts(name))
        return [(match[1] or "", int(match[2] or match[3] or 1)) for match in found if match]

    def _parts(self, name: str) -> list[str]:
        """Returns the parts of an option that count GPUs, as `h100:8` or `8`, without other resources (`tmp:10G`)."""
        words = (word.replace("=", ":") for word in self.options.get(name, "").split(",") if word)
        parts = [word.removeprefix("gres/").removeprefix("gres:").partition(":") for word in words]
        if name in ("gres", "tres-per-task"):
            return [count or "1" for kind, _, count in parts if kind == "gpu"]
        return ["".join(part).removeprefix("gpu:") for part in parts]

    def _number(self, name: str) -> int:
        return _integer(self.options.get(name, "")) or 0


def requested_resources(request: SubmitIn) -> tuple[RequestedResources, ...]:
    """Returns the resources of each component; of one component for a job that is not heterogeneous."""
    script, flags = list(_sections(request.script or "")), _split(request.args)
    found: list[RequestedResources] = []
    for number in range(max(len(script), len(flags))):
        kept = {name: value for name, value in found[-1].options.items() if name in _INHERITED} if found else {}
        own = script[number] if number < len(script) else {}
        last = flags[min(number, len(flags) - 1)]  # the last flags are used for all later components
        found.append(RequestedResources(kept | own | _options(last)))
    return tuple(found)


def without_dependency(request: SubmitIn) -> SubmitIn:
    """Returns the request without its dependencies, in every component. Those jobs ended long ago: minutes after a
    job's end Slurm forgets it, and refuses a submission that names it."""
    names = ("dependency", "kill-on-invalid-dep")
    script = request.script and remove_script_options(request.script, names)
    return request.model_copy(update={"script": script, "args": remove_options(request.args, names)})


def add_flags(args: Sequence[str], more: Sequence[str]) -> list[str]:
    """Returns `args` with `more` added to the flags of the first component."""
    at = list(args).index(":") if ":" in args else len(args)
    return [*args[:at], *more, *args[at:]]


def _sections(script: str) -> Iterator[dict[str, str]]:
    """Yields the #SBATCH options of each component."""
    found: dict[str, str] = {}
    for words in script_lines(script):
        if words and words[0] in _HET:
            yield found
            found = {}
        else:
            found |= _options(words)
    yield found


def _split(args: Sequence[str]) -> list[list[str]]:
    """Splits the flags at each separate `:`."""
    found: list[list[str]] = [[]]
    for word in args:
        if word == ":":
            found.append([])
        else:
            found[-1].append(word)
    return found


def parse_time_s(text: str) -> int | None:
    """Returns the seconds of a time as Slurm writes it: minutes, MM:SS, HH:MM:SS, D-HH[:MM[:SS]]. Returns None for
    any other text, 0 for UNLIMITED."""
    if text.upper() in ("UNLIMITED", "INFINITE", "-1"):
        return 0
    found = re.fullmatch(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", text)
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
    return {option.name: option.value for option in parse_options(words) if option.name}


def _range(text: str) -> tuple[int, int] | None:
    """Returns (smallest, largest) number of `2-4` or `1,3,5`; None for what can't be read."""
    found = [_NODES.fullmatch(part) for part in text.split(",")]
    if None in found:
        return None
    ends = [
        (_times(match[1], match[2]), _times(match[3] or match[1], match[4] if match[3] else match[2]))
        for match in found
        if match
    ]
    return min(least for least, _ in ends), max(most for _, most in ends)


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,9}", text) else None


def _times(number: str, letter: str) -> int:
    return int(number) * _TIMES[letter.lower()]


def _count(listed: Sequence[tuple[str, int]]) -> int:
    return sum(count for _, count in listed)


def _over(amount: int, on_each: int) -> int:
    """Returns how many nodes the amount needs at `on_each` a node; 0 where `on_each` is 0."""
    return -(-amount // on_each) if on_each else 0
