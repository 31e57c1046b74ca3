"""Navigation: the tabs of the server and of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.role import CAN_SUBMIT, Role


@dataclass(frozen=True, slots=True)
class Tab:
    key: str  # what a page calls itself: `tab` of a cluster's page, `here` of the server's
    title: str
    path: str  # below /clusters/NAME, or from the root
    roles: tuple[Role, ...] = ()  # () = everybody
    own: bool = False  # of the person: in the menu under their name


# Of one cluster. A page is added here together with its module.
CLUSTER = (
    Tab("overview", "Overview", ""),
    Tab("queue", "Queue", "/queue"),
    Tab("submit", "Submit", "/submit", roles=CAN_SUBMIT),
    Tab("nodes", "Nodes", "/nodes"),
    Tab("storage", "Storage", "/storage"),
    Tab("incidents", "Incidents", "/incidents"),
    Tab("events", "Events", "/events"),
    Tab("notebooks", "Notebooks", "/notebooks"),
    Tab("teams", "Teams", "/teams"),
    Tab("costs", "Costs", "/costs"),
)

# Of the server.
SERVER = (
    Tab("home", "Home", "/"),
    Tab("incidents", "Incidents", "/incidents"),
    Tab("new", "New cluster", "/new", roles=CAN_SUBMIT),
    Tab("people", "People", "/people", (Role.ADMIN,)),
    Tab("audit", "Audit", "/audit", (Role.ADMIN,)),
    Tab("settings", "Settings", "/settings", (Role.ADMIN,)),
    Tab("tokens", "Tokens", "/tokens", own=True),
)


def tabs(of: tuple[Tab, ...], role: str) -> tuple[Tab, ...]:
    """Those a person of this role is shown; what they may do is decided in services/identity.py all the same."""
    return tuple(tab for tab in of if not tab.roles or role in tab.roles)
