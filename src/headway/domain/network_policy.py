"""What jobs may reach over the network, and who may connect to their ports."""

from __future__ import annotations

from dataclasses import dataclass

ALL, TEAM, USER = "all", "team", "user"  # who may connect to the ports of a job


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """The policy of the jobs of a team."""

    job_ports: str = ALL  # who may connect to ports that a job opens: ALL, users of its TEAM, or its own USER
    # Networks outside of the cluster that jobs may connect to; None: everything
    internet: tuple[str, ...] | None = None

    @property
    def restricts(self) -> bool:
        """Returns whether a job of the team is refused anything."""
        return self.job_ports != ALL or self.internet is not None


@dataclass(frozen=True, slots=True)
class Network:
    """The cluster's network settings."""

    policy: NetworkPolicy = NetworkPolicy()  # of jobs of teams that have none of their own
    # Further networks of the machines, for example of a second Ethernet: no other machine may be in them
    machine_networks: tuple[str, ...] = ()
