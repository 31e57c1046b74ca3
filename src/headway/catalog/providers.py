"""The available providers and their capabilities. `providers.registry` has the code of each."""

from __future__ import annotations

from collections.abc import Mapping

from headway.domain.provider_traits import ProviderTraits

LOCAL = ProviderTraits(
    name="local",
    summary="On the server's computer; GPUs are simulated",
    creates_machines=True,
    powers_off_machines=True,
    boots_node_images=True,
    rents_machines=False,
    charges_while_off=False,
    offers_spot_machines=True,
    has_external_networks=False,
    simulates_hardware=True,
    shares_one_host=True,
    private_network=True,
    volumes_on_server=True,
    provides_head_state=True,
    max_machines=200,
)
SSH = ProviderTraits(
    name="ssh",
    summary="Machines you own, by SSH",
    creates_machines=False,
    powers_off_machines=False,
    boots_node_images=False,
    rents_machines=False,
    charges_while_off=False,
    offers_spot_machines=False,
    has_external_networks=False,
    simulates_hardware=False,
    shares_one_host=False,
    private_network=False,
    volumes_on_server=False,
    provides_head_state=False,
)
AWS = ProviderTraits(
    name="aws",
    summary="Machines rented from Amazon EC2",
    creates_machines=True,
    powers_off_machines=True,
    boots_node_images=False,
    rents_machines=True,
    charges_while_off=False,
    offers_spot_machines=True,
    has_external_networks=False,
    simulates_hardware=False,
    shares_one_host=False,
    private_network=False,
    volumes_on_server=False,
    provides_head_state=False,
)
OPENSTACK = ProviderTraits(
    name="openstack",
    summary="Machines rented from an OpenStack cloud",
    creates_machines=True,
    powers_off_machines=True,
    boots_node_images=False,
    rents_machines=True,
    charges_while_off=True,
    offers_spot_machines=False,
    has_external_networks=True,
    simulates_hardware=False,
    shares_one_host=False,
    private_network=False,
    volumes_on_server=False,
    provides_head_state=False,
)
PROVIDERS: Mapping[str, ProviderTraits] = {traits.name: traits for traits in (LOCAL, SSH, AWS, OPENSTACK)}
