"""Computes what the activation of a changed slurm.conf disturbs, from the old and the new text."""

from __future__ import annotations

from dataclasses import dataclass

from headway.catalog.node_images import slurm_release
from headway.domain.changeset import Disturbs
from headway.domain.slurm.hostlist import expand
from headway.render.slurm import conf_syntax

# Every Slurm version reads these keys only at the start of the controller: identity, addresses, state folder.
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
# Keys that 22.05 reads only at a start, according to its manual.
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

# Keys of a node. slurmctld ends the node's jobs as soon as one of them changes ("due to change in socket/core
# configuration of allocated nodes", "invalid GRES configuration"; src/slurmctld/read_config.c, job_mgr.c).
_SHAPE = ("cpus", "boards", "socketsperboard", "sockets", "corespersocket", "threadspercore", "gres")

_MOST_NODES = 65536  # limit for one line: Slurm's own (MAX_SLURM_NODES)


@dataclass(frozen=True, slots=True)
class AbortingChanges:
    """Partitions and nodes whose jobs a changed slurm.conf ends without a warning: the jobs become NODE_FAIL."""

    partitions: frozenset[str] = frozenset()  # partitions that no longer exist; their pending jobs end too
    nodes: frozenset[str] = frozenset()  # nodes with other processors or GPUs

    def __bool__(self) -> bool:
        return bool(self.partitions or self.nodes)


def unreadable(text: str) -> str:
    """Returns why a slurm.conf, which may have been edited by hand, can't be compared with another; "" if it can. The
    other functions of this module raise ValueError for such a text."""
    try:
        _shapes(text)
    except ValueError as error:
        return str(error)
    return ""


def aborting_changes(old: str, new: str) -> AbortingChanges:
    """Returns what the change from `old` to `new` ends. An empty `old` means that nothing runs."""
    partitions = frozenset(_lines(old, "partitionname")) - _lines(new, "partitionname").keys()
    before, after = _shapes(old), _shapes(new)
    nodes = frozenset(name for name in before.keys() & after.keys() if before[name] != after[name])
    return AbortingChanges(frozenset(name for name in partitions if name.lower() != "default"), nodes)


def _shapes(text: str) -> dict[str, tuple[str, ...]]:
    """Returns the values of the _SHAPE keys (processors, GPUs) by node name."""
    return {
        name: tuple(line.get(key) or "" for key in _SHAPE)
        for names, line in _lines(text, "nodename").items()
        for name in expand(names, _MOST_NODES)
        if name.lower() != "default"
    }


def _lines(text: str, kind: str) -> dict[str, conf_syntax.ConfLine]:
    return {line.pairs[0][1]: line for line in conf_syntax.parse_lines(text) if line.first == kind}


def changed_keys(old: str, new: str) -> tuple[str, ...]:
    """Returns the cluster-wide keys (lower case, sorted) whose values differ."""
    before, after = (
        conf_syntax.settings(conf_syntax.parse_lines(old)),
        conf_syntax.settings(conf_syntax.parse_lines(new)),
    )
    return tuple(sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key)))


def impact_of_change(old: str, new: str, slurm_version: str) -> Disturbs:
    """Returns the mildest way to activate the change. An empty `old` means that nothing runs."""
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
    return [line.pairs for line in conf_syntax.parse_lines(text) if line.first == kind]
