"""Checks a submission before sbatch runs: all errors at once, each with its field. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from headway.domain.access.credential_redaction import masked_lines, masked_names
from headway.domain.cluster import Cluster, Partition
from headway.domain.slurm.nodes_and_jobs import NodeState
from headway.domain.slurm.sbatch_options import DOS_LINES_HINT
from headway.domain.teams import Team
from headway.errors import Fault
from headway.jobs.explain.phrases import format_duration
from headway.jobs.submission.node_capacity import NodeCapacity
from headway.jobs.submission.requested_resources import RequestedResources, parse_time_s, requested_resources
from headway.jobs.submission.submit import MAX_SCRIPT_BYTES, export_fault
from headway.schemas.submission.submit_request import SubmitIn

_UNITS = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)B?", re.IGNORECASE)
_START = re.compile(
    r"to start at (?P<at>\S+)(?: using (?P<cpus>\d+) processors)?(?: on nodes? (?P<nodes>\S+))?(?: in partition (?P<part>\S+))?"
)
_HORIZON_S = 366 * 86400
# Words in sbatch's refusals -> the field that they refer to.
_ABOUT = (
    ("partition", "partition"), ("account", "account"), ("time limit", "time"), ("QOS", "account"), ("qos", "account"),
    ("Node count", "nodes"), ("node configuration", "gpus"), ("processors requested", "nodes"), ("GRES", "gpus"),
    ("gres", "gpus"), ("Memory", "memory"), ("dependency", "after"), ("option", "script"), ("script", "script"),
)  # fmt: skip


def submission_faults(request: SubmitIn, cluster: Cluster, user: str, offer: NodeCapacity) -> list[Fault]:
    """Returns all faults, each with its field: script, args, flags, partition, nodes, gpus, cpus, memory, time,
    account."""
    if len((request.script or "").encode()) > MAX_SCRIPT_BYTES:  # a longer script is not checked further
        words = f"it is longer than {MAX_SCRIPT_BYTES // 2**20} MiB, Slurm's limit"
        return [Fault("script", words, "move data into a file that the script reads")]
    wants = requested_resources(request)
    found = [*_script(request), *_masked(request)]
    for number, want in enumerate(wants, start=1):
        own = [*_partition(want, cluster, user), *_size(want, cluster, offer)]
        found += own if len(wants) == 1 else [_of_component(fault, number, len(wants)) for fault in own]
    gpus = sum(want.gpus for want in wants)
    if gpus > offer.total_gpus and not any((want.gpus_per_node or 0) > offer.gpus for want in wants):
        found.append(
            Fault("gpus", f"the job requests {gpus} GPUs; {cluster.name} has {offer.total_gpus}", "request fewer")
        )
    kept = export_fault(request)
    return [*found, *_team(wants, cluster, user), *([kept] if kept else [])]


def _of_component(fault: Fault, number: int, of: int) -> Fault:
    return replace(fault, message=f"component {number} of {of}: {fault.message}")


def parse_test_only(output: str, now: float) -> tuple[int, str, str]:
    """Returns (unix seconds, nodes, partition) from the output of sbatch --test-only under SLURM_TIME_FORMAT=%s.
    The time is 0 and nodes are "" where it does not say, or where it names the end of a permanent reservation
    (spare nodes), when no job will start."""
    found = _START.search(output)
    if found is None:
        return 0, "", ""
    at, partition = int(found["at"]) if found["at"].isdigit() else 0, found["part"] or ""
    return (0, "", partition) if at > now + _HORIZON_S else (at, found["nodes"] or "", partition)


def explain_unavailable(output: str, request: SubmitIn, cluster: Cluster, nodes: Iterable[NodeState]) -> str:
    """Returns why --test-only refuses a job that sbatch itself accepts and lets wait: --test-only considers only
    nodes in service. Returns "" where all nodes are in service, or the message is another one."""
    if "node configuration is not available" not in output:
        return ""
    suitable = {
        node
        for want in requested_resources(request)
        for partition in requested_partitions(want, cluster)
        for node in partition.nodes
    }
    serve = {node.name for node in nodes if node.name in suitable and node.usable and not node.absent}
    if len(serve) == len(suitable):
        return ""
    return f"the job would wait for nodes to return to service: {len(serve)} of {len(suitable)} are in service"


def sbatch_fault(output: str, hint: str) -> Fault:
    """Returns sbatch's own words as a fault of the field that they refer to."""
    lines = [line.partition("error: ")[2] or line for line in output.splitlines() if line.strip()]
    text = "; ".join(dict.fromkeys(line.removeprefix("allocation failure: ") for line in lines)) or "sbatch refuses it"
    field = next((field for word, field in _ABOUT if word in text), "script")
    return Fault(field, text, hint)


