"""The YAML loader parses plain scalars, refuses unsafe or invalid YAML, and errors name the line."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import InvalidSpec
from headway.validation import yaml_parser
from headway.validation.yaml_parser import parse_yaml
from tests.support.property_examples import examples


def test_parses_scalars_without_yaml_surprises() -> None:
    text = 'a: 02:00:00\nb: 7-00:00:00\nc: no\nd: true\ne: 1.5\nf: "4"\ng: 010\nh: 2026-01-01\ni:\nj: -3\n'
    assert parse_yaml(text) == {
        "a": "02:00:00",
        "b": "7-00:00:00",
        "c": "no",
        "d": True,
        "e": 1.5,
        "f": "4",
        "g": 10,
        "h": "2026-01-01",
        "i": None,
        "j": -3,
    }


def test_parses_all_keys_as_text() -> None:
    assert parse_yaml("1: a\ntrue: b\nnull: c\n") == {"1": "a", "true": "b", "null": "c"}


def test_accepts_small_aliases() -> None:
    assert parse_yaml("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("name: a\nnodes: 1\nname: b\n", "line 3", "name is given twice, first on line 1"),
        ("teams:\n  v: {users: []}\n  v: {users: []}\n", "line 3", "v is given twice"),
        ("name: !!python/object/apply:os.system [ls]\n", "line 1", "tag"),
        ("name: a\nnodes: !secret 4\n", "line 2", "tag"),
        ("name: ! a\n", "line 1", "tag"),
        (bomb(), "line", "aliases expanded"),
        ("a: &a [*a]\n", "line 1", "is an alias without an anchor above it"),
        ("a: *nowhere\n", "line 1", "is an alias without an anchor above it"),
        ("base: &b {nodes: 1}\nx:\n  <<: *b\n", "line 3", "merge keys"),
        ("a: " + "[" * 60 + "]" * 60, "line 1", "levels deep"),
        ("a: " + "[" * 200_000, "line 1", "levels deep"),
        ("[1, 2]\n", "line 1", "mapping of fields"),
        ("just text\n", "line 1", "mapping of fields"),
        ("", "line 1", "mapping of fields"),
        ("name: a\n---\nname: b\n", "line 2", "second YAML document"),
        ("a: [1\nb: 2\n", "line 2", "not YAML"),
        ("a:\n  - 1\n b: 2\n", "line 3", "not YAML"),
        ("a: b: c\n", "line 1", "not YAML"),
        ("? [a]\n: 1\n", "line 1", "plain text"),
        ("? &k a\n: 1\n? *k\n: 2\n", "line 3", "plain text"),
        ("a: \x07\n", "", "not YAML"),
        ("a: \ud800\n", "", "not YAML"),
    ],
)
def test_refuses_invalid_or_unsafe_yaml_and_names_line(text: str, line: str, says: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_yaml(text)
    (fault,) = caught.value.faults
    assert fault.path.startswith(line)
    assert says in fault.message


def test_refuses_alias_bomb_quickly() -> None:
    start = time.process_time()
    with pytest.raises(InvalidSpec):
        parse_yaml(bomb())
    assert time.process_time() - start < 1


def test_refuses_oversized_file_before_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_parser, "_events", lambda _: pytest.fail("was read"))
    with pytest.raises(InvalidSpec, match="larger than"):
        parse_yaml("#" * (yaml_parser.LARGEST_BYTES + 1))


@given(st.text(alphabet=st.sampled_from("ab:-[]{}&*!<>|'\"#,? \n\t%@`~0123456789.\x00\ud800é")))
@settings(max_examples=examples(300))
def test_any_text_parses_to_mapping_or_invalid_spec(text: str) -> None:
    with contextlib.suppress(InvalidSpec):
        assert isinstance(parse_yaml(text), dict)
