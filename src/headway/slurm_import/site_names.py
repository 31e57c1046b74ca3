"""Names of a site as a cluster file can have them: lower case, and each once."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable

from headway.domain.slurm.nodes_and_jobs import OURS
from headway.validation import reserved_names, syntax_rules

LONGEST_CLUSTER, LONGEST_GROUP, LONGEST_NAME = 21, 12, 31


class Names:
    """Gives each name of a site one name for the cluster file."""

    def __init__(self, longest: int, plain: str, fault: Callable[[str], str], taken: Container[str] = ()) -> None:
        self._longest, self._plain, self._fault, self._taken = longest, plain, fault, taken
        self._given: dict[str, str] = {}
        self._used: set[str] = set()

    def of(self, name: str) -> str:
        """Returns the name in the cluster file: the same one where it is valid."""
        if name not in self._given:
            self._given[name] = self.new(name)
        return self._given[name]

    def new(self, name: str) -> str:
        """Returns a name that was not given before, the same one where that is possible."""
        text = re.sub(r"[^a-z0-9_-]", "-", name.lower()).lstrip("-_0123456789").strip("-_")
        text = (text if self._plain == "-" else re.sub(r"[^a-z0-9]", "", text))[: self._longest] or "x"
        found, number = text, 1
        while found in self._used or found in self._taken or self._fault(found):
            number += 1
            found = f"{text[: self._longest - len(str(number)) - 1]}{self._plain}{number}"
        self._used.add(found)
        return found


def cluster_name(name: str) -> str:
    """Returns a valid cluster name."""
    text = re.sub(r"[^a-z0-9-]", "-", name.lower()).lstrip("-0123456789")[:LONGEST_CLUSTER].strip("-")
    return text if text and not syntax_rules.cluster_name_fault(text) else "imported"


def partition_names() -> Names:
    """Returns the names of partitions."""
    return Names(LONGEST_NAME, "-", syntax_rules.name_fault, reserved_names.RESERVED_PARTITIONS)


def team_names(users: Container[str]) -> Names:
    """Returns the names of teams, which differ from those of users."""
    reserved = reserved_names.RESERVED_TEAMS

    def fault(name: str) -> str:
        return syntax_rules.name_fault(name) or ("reserved" if name in reserved or name in users else "")

    return Names(LONGEST_NAME, "-", fault)


def group_names() -> Names:
    """Returns the names of node groups."""
    return Names(LONGEST_GROUP, "", syntax_rules.group_name_fault)


def plain_names() -> Names:
    """Returns names of switches and plans."""
    return Names(LONGEST_NAME, "-", syntax_rules.name_fault)


def reservation_names() -> Names:
    """Returns the names of reservations."""
    return Names(LONGEST_NAME, "-", lambda name: syntax_rules.name_fault(name) or "own" * name.startswith(OURS))


def qos_names(teams: Iterable[str]) -> Names:
    """Returns the names of QOS, which differ from those of teams."""
    taken = {*reserved_names.RESERVED_TEAMS, *teams}

    def fault(name: str) -> str:
        return syntax_rules.name_fault(name) or ("taken" if name in taken else "")

    return Names(LONGEST_NAME, "-", fault)
