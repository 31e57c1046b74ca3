"""No file can crash the validator, or bring a line break or a shell character into the resolved cluster."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import check_cluster_file
from headway.clusterfile.models.cluster_file import ClusterFile
from headway.errors import InvalidSpec
from headway.validation.yaml_parser import parse_yaml
from tests.support.property_examples import examples

CATALOGUE = load_catalogue({})
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGkmVv3MMU8rK1RtH0oxfnDOZzTQAv4wqeYmLM8lJ2Vm"
UNFIT = "\n\r\x00\x1b\x85\u2028\t;|&$`<>(){}[]!*?'\"\\#^é\u202e"
BASE: dict[str, Any] = {
    "name": "lab",
    "provider": "ssh",
    "image": "debian13",
    "plan": "h100-8",
    "nodes": 1,
    "spares": 1,
    "fabric": {
        "switches": [
            {"name": "a", "nodes": 1},
            {"name": "b", "nodes": 1},
            {"name": "c", "children": ["a", "b"]},
        ]
    },
    "ssh_keys": [f"{KEY} ann@home"],
    "storage": {
        "home": {},
        "scratch": {},
        "datasets": [{"name": "tiny", "path": "/srv/tiny", "mount": "/datasets/tiny"}],
    },
    "partitions": {
        "train": {"default": True, "max_time": "7-00:00:00", "grace_time": "00:02:00"},
        "urgent": {"preempts": ["train"], "teams": ["vision"], "default_time": "1-0", "slurm": {"OverSubscribe": "NO"}},
    },
    "teams": {"vision": {"users": ["ann", "bob"], "limits": {"gpu_hours": {"hours": 1.5, "per": "month"}}}},
    "users": {"bob": {"ssh_keys": [KEY]}},
    "slurm": {"PriorityFlags": "MAX_TRES", "MailDomain": "example.org", "PriorityWeightTRES": "GRES/gpu=3000"},
    "departures": {"jobs": "finish"},
    "mail": {"relay": "mail.example.org:25"},
    "hosts": ["10.0.0.1", {"address": "n1", "user": "ops", "key": "/srv/key"}, "n2.example.org"],
}


def places(value: Any, loc: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Every text of a mapping: (where, whether it is a field's name)."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*loc, key), True
            yield from places(item, (*loc, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*loc, index))
    elif isinstance(value, str):
        yield loc, False


PLACES = list(places(BASE))


def replaced(loc: tuple[Any, ...], is_key: bool, text: str) -> dict[str, Any]:
    spec = copy.deepcopy(BASE)
    holder: Any = spec
    for part in loc[:-1]:
        holder = holder[part]
    if is_key:
        holder[text] = holder.pop(loc[-1])
    else:
        holder[loc[-1]] = text
    return spec


def old_text(loc: tuple[Any, ...], is_key: bool) -> str:
    value: Any = BASE
    for part in loc:
        value = value[part]
    return str(loc[-1]) if is_key else str(value)


def texts(value: object) -> Iterator[str]:
    """Every text in a resolved cluster."""
    if isinstance(value, str):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from texts(getattr(value, field.name))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts(key)
            yield from texts(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from texts(item)


def test_base_file_of_property_tests_is_valid() -> None:
    cluster, found = check_cluster_file(copy.deepcopy(BASE), CATALOGUE, owner="ann")
    assert found == []
    assert cluster is not None


@given(
    place=st.sampled_from(PLACES),
    bad=st.sampled_from(UNFIT),
    tail=st.text(max_size=8),
    at=st.integers(min_value=0, max_value=200),
    alone=st.booleans(),
)
@settings(max_examples=examples(600))
def test_refuses_line_breaks_and_shell_characters_in_any_field(
    place: tuple[tuple[Any, ...], bool], bad: str, tail: str, at: int, alone: bool
) -> None:
    loc, is_key = place
    old = old_text(loc, is_key)
    text = f"{bad}{tail}" if alone else f"{old[:at]}{bad}{tail}{old[at:]}"
    cluster, found = check_cluster_file(replaced(loc, is_key, text), CATALOGUE, owner="ann")
    if "ssh_keys" not in loc[:-1]:  # a key's comment may have them: it is cleaned
        assert cluster is None
    if cluster is None:
        assert any(fault.level == "error" for fault in found)
    else:
        for word in texts(cluster):
            assert not set(word) & set(UNFIT), word
    for fault in found:
        assert str(fault).isprintable()


@given(
    place=st.sampled_from(PLACES),
    text=st.text(alphabet=st.sampled_from("aZ0 _@%+=:,./~-\n;$"), max_size=30),
)
@settings(max_examples=examples(600))
def test_accepted_files_contain_only_plain_characters(place: tuple[tuple[Any, ...], bool], text: str) -> None:
    cluster, _ = check_cluster_file(replaced(*place, text), CATALOGUE, owner="ann")
    if cluster is not None:
        for word in texts(cluster):
            assert re.fullmatch(r"[A-Za-z0-9 _@%+=:,./~-]*", word), word


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["train", "h100-8", "ann", "7-0", KEY, "a:1", "/x", "local", "infinite", ""]),
    st.binary(max_size=3),
)
FIELDS = sorted(
    {*ClusterFile.model_fields, "leaf_size", "switches", "children", "datasets", "path", "mount", "users", "limits"}
    | {"gpu_hours", "hours", "per", "preempts", "tier", "max_time", "default", "relay", "jobs", "address", "key"}
)
KEYS = st.one_of(st.sampled_from(FIELDS), st.text(max_size=6), st.integers())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=8))
@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow])
def test_any_mapping_yields_errors_or_a_cluster(spec: dict[str, Any]) -> None:
    cluster, found = check_cluster_file(spec, CATALOGUE, owner="ann")
    assert (cluster is None) == any(fault.level == "error" for fault in found)
    cluster, found = check_cluster_file({**BASE, **spec}, CATALOGUE, owner="ann")
    assert (cluster is None) == any(fault.level == "error" for fault in found)


@given(st.dictionaries(st.text(max_size=6), VALUES, max_size=4))
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
def test_any_catalogue_yields_plans_or_invalid_spec(extra: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidSpec):
        load_catalogue(extra)


def test_check_does_not_modify_its_input() -> None:
    for text in ("nodes: x\nteams: {t: {users: [root, ann], z: 1}}", "name: lab\nplan: h100-8\nnodes: 4\n"):
        spec = parse_yaml(text)
        before = copy.deepcopy(spec)
        check_cluster_file(spec, CATALOGUE, owner="ann")
        assert spec == before
