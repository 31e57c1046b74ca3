"""What a changed slurm.conf disturbs when it is activated. Pure: from the two texts."""

from __future__ import annotations

from dataclasses import dataclass

from headway.catalog.releases import slurm_release
from headway.domain.changeset import Disturbs
from headway.domain.slurm.hostlist import expand
from headway.render.slurm import codec

# Read once at the start of the controller, in every version: who it is, where it listens, what it keeps its state in.
_RESTART_ALWAYS = frozenset(
    [
        "authtype",
        "authalttypes",
        "authaltparameters",
        "authinfo",
        "clustername",
        "credtype",
        "slurmctldhost",
        "slurmctldport",
        "slurmdport",
        "slurmuser",
        "statesavelocation",
        "slurmctldpidfile",
        "communicationparameters",
    ]
)
# Keys 22.05 takes up only at a start, by its own manual.
_RESTART_2205 = _RESTART_ALWAYS | frozenset(
    [
        "accountingstoragetype",
        "accountingstoragetres",
        "accountingstoragehost",
        "accountingstorageenforce",
        "grestypes",
        "jobacctgathertype",
        "jobacctgatherfrequency",
        "maxarraysize",
        "maxjobcount",
        "mpidefault",
        "plugindir",
        "preempttype",
        "prioritytype",
        "proctracktype",
        "prologflags",
        "schedulertype",
        "selecttype",
        "selecttypeparameters",
        "slurmctldparameters",
        "slurmdparameters",
        "slurmdspooldir",
        "switchtype",
        "taskplugin",
        "topologyplugin",
        "launchparameters",
        "jobcomptype",
        "treewidth",
    ]
)

# Of a node: slurmctld ends what runs there as soon as one of them is another ("due to change in socket/core configuration of
# allocated nodes", "invalid GRES configuration"; src/slurmctld/read_config.c, job_mgr.c).
_SHAPE = ("cpus", "boards", "socketsperboard", "sockets", "corespersocket", "threadspercore", "gres")

_MOST_NODES = 65536  # of one line: Slurm's own limit (MAX_SLURM_NODES)


@dataclass(frozen=True, slots=True)
class AbortingChanges:
    """What a changed slurm.conf ends the jobs of, without asking anybody: they become NODE_FAIL."""

    partitions: frozenset[str] = frozenset()  # that are not there any more, their waiting jobs too
    nodes: frozenset[str] = frozenset()  # that have other processors or GPUs

    def __bool__(self) -> bool:
        return bool(self.partitions or self.nodes)


def unreadable(text: str) -> str:
    """Why a slurm.conf that may have been edited by hand can't be compared with another; "" where it can. The rest of this
    module raises ValueError for it."""
    try:
        _shapes(text)
    except ValueError as error:
        return str(error)
    return ""


def aborting_changes(old: str, new: str) -> AbortingChanges:
    """From the two texts. No old text: nothing runs."""
    partitions = frozenset(_lines(old, "partitionname")) - _lines(new, "partitionname").keys()
    before, after = _shapes(old), _shapes(new)
    nodes = frozenset(name for name in before.keys() & after.keys() if before[name] != after[name])
    return AbortingChanges(frozenset(name for name in partitions if name.lower() != "default"), nodes)


def _shapes(text: str) -> dict[str, tuple[str, ...]]:
    """Node -> its processors and GPUs."""
    return {
        name: tuple(line.get(key) or "" for key in _SHAPE)
        for names, line in _lines(text, "nodename").items()
        for name in expand(names, _MOST_NODES)
        if name.lower() != "default"
    }


def _lines(text: str, kind: str) -> dict[str, codec.Line]:
    return {line.pairs[0][1]: line for line in codec.parse_lines(text) if line.first == kind}


def changed_keys(old: str, new: str) -> tuple[str, ...]:
    """Cluster-wide keys (lower case) whose value differs, sorted."""
    before, after = codec.settings(codec.parse_lines(old)), codec.settings(codec.parse_lines(new))
    return tuple(sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key)))


def impact_of_change(old: str, new: str, slurm_version: str) -> Disturbs:
    """The mildest way that makes the change take hold. No old text: nothing runs that could be disturbed."""
    if not old or old == new:
        return Disturbs.NOTHING
    keys = set(changed_keys(old, new))
    nodes = _group(old, "nodename") != _group(new, "nodename")
    partitions = _group(old, "partitionname") != _group(new, "partitionname")
    if not (keys or nodes or partitions):
        return Disturbs.NOTHING
    if slurm_release(slurm_version).reconfigures_everything:
        return Disturbs.CONTROLLER_RESTART if keys & _RESTART_ALWAYS else Disturbs.RECONFIGURE
    return Disturbs.CONTROLLER_RESTART if nodes or keys & _RESTART_2205 else Disturbs.RECONFIGURE


def _group(text: str, kind: str) -> list[tuple[tuple[str, str], ...]]:
    return [line.pairs for line in codec.parse_lines(text) if line.first == kind]
