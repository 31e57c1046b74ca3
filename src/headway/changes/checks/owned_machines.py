"""Judges surveys of machines that the user owns: what stops an apply, what only causes a warning, and where plan and
machine differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headway.catalog.advisories import unfixed_advisories
from headway.catalog.node_images import IMAGES
from headway.changes.checks.gpu_drivers import driver_problems
from headway.changes.checks.host_containers import DeclaredHosts, container_problems, runs_in_container, switch_problems
from headway.changes.checks.network_policy import network_policy_problems
from headway.changes.checks.state_folder import state_folder_problems
from headway.changes.checks.uid_conflicts import uid_problems
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import HostProblem
from headway.domain.machines.survey import DetectedHardware, DetectedMount, Difference, Survey
from headway.domain.slurm.hostlist import compress
from headway.render.slurm.hardware.node_hardware import gpu_type
from headway.render.system.firewall import PORTS
from headway.validation.syntax_rules import join_words

ARCHITECTURE = "x86_64"
_ARM, _GRACE = "aarch64", " (as NVIDIA's Grace: GH200, GB200, GB300)"
LEAST_MIB = {"head": 1500, "node": 700}
ROOM_MIB = 5000  # free space for unpacking the packages
ROOM_LEFT_MIB = 500  # free space once they are installed
CLOCK_WARN_S, CLOCK_STOP_S = 3.0, 120.0  # MUNGE accepts no message older than five minutes
_ALMOST = 0.9  # share of the plan's memory: firmware and kernel reserve a part
_SLURM = frozenset(("slurmctld", "slurmd", "slurmdbd"))
_HEADS_OWN = frozenset(("mariadb", "mysql", "prometheus"))
_PACKAGES = {"slurm": ("slurmd", "slurmctld", "slurm-wlm-basic-plugins"), "munge": ("munge",)}


@dataclass(frozen=True)
class SurveyResult:
    """The result of judging the surveys."""

    problems: tuple[HostProblem, ...]  # a fatal problem stops an apply before it has changed anything
    differences: tuple[Difference, ...]
    found: Mapping[str, DetectedHardware]  # machine -> the hardware to use for it
    nfs: tuple[str, ...]  # which of home and scratch the head must export
    contained: frozenset[str] = frozenset()  # the machines that run in a container on their host


@dataclass(frozen=True)
class EarlierFindings:
    """What is stored from earlier applies, and the id of this server."""

    server: str
    uids: Mapping[str, int]
    found: Mapping[str, DetectedHardware]  # hardware of the machines that this cluster has claimed already
    nfs: tuple[str, ...]
    assigned_uids: frozenset[str] = (
        frozenset()
    )  # users who have their uid already; `uids` holds for the others what they would get
    run_in: DeclaredHosts = field(default_factory=DeclaredHosts)


def evaluate_surveys(cluster: Cluster, surveys: Mapping[str, Survey], known: EarlierFindings) -> SurveyResult:
    """Returns the judgement of all surveys. `surveys`: those of the machines that answered, by their names in the
    cluster."""
    problems: list[HostProblem] = []
    differences: list[Difference] = []
    found: dict[str, DetectedHardware] = dict(known.found)
    contained = frozenset(n for n, survey in surveys.items() if runs_in_container(cluster, survey, known.run_in))
    for name, survey in surveys.items():
        problems += _machine(cluster, survey, known, contained=name in contained)
        kept = known.found.get(name)
        less = _less(kept, survey.found) if kept else ""
        if less:
            what = f"has {less} than when the cluster took it"
            problems.append(_warn(survey, what, "Slurm still counts with the former hardware: repair the machine"))
        elif kept is None or _more(kept, survey.found):
            found[name] = survey.found
        if name not in cluster.heads:
            differences += _differences(cluster, survey.found if not less else kept or survey.found, name)
    nfs, troubles = _storage(cluster, surveys, known)
    problems += [*troubles, *state_folder_problems(cluster, surveys), *_twice(surveys)]
    problems += _versions({name: survey for name, survey in surveys.items() if name not in contained})
    return SurveyResult(tuple(_grouped(problems)), tuple(differences), found, nfs, contained)


def _stop(survey: Survey, what: str, fix: str) -> HostProblem:
    return HostProblem(f"{survey.machine} ({survey.address}) {what}", fix)


def _warn(survey: Survey, what: str, fix: str) -> HostProblem:
    return HostProblem(f"{survey.machine} ({survey.address}) {what}", fix, fatal=False)


def _machine(cluster: Cluster, survey: Survey, known: EarlierFindings, *, contained: bool) -> Iterator[HostProblem]:
    holder = (survey.claim.cluster, survey.claim.server) if survey.claim else None
    # A machine that was claimed and has lost its mark still belongs to this cluster.
    ours = holder == (cluster.name, known.server) or (holder is None and survey.machine in known.found)
    yield from _holder(cluster, survey, ours=ours)
    if survey.architecture != ARCHITECTURE:
        yield _stop(
            survey,
            f"has architecture {survey.architecture}{_GRACE if survey.architecture == _ARM else ''}, and Headway runs on "
            f"{ARCHITECTURE} only",
            "leave the machine out",
        )
    if survey.missing_controllers:
        problem = _warn if ours else _stop
        lacks = f"cgroup v2 without the controller{'s' * (len(survey.missing_controllers) > 1)}"
        yield problem(
            survey,
            f"has {lacks} {join_words(survey.missing_controllers, 'and')}, by which Slurm limits jobs",
            "boot it without cgroup_disable=memory and without cgroup v1: systemd.unified_cgroup_hierarchy=1",
        )
    yield from switch_problems(survey, known.run_in)
    yield from container_problems(cluster, survey, known.run_in) if contained else _system(cluster, survey)
    yield from _sizes(cluster, survey, ours=ours)
    if not ours:
        yield from _there_already(cluster, survey)
    yield from uid_problems(cluster, survey, known.uids, known.assigned_uids)
    yield from _devices(cluster, survey, known.found.get(survey.machine))
    off = abs(survey.clock_off_s)
    if off > CLOCK_WARN_S:
        ahead = "ahead of" if survey.clock_off_s > 0 else "behind"
        problem = _stop if off > CLOCK_STOP_S else _warn
        yield problem(
            survey,
            f"has a clock {off:.0f} s {ahead} the server's",
            "set up time synchronization (systemd-timesyncd, chrony)",
        )
    if not survey.firewall:
        yield _stop(
            survey,
            "has a kernel without nf_tables",
            "boot a kernel with nf_tables: the firewall of Slurm's ports needs it",
        )
    yield from network_policy_problems(cluster, survey)


def _holder(cluster: Cluster, survey: Survey, *, ours: bool) -> Iterator[HostProblem]:
    claim = survey.claim
    if claim is None:
        return
    if not ours:
        whose = f"cluster {claim.cluster}" + (" of another Headway server" if claim.cluster == cluster.name else "")
        yield _stop(
            survey,
            f"is held by {whose}, as {claim.machine}",
            f"headway down {claim.cluster} returns it; if that cluster no longer exists, remove /etc/headway/held-by there",
        )
    elif claim.machine != survey.machine and claim.machine not in cluster.machine_names:
        count = len(cluster.slot_names)
        yield _stop(
            survey,
            f"is {claim.machine} of this cluster, and the file has no such node any more",
            f"headway scale {cluster.name} {count} with the previous file removes it after its jobs end; then change hosts",
        )
    elif claim.machine != survey.machine:
        yield _stop(
            survey,
            f"is {claim.machine} of this cluster already",
            "remove its second address from hosts, or check the server's state folder",
        )


def _system(cluster: Cluster, survey: Survey) -> Iterator[HostProblem]:
    if survey.system == cluster.image:
        return
    debian = IMAGES[cluster.image].debian
    tested = {image.name: image.debian for image in IMAGES.values() if image.tested_on_owned_machines}
    if survey.system in tested:
        yield _stop(
            survey,
            f"runs {tested[survey.system]}, and image: {cluster.image} is {debian}",
            f"give image: {survey.system} if all machines run that",
        )
    elif not survey.packages:
        yield _stop(survey, f"runs {survey.system_name}, which has no Debian packages", f"install {debian}")
    else:
        yield _warn(
            survey,
            f"runs {survey.system_name}, which is untested; tested systems are {' and '.join(tested.values())}",
            f"it is set up like {debian}: its Slurm packages must have version {cluster.slurm_version}",
        )


def _sizes(cluster: Cluster, survey: Survey, *, ours: bool) -> Iterator[HostProblem]:
    least = LEAST_MIB["head" if survey.machine in cluster.heads else "node"]
    if survey.found.memory_mib < least:
        yield _stop(
            survey,
            f"has {survey.found.memory_mib} MiB of memory, at least {least} MiB are needed",
            "use a larger machine",
        )
    room = ROOM_LEFT_MIB if ours else ROOM_MIB
    if survey.free_mib < room:
        yield _stop(survey, f"has {survey.free_mib} MiB free in /var, {room} MiB are needed", "free space there")


def _there_already(cluster: Cluster, survey: Survey) -> Iterator[HostProblem]:
    """Yields problems for software that runs on the machine already and that Headway would install too."""
    slurm = survey.units & _SLURM
    if slurm:
        of = f" of cluster {survey.slurm_cluster}" if survey.slurm_cluster else ""
        yield _stop(
            survey,
            f"runs a Slurm{of} ({', '.join(sorted(slurm))})",
            "a node has one Slurm: stop and disable it there, or leave the machine out",
        )
    elif survey.slurm_cluster:
        yield _warn(
            survey,
            f"has a slurm.conf of cluster {survey.slurm_cluster}",
            "it is replaced, and restored when the cluster is taken down",
        )
    others = survey.units & _HEADS_OWN if survey.machine == cluster.head else frozenset()
    if others:
        yield _stop(
            survey,
            f"runs {', '.join(sorted(others))} already",
            "stop it, or use another machine as the head: the head needs the same service",
        )
    taken = sorted(set(PORTS) & survey.listening - {2049})
    if taken and not slurm and not others:
        yield _stop(
            survey,
            f"has a program listening on port {', '.join(map(str, taken))}",
            "stop the program: the cluster needs the port, and ss -ltnp shows its owner",
        )


def _devices(cluster: Cluster, survey: Survey, claimed: DetectedHardware | None) -> Iterator[HostProblem]:
    yield from driver_problems(cluster, survey, claimed)
    without = not {"nvidia-container-toolkit", "libnvidia-container1"} & set(survey.packages)
    if cluster.containers == "enroot" and survey.found.usable_gpus and without:  # built-in containers do not need it
        yield _warn(
            survey,
            "has no NVIDIA container toolkit",
            "install nvidia-container-toolkit: without it containers see no GPU",
        )
    down = [nic.name for nic in survey.found.nics if not nic.up]
    if down:
        yield _warn(
            survey,
            f"has fabric ports that are down: {', '.join(down)}",
            "check ibstat or ip link; jobs run without these ports",
        )


def _differences(cluster: Cluster, found: DetectedHardware, name: str) -> Iterator[Difference]:
    group = cluster.group_of.get(name)
    plan = cluster.largest_plan if group is None else group.plan
    gpus = found.usable_gpus
    there = f"{len(gpus)} x {gpu_type(plan, gpus[0].product)}" if gpus else "none"
    expected = f"{plan.gpus} x {plan.gpu_type}" if plan.gpus else "none"
    if there != expected:
        yield Difference(name, "GPUs", expected, f"{there} ({gpus[0].product})" if gpus else there)
    if found.cpus != plan.cpus:
        yield Difference(name, "CPUs", str(plan.cpus), str(found.cpus))
    if not plan.memory_mib * _ALMOST <= found.memory_mib <= plan.memory_mib / _ALMOST:
        yield Difference(name, "memory", _gib(plan.memory_mib), _gib(found.memory_mib))


def _gib(mib: int) -> str:
    return f"{mib / 1024:,.0f} GiB" if mib >= 10 * 1024 else f"{mib / 1024:,.1f} GiB"


def _less(kept: DetectedHardware, now: DetectedHardware) -> str:
    """Returns what the machine has less of than before, "" for nothing. Memory may vary by 2 %."""
    if len(now.usable_gpus) < len(kept.usable_gpus):
        return f"{len(kept.usable_gpus) - len(now.usable_gpus)} GPUs less"
    if now.cpus < kept.cpus:
        return f"{kept.cpus - now.cpus} CPUs less"
    return f"{kept.memory_mib - now.memory_mib} MiB of memory less" if now.memory_mib < kept.memory_mib * 0.98 else ""


def _more(kept: DetectedHardware, now: DetectedHardware) -> bool:
    """Returns whether the machine has other or more hardware than before. Memory may vary by 2 %, because its size
    changes a little with every kernel."""
    return (
        now.memory_mib > kept.memory_mib * 1.02
        or now.cpus > kept.cpus
        or now.gpus != kept.gpus
        or _ports(now) > _ports(kept)
        or (now.sockets, now.cores_per_socket, now.threads_per_core)
        != (kept.sockets, kept.cores_per_socket, kept.threads_per_core)
    )


def _ports(found: DetectedHardware) -> set[str]:
    """Returns the fabric devices whose ports are all up."""
    return {nic.name for nic in found.nics if nic.up} - {nic.name for nic in found.nics if not nic.up}


def _storage(
    cluster: Cluster, surveys: Mapping[str, Survey], known: EarlierFindings
) -> tuple[tuple[str, ...], list[HostProblem]]:
    """Returns which of home and scratch the head exports, and the problems. A folder that is the same on all machines is
    used as it is; the head exports the others. The decision is kept: machines added later must have what the first ones
    had."""
    nfs: list[str] = []
    problems: list[HostProblem] = []
    taken = bool(known.found)
    for where in (cluster.storage.home, cluster.storage.scratch):
        here = {name: survey.mounts.get(where) for name, survey in surveys.items()}
        if taken and where not in known.nfs:
            problems += _strangers(where, here, surveys)
        elif where in known.nfs or not _one_folder(here):
            nfs.append(where)
    if nfs and cluster.controllers > 1:
        problems.append(_gone_with_head(cluster, nfs))
    elif nfs and not taken:
        problems += _no_nfs(cluster, nfs, surveys)
    return tuple(nfs), problems


def _one_folder(here: Mapping[str, DetectedMount | None]) -> bool:
    """Returns whether all machines see the same folder. At most one of them may have it without a mount, as the file
    server itself does."""
    marks = {mount.mark if mount else "" for mount in here.values()}
    local = sum(not mount.kind for mount in here.values() if mount)
    return len(marks) == 1 and "" not in marks and local <= (1 if len(here) > 1 else 0)


def _strangers(
    where: str, here: Mapping[str, DetectedMount | None], surveys: Mapping[str, Survey]
) -> Iterator[HostProblem]:
    """Yields problems for machines that do not have the folder that most of the cluster's machines share."""
    marks: dict[str, list[str]] = {}
    for name, mount in here.items():
        marks.setdefault(mount.mark if mount else "", []).append(name)
    if len(marks) < 2:
        return
    most = max(marks.values(), key=len)
    for names in marks.values():
        if names is not most:
            for name in names:
                yield _stop(
                    surveys[name],
                    f"does not mount the {where} that the other machines share",
                    "mount it there too",
                )


