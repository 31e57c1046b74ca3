"""Which teams a list of a cluster file may name, where a team stands for those below it too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class TeamTree:
    """The teams below each other. `fields`: team -> its fields."""

    def __init__(self, fields: Mapping[str, Mapping[str, Any]]) -> None:
        self._fields = fields
        self._below: dict[str, list[str]] = {}
        for team, one in fields.items():
            self._below.setdefault(one.get("parent", ""), []).append(team)

    def with_those_below(self, teams: Iterable[str]) -> set[str]:
        """Returns the teams and all below them."""
        found: set[str] = set()
        waiting = list(teams)
        while waiting:
            team = waiting.pop()
            if team not in found:
                found.add(team)
                waiting += self._below.get(team, ())
        return found

    def nameable(self, may: Iterable[str]) -> set[str]:
        """Returns the teams of these that bring no other team with them."""
        given = set(may)
        return {team for team in given if self.with_those_below([team]) <= given}

    def shortest(self, may: set[str]) -> list[str]:
        """Returns the teams that stand for these nameable ones, in the order of the file."""
        return [team for team, one in self._fields.items() if team in may and one.get("parent") not in may]

    def with_users(self, teams: Iterable[str]) -> list[str]:
        """Returns the teams of these that have users."""
        return sorted(team for team in teams if self._fields[team].get("users"))
