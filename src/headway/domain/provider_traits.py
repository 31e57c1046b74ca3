"""The traits of a provider of machines. Other packages decide by them instead of by the provider's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProviderTraits:
    """The declared capabilities of one provider. `catalog.providers` has a row for each provider."""

    name: str  # as a cluster file names it
    summary: str  # where the machines are, for a person who chooses a provider
    creates_machines: bool  # it creates and deletes machines; otherwise the cluster file lists them under `hosts`
    powers_off_machines: (
        bool  # it can switch a machine off and confirm it, so that no process runs there afterwards (fencing)
    )
    boots_node_images: bool  # machines start from Headway's node image, with their identity in /etc/headway/boot
    rents_machines: bool  # its machines cost money from their launch on, and their disks go with them
    charges_while_off: bool  # a rented machine costs the same while it is switched off
    offers_spot_machines: bool  # cheaper machines that it may take back; local ones only simulate that
    has_external_networks: bool  # public addresses come from a network that a cluster file may choose
    simulates_hardware: bool  # GPUs and the kernel log are simulated, and faults may be injected
    shares_one_host: bool  # all machines run on one kernel: they share its boot time and its power meter
    private_network: bool  # machines have a network of their own, without name servers and not reachable from outside
    volumes_on_server: bool  # home, scratch, datasets and Slurm's state are folders of the server's machine
    provides_head_state: bool  # all heads mount a folder for Slurm's state without `storage.state` in the cluster file
    max_machines: int | None = None  # nodes and spares of one cluster, at most; None: no limit