def _script(request: SubmitIn) -> Iterator[Fault]:
    script = request.script
    if script is None:
        return
    if not script.strip():
        yield Fault("script", "there is no script", "paste a script or choose a file")
    elif not script.startswith("#!"):
        yield Fault("script", "the first line must name an interpreter", "begin with #!/bin/bash")
    elif "\r\n" in script:
        yield Fault(
            "script",
            "the script has Windows line ends, which sbatch refuses",
            DOS_LINES_HINT,
        )


def _masked(request: SubmitIn) -> Iterator[Fault]:
    """Yields a fault for each secret value that was hidden when the script was shown: it can't be sent like that."""
    again = "type the value again"
    for line, name in masked_lines(request.script or ""):
        yield Fault("script", f"line {line}: the value of {name} was removed because it is a secret", again)
    for field, words in (("args", request.script_args), ("flags", request.args)):
        for name in masked_names(words):
            yield Fault(field, f"the value of {name} was removed because it is a secret", again)


def _named(want: RequestedResources) -> list[str]:
    return [name for name in want.options.get("partition", "").split(",") if name]


def requested_partitions(want: RequestedResources, cluster: Cluster, found: str = "") -> list[Partition]:
    """Returns the partitions that the options name, from which Slurm takes the one where the job starts first.
    Where they name none, returns the partition `found` that sbatch reported, else the default."""
    names = _named(want) or [found] * bool(found)
    return [partition for partition in cluster.partitions if (partition.name in names if names else partition.default)]


def _partition(want: RequestedResources, cluster: Cluster, user: str) -> Iterator[Fault]:
    there = [partition.name for partition in cluster.partitions]
    unknown = [name for name in _named(want) if name not in there]
    if unknown:
        yield Fault("partition", f"{cluster.name} has no partition {unknown[0]!r}", f"it has {', '.join(there)}")
        return
    chosen = requested_partitions(want, cluster)
    mine = {team.name for team in cluster.teams if user in team.users}
    if chosen and all(partition.teams and not mine.intersection(partition.teams) for partition in chosen):
        yield Fault(
            "partition", f"{chosen[0].name} is only for {', '.join(chosen[0].teams)}", "choose another partition"
        )
    yield from _limits(want, chosen)


def _limits(want: RequestedResources, chosen: Sequence[Partition]) -> Iterator[Fault]:
    if not chosen:
        return
    largest = max(len(partition.nodes) for partition in chosen)
    if want.nodes is not None and want.nodes > largest:
        yield Fault("nodes", f"the job requests {want.nodes} nodes; {chosen[0].name} has {largest}", "request fewer")
    text = want.options.get("time", "")
    time_s = parse_time_s(text) if text else None
    if text and time_s is None:
        yield Fault("time", f"{text[:40]!r} is not a time limit", "give minutes, HH:MM:SS or D-HH:MM:SS")
    longest = (
        None
        if any(partition.max_time_s is None for partition in chosen)
        else max(partition.max_time_s or 0 for partition in chosen)
    )
    if time_s is not None and longest is not None and (time_s == 0 or time_s > longest):
        asks = "no limit" if time_s == 0 else format_duration(time_s)
        yield Fault(
            "time", f"the job requests {asks}; {chosen[0].name} allows {format_duration(longest)}", "request less"
        )


