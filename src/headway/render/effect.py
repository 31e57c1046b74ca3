"""What taking up a changed slurm.conf disturbs: pure, from the two texts."""

from __future__ import annotations

from headway.domain.change import Disturbs
from headway.render import conf
from headway.render.version import version

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


def changed_keys(old: str, new: str) -> tuple[str, ...]:
    """Cluster-wide keys (lower case) whose value differs, sorted."""
    before, after = conf.settings(conf.parse(old)), conf.settings(conf.parse(new))
    return tuple(sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key)))


def effect_of(old: str, new: str, slurm_version: str = "24.11") -> Disturbs:
    """The mildest way that makes the change take hold. No old text: nothing runs that could be disturbed."""
    if not old or old == new:
        return Disturbs.NOTHING
    keys = set(changed_keys(old, new))
    nodes = _group(old, "nodename") != _group(new, "nodename")
    partitions = _group(old, "partitionname") != _group(new, "partitionname")
    if not (keys or nodes or partitions):
        return Disturbs.NOTHING
    if version(slurm_version).reconfigure_all:
        return Disturbs.CONTROLLER_RESTART if keys & _RESTART_ALWAYS else Disturbs.RECONFIGURE
    return Disturbs.CONTROLLER_RESTART if nodes or keys & _RESTART_2205 else Disturbs.RECONFIGURE


def _group(text: str, kind: str) -> list[tuple[tuple[str, str], ...]]:
    return [line.pairs for line in conf.parse(text) if line.first == kind]
