"""scontrol show config of both sides."""

from __future__ import annotations

from collections.abc import Iterator

from headway.slurm_import.comparison.differences import Context, Finding, finding
from headway.slurm_import.comparison.slurm_state import equal
from headway.slurm_import.keys_not_carried import CLUSTER_REASONS
from headway.slurm_import.verdicts import Kind

# Facts about the running daemon
_NOT_COMPARED = frozenset(("BOOT_TIME", "HASH_VAL", "NEXT_JOB_ID", "SLURM_CONF", "SLURM_VERSION", "Slurmctld"))
_COMPUTED = {
    "jobdefaults": "Headway gives each GPU its part of the node's CPUs and memory",
    "maxnodecount": "the number of nodes",
    "maxdbdmsgs": "Slurm computes it from the numbers of nodes and jobs",
}
_SHOWN_AS = {"defmempernode": "defmempercpu"}  # key of scontrol -> key of slurm.conf
# Keys of local containers, which have fewer cores than their plan
_OF_CONTAINERS = ("constraincores", "taskplugin", "slurmdparameters")
_GPU_TRES = frozenset(("gres/gpumem", "gres/gpuutil"))
_FROM_FILE, _TITLE = "From the cluster file.", "Written by Headway"


def findings(context: Context) -> Iterator[Finding]:
    """Yields each key of the configuration."""
    old, new = context.old.config, context.new.config
    if not old or not new:
        return
    for key in sorted((old.keys() | new.keys()) - _NOT_COMPARED):
        left, right = old.get(key), new.get(key)
        same = equal(left or "", right or "")
        reason = "" if same else _reason(context, key.lower(), left, right)
        yield finding("config", "", key, left or "", right or "", reason, equal=same)


def _reason(context: Context, key: str, old: str | None, new: str | None) -> str:
    verdict = context.reasons.of("", "", key)
    if key == "slurmctldhost":
        return "machines have the cluster's names and addresses"
    if verdict is not None and verdict.kind is Kind.NOT_CARRIED:
        return verdict.why
    if key in _OF_CONTAINERS and context.rehearsal:
        return "the rehearsal's containers have fewer cores than their plan"
    if key == "accountingstoragetres" and set((new or "").split(",")) - set((old or "").split(",")) <= _GPU_TRES:
        return "Slurm adds memory and use of the GPUs"
    for_partitions = context.reasons.for_partitions(key)
    if verdict is not None or for_partitions:
        return for_partitions
    if key in _COMPUTED:
        return _COMPUTED[key]
    own = next((name for name in (key, _SHOWN_AS.get(key, "")) if name in context.new.own_keys), "")
    if own:
        return _own_reason(key, context.new.own_keys[own])
    return context.version_reason(old, new)


def _own_reason(key: str, comment: str) -> str:
    """Returns why a key is in Headway's file and not in the site's. `comment`: the line above the key."""
    if comment == _FROM_FILE:
        return "the cluster file sets it, the site does not"
    known = CLUSTER_REASONS.get(key)
    why = known.why if known is not None and known.why.startswith("Headway") else ""
    why = comment if comment and not comment.startswith(_TITLE) else why
    if not why:
        return "Headway sets it, the site does not"
    return why if why.startswith("Headway") else f"Headway sets it: {why}"
