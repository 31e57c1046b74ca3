"""Groups of tabs, and keys that open pages."""

from __future__ import annotations

from headway.web.navigation import CLUSTER, SERVER, tab_groups


def test_each_group_appears_once() -> None:
    for tabs in (CLUSTER, SERVER):
        titles = [group.title for group in tab_groups(tabs, "admin")]
        assert len(titles) == len(set(titles))
    assert [group.title for group in tab_groups(CLUSTER, "admin")] == ["Overview", "Work", "Nodes", "Money"]


def test_a_group_has_the_tabs_of_the_role_and_leads_to_the_first() -> None:
    work = next(group for group in tab_groups(CLUSTER, "viewer") if group.title == "Work")
    assert work.path == "/queue"
    assert not work.has("submit")
    assert "Admin" not in [group.title for group in tab_groups(SERVER, "viewer")]


def test_no_two_pages_have_the_same_key() -> None:
    letters = [tab.letter for tab in CLUSTER + SERVER if tab.letter]
    assert len(letters) == len(set(letters))
