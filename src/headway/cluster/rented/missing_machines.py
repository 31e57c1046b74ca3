"""Rents the machines that a cluster lacks. They then answer SSH with a host key that only they and Headway know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence

from headway.cluster.context import ClusterContext
from headway.cluster.machine_request import machine_request
from headway.cluster.owned import gpu_drivers, machine_claims
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineRequest, MachineState
from headway.domain.machines.offer import Offer
from headway.domain.operation_progress import ReportProgress
from headway.domain.slurm.hostlist import compress, natural_key
from headway.errors import HeadwayError, Refused, Unreachable
from headway.providers.base import RentingProvider
from headway.store import StoreUnavailable

_AT_ONCE = 32
_BOOT_S = 300.0
_RETRY_S = 1.0
_FIRST_BOOT = "command -v cloud-init >/dev/null && cloud-init status --wait"
# The key comes by standard input. The daemon reads it when it reloads; open connections stay.
_TAKE_KEY = """set -e
umask 077
cat >/etc/ssh/ssh_host_ed25519_key.headway
ssh-keygen -y -f /etc/ssh/ssh_host_ed25519_key.headway >/etc/ssh/ssh_host_ed25519_key.pub
mv /etc/ssh/ssh_host_ed25519_key.headway /etc/ssh/ssh_host_ed25519_key
chmod 644 /etc/ssh/ssh_host_ed25519_key.pub
systemctl reload ssh || systemctl reload sshd
"""


async def rent_missing(
    cluster: Cluster,
    context: ClusterContext,
    report: ReportProgress,
    secrets: Mapping[str, str],
    names: Sequence[str],
    *,
    together: bool = False,
) -> None:
    """Rents a machine for each of these names that has none, and waits until each answers SSH with its own host key.
    `together`: the missing ones are of one group and of use only together, so all of them are launched in one zone, or none.
    Does nothing for a provider that does not rent. Raises Refused naming every machine that could not be had; those that
    could are used by the next apply."""
    provider = context.provider
    if not isinstance(provider, RentingProvider):
        return
    names = [name for name in names if cluster.provider_of(name).rents_machines]
    if not names:
        return
    there = await provider.rented(cluster)
    missing = [name for name in names if name not in there]
    if missing:
        await report("machines", f"{compress(missing)}: machines are being rented")
        await provider.prepare(cluster)
    offers = await _offers(cluster, provider, missing)
    failures: dict[str, HeadwayError] = {}
    limit = asyncio.Semaphore(_AT_ONCE)

    async def settle(machine: Machine) -> None:
        if machine.state is not MachineState.STOPPED:
            await _settle(context, provider, machine, machine_request(cluster, secrets, machine.name, ""))

    async def some(few: Sequence[str]) -> None:
        try:
            async with limit:
                machines = {name: there[name] for name in few if name in there}
                if len(machines) < len(few):
                    requests = [machine_request(cluster, secrets, name, "") for name in few]
                    machines = dict(await provider.rent(cluster, requests, offers[cluster.role_of(few[0])], report))
                await asyncio.gather(*map(settle, machines.values()))
        except StoreUnavailable:
            raise
        except HeadwayError as error:
            failures[compress(few)] = error
            await report(compress(few), error.message, level="error", done=True)

    taken = {machine.name for machine in await context.provider.list(cluster.name)}
    left = [name for name in names if name not in taken]
    await asyncio.gather(*([some(left)] if together and left else (some([name]) for name in left)))
    if failures:
        raise _failed(failures)


async def _offers(cluster: Cluster, provider: RentingProvider, names: Sequence[str]) -> dict[str, tuple[Offer, ...]]:
    """Returns the offers by role."""
    by_role = {cluster.role_of(name): name for name in reversed(names)}
    found = await asyncio.gather(*(provider.offers(cluster, name) for name in by_role.values()))
    return dict(zip(by_role, found, strict=True))


async def _settle(
    context: ClusterContext, provider: RentingProvider, machine: Machine, request: MachineRequest
) -> None:
    """Waits until the machine answers, and replaces the host key of its user data, which every program there can read, by
    one that came over SSH."""
    own = request.host_key_public
    ends = time.monotonic() + _BOOT_S
    while True:
        try:
            machine = await provider.first_host_key(machine, own)
            break
        except HeadwayError as error:
            if time.monotonic() >= ends:
                raise await _with_console(provider, machine, error) from error
            await asyncio.sleep(1)
    await _wait_for_first_boot(context, machine, ends)
    if machine.host_key != _line(own):
        key = request.host_key_private.encode()
        await context.connections.remote(machine, ["sh", "-c", _TAKE_KEY], timeout_s=60, input=key)
        await context.connections.drop(machine.name)
    await provider.settle(machine.cluster, machine.name, _line(own))


async def _with_console(provider: RentingProvider, machine: Machine, error: HeadwayError) -> HeadwayError:
    """Returns the error with the last lines of the machine's console, where it says that the machine does not answer."""
    if not isinstance(error, Unreachable):
        return error
    try:
        said = await provider.console(machine)
    except HeadwayError:  # the right to read it is not needed to rent
        said = ""
    return Unreachable(f"{error.message}; its console ends with:\n{said}", hint=error.hint) if said else error