def _size(want: RequestedResources, cluster: Cluster, offer: NodeCapacity) -> Iterator[Fault]:
    gpus = want.gpus_per_node or 0
    if gpus > offer.gpus:
        has = f"a node of {cluster.name} has {offer.gpus}" if offer.gpus else f"{cluster.name} has none"
        yield Fault("gpus", f"the job requests {gpus} GPUs per node; {has}", "request more nodes instead")
    types = offer.gpu_types
    strange = [kind for kind in want.gpu_types if kind.lower() not in {gpu_type.lower() for gpu_type in types}]
    if strange and types:
        yield Fault("gpus", f"{cluster.name} has no GPU of type {strange[0]}", f"it has {' and '.join(types)}")
    cpus = _number(want.options.get("cpus-per-task", "")) * max(1, _number(want.options.get("ntasks-per-node", "")))
    if cpus > offer.cpus:
        yield Fault("cpus", f"the job requests {cpus} CPUs per node; a node has {offer.cpus}", "request fewer")
    memory = _mib(want.options.get("mem", ""))
    if memory > offer.memory_mib:
        yield Fault("memory", f"the job requests {memory // 1024} GiB per node; a node has {offer.memory_mib // 1024}")


def _team(wants: Sequence[RequestedResources], cluster: Cluster, user: str) -> Iterator[Fault]:
    by_name = {team.name: team for team in cluster.teams}
    mine = [team.name for team in cluster.teams if user in team.users]
    if not mine:
        yield Fault(
            "account",
            f"{user} is in no team of {cluster.name}",
            "ask an admin to add you to a team in the cluster file",
        )
        return
    by_team: dict[str, list[RequestedResources]] = {}
    for want in wants:
        by_team.setdefault(want.options.get("account", "") or mine[0], []).append(want)
    for name, parts in by_team.items():
        if name in mine:
            own = [want for want in parts if not want.options.get("qos")]  # limits of a QOS replace those of the team
            yield from _caps(by_name[name], own)
            yield from _user_caps(by_name[name], own, cluster, user)
        else:
            there = "does not include you" if name in by_name else f"does not exist on {cluster.name}"
            yield Fault("account", f"team {name!r} {there}", f"you are in {', '.join(mine)}")


def _caps(team: Team, parts: Sequence[RequestedResources]) -> Iterator[Fault]:
    """Yields a fault for each limit of the team that one job exceeds."""
    gpus = sum(want.gpus for want in parts)
    if team.gpus is not None and gpus > team.gpus:
        yield Fault(
            "gpus", f"the job requests {gpus} GPUs; team {team.name} may hold {team.gpus} at once", "request fewer"
        )
    hours = sum(want.gpus * (parse_time_s(want.options.get("time", "")) or 0) / 3600 for want in parts)
    if team.gpu_hours is not None and hours > team.gpu_hours.hours:
        cap = f"team {team.name} has {team.gpu_hours.hours.normalize():f} a {team.gpu_hours.per}"
        yield Fault("time", f"the job may use {hours:.4g} GPU hours; {cap}", "request less time or fewer GPUs")


def _user_caps(team: Team, parts: Sequence[RequestedResources], cluster: Cluster, user: str) -> Iterator[Fault]:
    """Yields a fault if one job requests more GPUs than its user may hold: in the partition, or else in the team."""
    for want in parts:
        chosen = requested_partitions(want, cluster)
        limits = [(p.per_user.gpus or team.limits_of(user).gpus or want.gpus, p.name) for p in chosen]
        most, partition = max(limits, default=(want.gpus, ""))
        if want.gpus > most:
            held = f"{user} may hold {most} at once in partition {partition}"
            yield Fault("gpus", f"the job requests {want.gpus} GPUs; {held}", "request fewer")


def _number(text: str) -> int:
    """Returns the number, or 0 for any other text. A number too long to convert counts as 10**9, more than any
    node has."""
    if not re.fullmatch("[0-9]+", text):
        return 0
    return int(text) if len(text) < 10 else 10**9


def _mib(text: str) -> int:
    """Returns an amount of memory in MiB, or 0 for a text that is not one."""
    found = _MEMORY.fullmatch(text)
    return int(min(float(found[1]), 1e15) * _UNITS[found[2].upper() or "M"]) if found else 0
