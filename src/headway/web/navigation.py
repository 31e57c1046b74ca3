"""Navigation: the tabs of the server and of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.access.role import CAN_SUBMIT, Role


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab of the navigation."""

    key: str  # the page's name: `tab` of a cluster's page, `here` of the server's pages
    title: str
    path: str  # below /clusters/NAME, or from the root
    roles: tuple[Role, ...] = ()  # () = all roles
    own: bool = False  # shown in the menu under the person's name


# Tabs of a cluster. A page is added here together with its module.
CLUSTER = (
    Tab("overview", "Overview", ""),
    Tab("queue", "Queue", "/queue"),
    Tab("submit", "Submit", "/submit", roles=CAN_SUBMIT),
    Tab("trainings", "Trainings", "/trainings"),
    Tab("sweeps", "Sweeps", "/sweeps"),
    Tab("services", "Services", "/services"),
    Tab("nodes", "Nodes", "/nodes"),
    Tab("storage", "Storage", "/storage"),
    Tab("incidents", "Incidents", "/incidents"),
    Tab("events", "Events", "/events"),
    Tab("notebooks", "Notebooks", "/notebooks"),
    Tab("teams", "Teams", "/teams"),
    Tab("costs", "Costs", "/costs"),
)

# Tabs of the server.
SERVER = (
    Tab("home", "Home", "/"),
    Tab("incidents", "Incidents", "/incidents"),
    Tab("offers", "Prices", "/offers"),
    Tab("new", "New cluster", "/new", roles=CAN_SUBMIT),
    Tab("people", "People", "/people", (Role.ADMIN,)),
    Tab("audit", "Audit", "/audit", (Role.ADMIN,)),
    Tab("settings", "Settings", "/settings", (Role.ADMIN,)),
    Tab("tokens", "Sessions and tokens", "/tokens", own=True),
)


def tabs(of: tuple[Tab, ...], role: str) -> tuple[Tab, ...]:
    """Returns the tabs shown to a role. What the person may do is decided in services/access/role_rights.py in any case."""
    return tuple(tab for tab in of if not tab.roles or role in tab.roles)
