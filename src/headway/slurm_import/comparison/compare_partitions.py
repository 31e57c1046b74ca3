"""scontrol show partition of both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headway.slurm_import.comparison.differences import REHEARSAL, Context, Finding, finding
from headway.slurm_import.comparison.slurm_state import equal
from headway.slurm_import.values import holds_below
from headway.slurm_import.verdicts import Kind

_HARDWARE = ("totalnodes", "totalcpus", "tres")
# Keys that Headway gives to partitions where the site does not, and why
_HEADWAYS = {
    "defmempercpu": "Headway gives each job a default memory",
    "defmempernode": "Headway gives each job a default memory, for each CPU",
    "jobdefaults": "Headway gives each GPU its part of the node's CPUs and memory",
    "tresbillingweights": "Headway weights resources by GPUs where the site has no weights",
    "gracetime": "Headway gives preempted jobs two minutes, where the partition has no grace_time",
    "preemptmode": "Headway gives each partition its mode",
}
# Keys that not all releases print
_NEWER = frozenset((
    "exclusivetopo", "maxcpuspersocket", "nodesets", "resumetimeout", "suspendtimeout", "suspendtime", "powerdownonidle",
    "topology",
))  # fmt: skip


def findings(context: Context) -> Iterator[Finding]:
    """Yields each key of each partition."""
    old, new = context.old.partitions, context.new.partitions
    if not old or not new:
        return
    made = set()
    for name, pairs in old.items():
        place = context.reasons.partitions.get(name, name)
        made.add(place)
        if place in new:
            yield from _one(context, name, pairs, new[place])
        else:
            why = context.reasons.not_carried("partitionname", name, "")
            yield finding("partition", name, "", "it is there", "", why, equal=False)
    for name in new.keys() - made:
        yield finding("partition", name, "", "", "it is there", "", equal=False)


def _one(context: Context, name: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Finding]:
    for key in sorted((old.keys() | new.keys()) - {"PartitionName"}):
        left, right = old.get(key), new.get(key)
        same = equal(left or "", right or "")
        reason = "" if same else _reason(context, name, key.lower(), old, new)
        if not same and not reason and key.lower() in _NEWER and None in (left, right):
            reason = context.version_reason(left, right)
        yield finding("partition", name, key, left or "", right or "", reason, equal=same)


def _reason(context: Context, name: str, key: str, old: Mapping[str, str], new: Mapping[str, str]) -> str:
    verdict = context.reasons.of("partitionname", name, key)
    if verdict is not None and verdict.kind is Kind.NOT_CARRIED:
        return verdict.why
    if key == "nodes":
        return "nodes have names of slots"
    if key in _HARDWARE:
        return _hardware_reason(context, old, new)
    if key in ("allowaccounts", "denyaccounts") and _allowed(context, old, mapped=True) == _allowed(context, new):
        return "the same accounts: a list of those that may"
    if key == "qos" and verdict is not None and new.get("QoS", "") == f"partition.{new['PartitionName'].lower()}":
        return "the name of the QOS with the partition's limits"
    if verdict is None and (reason := context.reasons.for_partitions(key)):
        shown = {name.lower(): value for name, value in context.old.config.items()}
        given = {name.lower(): value for name, value in new.items()}.get(key, "")
        return reason if key == "jobdefaults" or given in ("", shown.get(key, "")) else ""
    if verdict is None and context.reasons.of("", "", key) is None:
        return _HEADWAYS.get(key, "")
    return ""


def _hardware_reason(context: Context, old: Mapping[str, str], new: Mapping[str, str]) -> str:
    if context.rehearsal:
        return REHEARSAL
    one, other = (
        {part for part in side.get("TRES", "").split(",") if not part.startswith("billing=")} for side in (old, new)
    )
    return "billing follows TRESBillingWeights" if one == other else ""


def _allowed(context: Context, partition: Mapping[str, str], *, mapped: bool = False) -> set[str]:
    """Returns the teams with users whose jobs a partition takes. `mapped`: its accounts are those of the site."""
    teams = context.reasons.teams
    denied, allowed = partition.get("DenyAccounts", ""), partition.get("AllowAccounts", "ALL")
    listed = {part for part in (denied or allowed).split(",") if part}
    if mapped and holds_below(context.old.version):
        listed = set(context.old.accounts_below(listed))
    listed = {teams.get(name, name) for name in listed} if mapped else listed
    with_users = {
        teams.get(account, account) for account, user in context.old.associations if user and account != "root"
    }
    if denied:
        return with_users - listed
    return with_users if allowed.upper() == "ALL" else with_users & listed
