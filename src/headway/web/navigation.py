"""Navigation: the tabs of the server and of a cluster, in groups."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from headway.domain.access.role import CAN_SUBMIT, Role


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab of the navigation."""

    key: str  # the page's name: `tab` of a cluster's page, `here` of the server's pages
    title: str
    path: str  # below /clusters/NAME, or from the root
    roles: tuple[Role, ...] = ()  # () = all roles
    own: bool = False  # shown in the menu under the person's name
    group: str = ""  # title of the tab that contains it; "" = stands alone
    letter: str = ""  # the page opens by the keys g and this letter


@dataclass(frozen=True, slots=True)
class TabGroup:
    """Tabs under one title. A tab that stands alone is a group of one."""

    title: str
    tabs: tuple[Tab, ...]

    @property
    def path(self) -> str:
        """Returns the path of the first tab, which the title leads to."""
        return self.tabs[0].path

    def has(self, key: str) -> bool:
        """Returns whether the tab `key` is in the group."""
        return any(tab.key == key for tab in self.tabs)


# Tabs of a cluster. A page is added here together with its module; tabs of a group stand together.
CLUSTER = (
    Tab("overview", "Overview", "", letter="o"),
    Tab("queue", "Queue", "/queue", group="Work", letter="q"),
    Tab("schedule", "Schedule", "/schedule", group="Work", letter="u"),
    Tab("submit", "Submit", "/submit", roles=CAN_SUBMIT, group="Work", letter="s"),
    Tab("trainings", "Trainings", "/trainings", group="Work", letter="t"),
    Tab("sweeps", "Sweeps", "/sweeps", group="Work", letter="w"),
    Tab("pipelines", "Pipelines", "/pipelines", group="Work", letter="l"),
    Tab("services", "Services", "/services", group="Work", letter="v"),
    Tab("batches", "Batches", "/batches", group="Work", letter="r"),
    Tab("notebooks", "Notebooks", "/notebooks", group="Work", letter="b"),
    Tab("terminal", "Terminal", "/terminal", roles=CAN_SUBMIT, group="Work", letter="x"),
    Tab("nodes", "Nodes", "/nodes", group="Nodes", letter="n"),
    Tab("incidents", "Incidents", "/incidents", group="Nodes", letter="i"),
    Tab("storage", "Storage", "/storage", group="Nodes", letter="d"),
    Tab("events", "Events", "/events", group="Nodes", letter="e"),
    Tab("costs", "Costs", "/costs", group="Money", letter="c"),
    Tab("teams", "Teams", "/teams", group="Money", letter="m"),
)

# Tabs of the server.
SERVER = (
    Tab("home", "Home", "/", letter="h"),
    Tab("incidents", "Incidents", "/incidents"),
    Tab("all_costs", "Costs", "/costs"),
    Tab("offers", "Prices", "/offers", letter="p"),
    Tab("size", "Size", "/size", letter="z"),
    Tab("new", "New cluster", "/new", roles=CAN_SUBMIT),
    Tab("people", "People", "/people", (Role.ADMIN,), group="Admin"),
    Tab("audit", "Audit", "/audit", (Role.ADMIN,), group="Admin", letter="a"),
    Tab("settings", "Settings", "/settings", (Role.ADMIN,), group="Admin"),
    Tab("tokens", "Sessions and tokens", "/tokens", own=True),
)


def tabs(of: tuple[Tab, ...], role: str) -> tuple[Tab, ...]:
    """Returns the tabs shown to a role. What the person may do is decided in services/access/role_rights.py in any case."""
    return tuple(tab for tab in of if not tab.roles or role in tab.roles)


def tab_groups(of: tuple[Tab, ...], role: str) -> tuple[TabGroup, ...]:
    """Returns the groups of tabs shown to a role, without the tabs of the menu under the person's name."""
    shown = (tab for tab in tabs(of, role) if not tab.own)
    parts = (tuple(part) for _, part in groupby(shown, key=lambda tab: tab.group or tab.key))
    return tuple(TabGroup(part[0].group or part[0].title, part) for part in parts)