async def _wait_for_first_boot(context: ClusterContext, machine: Machine, ends: float) -> None:
    """Waits until cloud-init has ended, whatever its result: until then it holds the lock of the packages. It also restarts the
    SSH daemon, which closes connections: then the machine is asked again. Raises Unreachable after `ends`."""
    while True:
        await context.connections.drop(machine.name)
        try:
            await context.connections.wait_ready(machine, timeout_s=_BOOT_S)
            await context.connections.remote(machine, ["sh", "-c", _FIRST_BOOT], timeout_s=_BOOT_S, check=False)
        except Unreachable:
            if time.monotonic() >= ends:
                raise
            await asyncio.sleep(_RETRY_S)
        else:
            return


async def rent_and_claim(
    cluster: Cluster,
    context: ClusterContext,
    report: ReportProgress,
    secrets: Mapping[str, str],
    names: Sequence[str],
) -> None:
    """Rents machines for slots of one group of a running cluster, surveys and claims them: all of them in one zone, or none.
    Does nothing for a provider that does not rent. Raises Refused if they can't be used, and what `rent_missing` raises."""
    provider = context.provider
    if not isinstance(provider, RentingProvider) or not cluster.provider_of(names[0]).rents_machines:
        return
    await rent_missing(cluster, context, report, secrets, names, together=True)
    seen = await _survey(cluster, context, names)
    machine_claims.check_claimable(seen)

    async def claim(name: str) -> None:
        await machine_claims.claim_machine(context, seen.provider.server_id, seen.machines[name])
        await context.provider.create(machine_request(cluster, secrets, name, seen.machines[name].address))

    await asyncio.gather(*map(claim, names))
    bare = {name: machine for name, machine in seen.without_driver.items() if name in names}
    if bare:
        await gpu_drivers.install_drivers(context, cluster.gpu_driver, bare, report)
    # Slurm counts only GPUs with a driver, so the machines are surveyed again.
    found = await _survey(cluster, context, names) if bare else seen
    await machine_claims.store_findings(cluster, found, names)


async def _survey(cluster: Cluster, context: ClusterContext, names: Sequence[str]) -> machine_claims.InventorySurvey:
    """Returns the findings on the cluster's machines and these new ones. Raises Refused and Unreachable for a new one without
    findings."""
    seen = await machine_claims.survey_machines(cluster, context, new=names)
    for name in names:
        if seen is None or name not in seen.surveys:
            raise seen.silent[name] if seen and name in seen.silent else Refused(f"{name} has no machine")
    assert seen is not None  # there are names
    return seen


async def end_surplus(
    cluster: Cluster, context: ClusterContext, report: ReportProgress, names: Collection[str]
) -> None:
    """Ends machines that were rented by an apply or a scaling that did not finish, and that are none of these names."""
    provider = context.provider
    if not isinstance(provider, RentingProvider):
        return
    for name in sorted(await provider.begun(cluster.name) - set(names)):
        await provider.give_up(cluster.name, name)
        await report(name, "its machine was rented and is not needed: it is ended", level="warning", done=True)


def _line(key: str) -> str:
    return " ".join(key.split()[:2])


def _failed(failures: Mapping[str, HeadwayError]) -> HeadwayError:
    """Returns the only error, or one that names all machines."""
    if len(failures) == 1:
        return next(iter(failures.values()))
    order = sorted(failures, key=natural_key)
    lines = "\n".join(f"  {name}: {failures[name].message}" for name in order)
    hints = dict.fromkeys(error.hint for error in failures.values() if error.hint)
    return Refused(f"{len(failures)} machines could not be rented:\n{lines}", hint="; ".join(hints))
