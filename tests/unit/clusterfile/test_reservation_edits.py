"""A reservation is added to a cluster file and removed from it; the rest of the text stays as it was."""

from __future__ import annotations

import pytest

from headway.clusterfile.reservation_edits import edit_reservation, with_reservation
from headway.validation.yaml_parser import parse_yaml

PART = {"start": "2026-12-05T22:00", "duration": "04:00:00", "maintenance": True, "nodes": ["lab-1-1", "lab-1-2"]}
PLAIN = "name: lab  # ours\nplan: h100-8\nnodes: 4\n"
LISTED = """\
name: lab
# when nodes are kept
reservations:
    # for the class
    course: {start: 2026-11-30T09:00, duration: "02:00:00", users: [alice]}

    night:
        start: 2026-12-01T01:00
        duration: "01:00:00"
        maintenance: true
nodes: 4
"""


@pytest.mark.parametrize("text", [PLAIN, LISTED, PLAIN.rstrip(), "name: lab\nreservations:\n  a:\n    start: x\n"])
def test_added_and_removed_again(text: str) -> None:
    made = edit_reservation(text, "window", PART)
    assert parse_yaml(made) == with_reservation(parse_yaml(text), "window", PART)
    assert parse_yaml(made)["reservations"]["window"] == PART
    assert all(line in made for line in text.splitlines())
    assert parse_yaml(edit_reservation(made, "window", None)) == parse_yaml(text)


def test_only_that_entry_is_removed() -> None:
    entry = LISTED[LISTED.index("    night") : LISTED.index("nodes: 4")]
    assert edit_reservation(LISTED, "night", None) == LISTED.replace(entry, "")
    assert "reservations" not in edit_reservation(edit_reservation(LISTED, "night", None), "course", None)
    assert "nodes: 4" in edit_reservation(edit_reservation(LISTED, "night", None), "course", None)


def test_comments_that_follow_the_section_stay() -> None:
    before = "name: lab\nreservations:\n  # ours\n  a: {start: x}\n\n  # all of it\n"
    after = "\n# Users of this site. Ask Eva before changing them.\nusers: []\n"
    assert edit_reservation(before + after, "a", None) == "name: lab\n" + after
    assert edit_reservation(before + after[1:], "a", None) == "name: lab\n" + after[1:]


@pytest.mark.parametrize(
    "empty", ["reservations: {}", "reservations:", "reservations: { }  # none", "reservations: null"]
)
@pytest.mark.parametrize("after", ["", "\n", "\n# users\nusers: []\n"])
def test_added_to_an_empty_section(empty: str, after: str) -> None:
    made = edit_reservation(f"name: lab\n{empty}{after}", "window", PART)
    assert parse_yaml(made)["reservations"] == {"window": PART}
    assert ("# none" in made) == ("# none" in empty)
    assert made.endswith(after)
    assert parse_yaml(edit_reservation(made, "window", None)).keys() == parse_yaml(f"name: lab{after}").keys()


def test_replaced_under_the_same_name() -> None:
    made = edit_reservation(LISTED, "night", PART)
    assert parse_yaml(made)["reservations"]["night"] == PART
    assert list(parse_yaml(made)["reservations"]) == ["night", "course"]


@pytest.mark.parametrize(
    "text", ["name: lab\nreservations: {a: {start: x}}\n", "name: lab\nreservations: &r\n  a: {start: x}\n"]
)
def test_text_that_cannot_be_edited_stays(text: str) -> None:
    assert edit_reservation(text, "window", PART) == text