def _no_nfs(cluster: Cluster, nfs: list[str], surveys: Mapping[str, Survey]) -> Iterator[HostProblem]:
    """Yields problems for kernels without the NFS server or client that the exports need."""
    what = " and ".join(nfs)
    fix = f"mount one {what} on every machine, or boot kernels with NFS"
    head = surveys.get(cluster.head)
    if head is not None and not head.nfs_server:
        yield _stop(
            head, f"has to export {what}, which the machines do not share, and its kernel has no NFS server", fix
        )
    for name, survey in surveys.items():
        if name != cluster.head and not survey.nfs_client:
            yield _stop(survey, f"has to mount the head's {what}, and its kernel has no NFS", fix)


def _gone_with_head(cluster: Cluster, nfs: list[str]) -> HostProblem:
    what = " and ".join(nfs)
    return HostProblem(
        f"{cluster.head} would export {what}, and with controllers: 2 the second head would lose it with the first",
        f"mount one {what} from another server on every machine, or leave controllers out",
    )


def _versions(surveys: Mapping[str, Survey]) -> Iterator[HostProblem]:
    """Yields a problem for each version that is known to be vulnerable, however many machines have it."""
    seen: dict[tuple[str, str, frozenset[str]], list[str]] = {}
    for name, survey in surveys.items():
        for program, packages in _PACKAGES.items():
            version = next((survey.packages[package] for package in packages if package in survey.packages), "")
            if version:
                seen.setdefault((program, version, survey.amended), []).append(name)
    for (program, version, amended), names in seen.items():
        for row in unfixed_advisories(program, version, amended):
            ids = row.cve[0] + (f" and {len(row.cve) - 1} more" if len(row.cve) > 1 else "")
            yield HostProblem(
                f"{program} {version} on {compress(names)} is vulnerable to {ids}: it lets {row.lets}",
                f"update to {row.newest}, or to the distribution's fixed version; see {row.source}",
                fatal=False,
            )


def _twice(surveys: Mapping[str, Survey]) -> Iterator[HostProblem]:
    """Yields problems for machines that are listed under two addresses."""
    at: dict[str, str] = {}
    for name, survey in surveys.items():
        other = at.setdefault(survey.identity, name) if survey.identity else name
        if other != name:
            yield _stop(
                survey,
                f"is the same machine as {other}",
                "remove one of its addresses from hosts",
            )


def _grouped(problems: Iterable[HostProblem]) -> Iterator[HostProblem]:
    """Yields the problems, fatal ones first."""
    rows = list(problems)
    yield from (problem for problem in rows if problem.fatal)
    yield from (problem for problem in rows if not problem.fatal)
