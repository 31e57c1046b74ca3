"""Notes about machines that come and leave."""

from __future__ import annotations

from headway.changes.checks.moved_hosts import moved_host_notes

THERE = {"lab-head": "10.0.0.10", "lab-1-1": "10.0.0.11", "lab-1-2": "10.0.0.12"}


def notes(there: dict[str, str], listed: dict[str, str], *replaced: str) -> list[str]:
    return list(moved_host_notes(there, listed, set(there) - {*replaced}))


def test_first_apply_and_one_without_a_change_have_no_notes() -> None:
    assert notes({}, THERE) == []
    assert notes(THERE, THERE) == []


def test_machine_that_comes_leaves_or_takes_a_place_has_its_address() -> None:
    assert notes(THERE, THERE | {"lab-1-3": "10.0.0.13"}) == ["machines that come: 10.0.0.13 (lab-1-3)"]
    fewer = {name: address for name, address in THERE.items() if name != "lab-1-2"}
    assert notes(THERE, fewer) == ["machines that leave: 10.0.0.12 (lab-1-2)"]
    assert notes(THERE, THERE | {"lab-1-1": "10.0.0.21"}, "lab-1-1") == [
        "machines that come: 10.0.0.21 (lab-1-1)", "machines that leave: 10.0.0.11 (lab-1-1)"
    ]  # fmt: skip


def test_long_lists_are_cut() -> None:
    many = {f"lab-1-{n}": f"10.0.1.{n}" for n in range(1, 13)}
    (note,) = notes(THERE, THERE | {name: address for name, address in many.items() if name not in THERE})
    assert note.endswith("10.0.1.10 (lab-1-10) and 2 more")
