"""Rents the machines that a cluster lacks. They then answer SSH with a host key that only they and Headway know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from headway.cluster.context import ClusterContext
from headway.cluster.machine_request import machine_request
from headway.cluster.owned import machine_claims
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineRequest, MachineState
from headway.domain.machines.offer import Offer
from headway.domain.operation_progress import ReportProgress
from headway.domain.slurm.hostlist import compress
from headway.errors import HeadwayError, Refused
from headway.providers.base import RentingProvider
from headway.store import StoreUnavailable

_AT_ONCE = 32
_BOOT_S = 300.0
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
) -> None:
    """Rents a machine for each of these names that has none, and waits until each answers SSH with its own host key.
    Does nothing for a provider that does not rent. Raises Refused naming every machine that could not be had; those that
    could are used by the next apply."""
    provider = context.provider
    if not isinstance(provider, RentingProvider):
        return
    there = await provider.rented(cluster)
    missing = [name for name in names if name not in there]
    if missing:
        await report("machines", f"{compress(missing)}: machines are being rented")
        await provider.prepare(cluster)
    offers = await _offers(cluster, provider, missing)
    failures: dict[str, HeadwayError] = {}
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> None:
        request = machine_request(cluster, secrets, name, "")
        try:
            async with limit:
                if name in missing:
                    machine = await provider.rent(cluster, request, offers[cluster.role_of(name)], report)
                else:
                    machine = there[name]
                if machine.state is not MachineState.STOPPED:
                    await _settle(context, provider, machine, request)
        except StoreUnavailable:
            raise
        except HeadwayError as error:
            failures[name] = error
            await report(name, error.message, level="error", done=True)

    taken = {machine.name for machine in await context.provider.list(cluster.name)}
    await asyncio.gather(*(one(name) for name in names if name not in taken))
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
        except HeadwayError:
            if time.monotonic() >= ends:
                raise
            await asyncio.sleep(1)
    await context.connections.drop(machine.name)
    await context.connections.wait_ready(machine, timeout_s=_BOOT_S)
    # What the image does at its first boot holds the lock of the packages; its result is of no concern here.
    await context.connections.remote(machine, ["sh", "-c", _FIRST_BOOT], timeout_s=_BOOT_S, check=False)
    if machine.host_key != _line(own):
        key = request.host_key_private.encode()
        await context.connections.remote(machine, ["sh", "-c", _TAKE_KEY], timeout_s=60, input=key)
        await context.connections.drop(machine.name)
    await provider.settle(machine.cluster, machine.name, _line(own))


async def rent_and_claim(
    cluster: Cluster, context: ClusterContext, report: ReportProgress, secrets: Mapping[str, str], name: str
) -> None:
    """Rents a machine for one slot of a running cluster, surveys and claims it. Does nothing for a provider that does not
    rent. Raises Refused if it can't be used, and what `rent_missing` raises."""
    provider = context.provider
    if not isinstance(provider, RentingProvider):
        return
    await rent_missing(cluster, context, report, secrets, [name])
    seen = await machine_claims.survey_machines(cluster, context)
    if seen is None or name not in seen.surveys:
        raise seen.silent[name] if seen and name in seen.silent else Refused(f"{name} has no machine")
    machine_claims.check_claimable(seen)
    await machine_claims.claim_machine(context, seen.provider.server_id, seen.machines[name])
    await context.provider.create(machine_request(cluster, secrets, name, seen.machines[name].address))
    await machine_claims.store_findings(cluster, seen, [name])


def _line(key: str) -> str:
    return " ".join(key.split()[:2])


def _failed(failures: Mapping[str, HeadwayError]) -> HeadwayError:
    """Returns the only error, or one that names all machines."""
    if len(failures) == 1:
        return next(iter(failures.values()))
    lines = "\n".join(f"  {name}: {error.message}" for name, error in failures.items())
    hints = dict.fromkeys(error.hint for error in failures.values() if error.hint)
    return Refused(f"{len(failures)} machines could not be rented:\n{lines}", hint="; ".join(hints))
