"""The code of each provider, by the name that cluster files use. `catalog.providers` has their capabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headway.catalog.providers import AWS, LOCAL, OPENSTACK, SSH
from headway.domain.cluster import Cluster, Host
from headway.domain.machines.cloud_settings import CloudSettings
from headway.errors import Refused
from headway.providers.base import Provider
from headway.providers.local.provider import LocalProvider
from headway.providers.ssh.provider import SshProvider

_NO_CLOUD = CloudSettings("")  # of a provider whose traits alone are read


def _open_aws(state_dir: Path, cloud: CloudSettings) -> Provider:
    from headway.providers.cloud.aws.cloud import AwsCloud  # only servers that rent machines need it: 2 MB
    from headway.providers.cloud.provider import CloudProvider

    return CloudProvider(AWS, state_dir, cloud, AwsCloud(cloud.region))


def _open_openstack(state_dir: Path, cloud: CloudSettings) -> Provider:
    from headway.providers.cloud.openstack.cloud import OpenStackCloud
    from headway.providers.cloud.provider import CloudProvider

    return CloudProvider(OPENSTACK, state_dir, cloud, OpenStackCloud(cloud))


_OPEN: Mapping[str, Callable[[Path, Sequence[Host], CloudSettings], Provider]] = {
    LOCAL.name: lambda state_dir, _hosts, _cloud: LocalProvider(state_dir),
    SSH.name: lambda state_dir, hosts, _cloud: SshProvider(state_dir, hosts),
    AWS.name: lambda state_dir, _hosts, cloud: _open_aws(state_dir, cloud),
    OPENSTACK.name: lambda state_dir, _hosts, cloud: _open_openstack(state_dir, cloud),
}


def open_providers(cluster: Cluster, state_dir: Path) -> Provider:
    """Returns the provider of a cluster: one for all machines, or one of owned machines together with the cloud that groups
    rent from. A cloud that is no longer in the file stays until everything rented there has ended."""
    own = open_provider(cluster.provider.name, state_dir, cluster.hosts, cluster.cloud)
    if not isinstance(own, SshProvider):
        return own
    clouds = {group.provider.name for group in cluster.groups if group.provider is not None}
    name, settings = next(iter(clouds), ""), cluster.cloud
    if not clouds:
        from headway.providers.cloud.rental_records import RentalRecords

        record = RentalRecords(state_dir.absolute()).read(cluster.name)
        if not record.unended:
            return own
        name, settings = record.provider, CloudSettings(record.region)
    from headway.providers.cloud.provider import CloudProvider
    from headway.providers.mixed.provider import MixedProvider

    cloud = open_provider(name, state_dir, cloud=settings)
    assert isinstance(cloud, CloudProvider)
    return MixedProvider(own, cloud)


def open_provider(
    name: str, state_dir: Path, hosts: Sequence[Host] = (), cloud: CloudSettings | None = None
) -> Provider:
    """Returns the provider of this name. Raises Refused for an unknown one."""
    if name not in _OPEN:
        raise Refused(f"there is no provider {name!r}", hint=f"use one of: {', '.join(_OPEN)}")
    return _OPEN[name](state_dir, hosts, cloud or _NO_CLOUD)
