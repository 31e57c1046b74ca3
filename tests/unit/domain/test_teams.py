"""Teams below each other: their parts of the cluster, and who is meant by the name of a team."""

from __future__ import annotations

from fractions import Fraction

from headway.domain.teams import Team, UserLimits, parts_of_cluster, with_subteams


def test_parts_of_teams_below_each_other_are_those_of_fair_tree() -> None:
    teams = (
        Team("science", ("ann",), 60), Team("physics", ("bob",), 3, parent="science"), Team("it", ("cleo",), 40),
    )  # fmt: skip
    parts = parts_of_cluster(teams)
    assert parts["science"] == (Fraction(60, 100), Fraction(60, 100) / 4)  # ann has 1 of 4 shares below science
    assert parts["physics"] == (Fraction(60, 100) * 3 / 4,) * 2
    assert sum(own for _, own in parts.values()) == 1
    assert parts_of_cluster(()) == {}


def test_a_team_stands_for_those_below_it() -> None:
    parents = {"grids": "physics", "physics": "science", "science": "", "it": ""}
    assert set(with_subteams(["science"], parents)) == {"science", "physics", "grids"}
    assert with_subteams([], parents) == ()


def test_limits_of_a_user_replace_those_of_each_user_one_by_one() -> None:
    team = Team("a", ("ann", "bob"), 1, per_user=UserLimits(gpus=4, cpus=8), user_limits={"ann": UserLimits(gpus=16)})
    assert team.limits_of("ann") == UserLimits(gpus=16, cpus=8)
    assert team.limits_of("bob") == team.per_user
