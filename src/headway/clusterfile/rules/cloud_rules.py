"""Rules of the section `cloud`."""

from __future__ import annotations

import ipaddress

from headway.catalog.instance_types import HEAD, types_for
from headway.catalog.providers import PROVIDERS
from headway.clusterfile import groups
from headway.clusterfile.draft import FileDraft
from headway.clusterfile.models.cloud import LEAST_LEASE_S
from headway.validation.field_types import UNLIMITED

_PREFIXES = range(16, 25)


def check_cloud(draft: FileDraft) -> None:
    """Checks that there is a section exactly where machines are rented, and that each plan has an instance type."""
    if not draft.is_intact("provider", "cloud"):
        return
    part, provider = draft.file.cloud, draft.provider
    rented = {name: section.provider for name, section in draft.file.groups.items() if section.provider is not None}
    for name in rented:
        if provider.rents_machines:
            where, hint = f"groups.{name}.provider", "remove it: all machines of the cluster are rented there"
            draft.fault(where, f"is given, and the cluster has provider {provider.name}", hint)
        elif provider.creates_machines:
            where, hint = f"groups.{name}.provider", "give provider: ssh with owned machines in hosts, or remove it"
            draft.fault(
                where, f"can't be combined with provider {provider.name}: a cloud does not reach its machines", hint
            )
    if rented:
        provider = PROVIDERS[next(iter(rented.values()))]
    if part is None:
        if provider.rents_machines:
            draft.fault("cloud", "is missing", f"provider {provider.name} rents machines: cloud: {{region: REGION}}")
        return
    if not provider.rents_machines:
        clouds = " or ".join(name for name, traits in PROVIDERS.items() if traits.rents_machines)
        draft.fault("cloud", "needs a provider that rents machines", f"give provider: {clouds}, or remove cloud")
        return
    for name, section in groups.parts_of(draft.file).items():
        if rented and name not in rented:
            continue
        path = f"groups.{name}." if draft.file.groups else ""
        if section.plan in draft.catalogue and not (
            part.types.get(section.plan) or types_for(provider.name, section.plan)
        ):
            hint = f"cloud: {{types: {{{section.plan}: [TYPE]}}}}"
            draft.fault(f"{path}plan", f"has no instance type of {provider.name}", hint)
    if not rented and not part.head_types and not types_for(provider.name, HEAD):
        draft.fault("cloud.head_types", "is missing", "name the instance types for heads")
    if part.external_network and not provider.has_external_networks:
        draft.fault("cloud.external_network", f"is given, and {provider.name} has no such networks", "remove it")
    if ipaddress.IPv4Network(part.network).prefixlen not in _PREFIXES:
        draft.fault("cloud.network", f"is {part.network}", "give a network from /16 to /24")
    if part.lease != UNLIMITED and part.lease < LEAST_LEASE_S:
        draft.fault("cloud.lease", "is less than half an hour", "give 30 or more (minutes)")
    if part.lease == UNLIMITED:
        draft.fault("cloud.lease", "is infinite", "give the time after which machines of a lost server end")
