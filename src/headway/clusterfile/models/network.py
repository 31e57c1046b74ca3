"""network: what jobs may reach over the network, of the cluster and of a team."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from headway.domain.network_policy import Network, NetworkPolicy
from headway.validation import syntax_rules
from headway.validation.field_types import FileSection, checked_by, value_error

NetworkAddress = Annotated[str, checked_by(syntax_rules.network_fault)]
JobPorts = Literal["all", "team", "user"]
_MOST_NETWORKS = 1000


def _check_internet(value: Any) -> Any:
    """Checks open, closed, or a list of networks. A union of types would report the faults of each."""
    hint = "give open, closed, or a list of IPv4 networks, for example [10.0.0.0/8, 192.0.2.7]"
    if isinstance(value, list) and 0 < len(value) <= _MOST_NETWORKS:
        for network in value:
            fault = syntax_rules.network_fault(network) if isinstance(network, str) else "is not an IPv4 network"
            if fault:
                raise value_error(f"{syntax_rules.printable(network)} {fault}", hint)
    elif value not in ("open", "closed"):
        raise value_error("must be open, closed or a list of networks", hint)
    return value


if TYPE_CHECKING:
    Internet = str | list[str]
else:
    _LISTED = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": _MOST_NETWORKS}
    Internet = Annotated[
        Any, AfterValidator(_check_internet), WithJsonSchema({"anyOf": [{"enum": ["open", "closed"]}, _LISTED]})
    ]
_EXAMPLES: list[str | list[str]] = ["closed", ["10.0.0.0/8", "192.0.2.7"]]


class NetworkPart(FileSection):
    """What jobs may reach over the network."""

    job_ports: JobPorts = Field(
        "all",
        description="Who may connect to ports that a job opens: all; users of its team; or only its own user, also from the "
        "user's other jobs and login sessions.",
    )
    internet: Internet = Field(
        "open",
        description="What jobs may connect to outside of the cluster's machines: open, closed, or a list of networks.",
        examples=_EXAMPLES,
    )
    machine_networks: list[NetworkAddress] = Field(
        default_factory=list,
        max_length=100,
        description="Further networks of the machines, for example of a second Ethernet; no other machine may be in them.",
        examples=[["10.20.0.0/16"]],
    )


class TeamNetworkPart(FileSection):
    """What jobs of a team may reach over the network; what is not given is as in the cluster's network."""

    job_ports: JobPorts | None = Field(None, description="Who may connect to ports that a job of the team opens.")
    internet: Internet | None = Field(
        None,
        description="What jobs of the team may connect to outside of the cluster's machines.",
        examples=_EXAMPLES,
    )


def resolve_network(part: NetworkPart) -> Network:
    """Returns the section `network` of the cluster."""
    return Network(NetworkPolicy(part.job_ports, _internet(part.internet)), tuple(part.machine_networks))


def resolve_team_network(part: TeamNetworkPart, cluster: NetworkPart) -> NetworkPolicy:
    """Returns the policy of a team."""
    internet = cluster.internet if part.internet is None else part.internet
    return NetworkPolicy(part.job_ports or cluster.job_ports, _internet(internet))


def _internet(given: str | list[str]) -> tuple[str, ...] | None:
    if isinstance(given, list):
        return tuple(given)
    return None if given == "open" else ()
