"""Users of teams whom the sign-in provider names, and users who are locked."""

from __future__ import annotations

from typing import Any

import pytest

from headway.clusterfile.team_members import with_team_members, without_users
from headway.domain.teams import Team, User
from tests.support.clusters import builders


def test_users_are_added_to_teams_that_the_file_has() -> None:
    spec = {"name": "lab", "teams": {"red": {"users": ["bob"], "share": 2}, "blue": {}}}
    found = with_team_members(spec, {"red": ["ann", "bob"], "blue": ["eve"], "green": ["tim"]})
    assert found == {
        "name": "lab",
        "teams": {"red": {"users": ["bob", "ann"], "share": 2}, "blue": {"users": ["eve"]}},
    }
    assert spec["teams"] == {"red": {"users": ["bob"], "share": 2}, "blue": {}}, "the given spec is not changed"


@pytest.mark.parametrize("teams", [None, [], "red", {"red": None}, {"red": {"users": "bob"}}, {"red": ["bob"]}])
def test_faulty_teams_are_left_for_the_check_of_the_file(teams: Any) -> None:
    assert with_team_members({"teams": teams}, {"red": ["ann"]}) == {"teams": teams}


def test_locked_users_leave_their_teams_and_lead_none() -> None:
    users = (User("ann", (), ("red", "blue")), User("bob", (), ("red",)))
    teams = (Team("red", ("ann", "bob"), 1, leads=("ann",)), Team("blue", ("ann",), 1))
    lab = builders.cluster(1, users=users, teams=teams)
    found = without_users(lab, {"ann", "zoe"})
    assert [user.name for user in found.users] == ["bob"]
    assert [(team.users, team.leads) for team in found.teams] == [(("bob",), ()), ((), ())]
    assert without_users(lab, {"zoe"}) is lab
