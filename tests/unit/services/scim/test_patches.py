"""Changes of users and groups as Okta, Entra ID and Keycloak write them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.schemas.access.scim import HEADWAY_USER_SCHEMA, USER_SCHEMA, PatchOperation
from headway.services.scim.patches import GroupPatch, patched_group, patched_user
from headway.services.scim.scim_fault import ScimFault

USER = {
    "userName": "ann",
    "externalId": "1",
    "active": True,
    "name": {"givenName": "Ann"},
    "emails": [{"value": "a@x", "type": "work"}, {"value": "b@x", "type": "home"}],
}
GROUP = GroupPatch("staff", "", frozenset({"a", "b"}))


def operations(*sent: dict[str, Any]) -> list[PatchOperation]:
    return [PatchOperation.model_validate(one) for one in sent]


@pytest.mark.parametrize(
    ("sent", "changes"),
    [
        ({"op": "Replace", "path": "active", "value": "False"}, {"active": "False"}),
        ({"op": "replace", "value": {"active": False, "userName": "bob"}}, {"active": False, "userName": "bob"}),
        ({"op": "add", "path": f"{USER_SCHEMA}:displayName", "value": "A"}, {"displayName": "A"}),
        ({"op": "replace", "value": {"name.familyName": "B"}}, {"name": {"givenName": "Ann", "familyName": "B"}}),
        ({"op": "add", "path": "name", "value": {"familyName": "B"}}, {"name": {"givenName": "Ann", "familyName": "B"}}),
        ({"op": "replace", "path": "name", "value": {"familyName": "B"}}, {"name": {"familyName": "B"}}),
        ({"op": "remove", "path": "name.givenName"}, {"name": {}}),
        (
            {"op": "replace", "path": 'emails[type eq "work"].value', "value": "c@x"},
            {"emails": [{"value": "c@x", "type": "work"}, {"value": "b@x", "type": "home"}]},
        ),
        (
            {"op": "add", "path": 'emails[type eq "other"].value', "value": "c@x"},
            {"emails": [*USER["emails"], {"type": "other", "value": "c@x"}]},  # type: ignore[misc]
        ),
        ({"op": "remove", "path": 'emails[type eq "work"]'}, {"emails": [{"value": "b@x", "type": "home"}]}),
        ({"op": "replace", "path": "emails", "value": [{"value": "c@x"}]}, {"emails": [{"value": "c@x"}]}),
        ({"op": "add", "value": {HEADWAY_USER_SCHEMA: {"linuxUser": "ann"}}}, {HEADWAY_USER_SCHEMA: {"linuxUser": "ann"}}),
        ({"op": "add", "path": f"{HEADWAY_USER_SCHEMA}:linuxUser", "value": "a"}, {HEADWAY_USER_SCHEMA: {"linuxUser": "a"}}),
        ({"op": "add", "path": "title", "value": "Dr"}, {}),
        ({"op": "add", "path": "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager", "value": "x"}, {}),
        ({"op": "add", "path": "urn:other:schema:active", "value": False}, {}),
    ],
)  # fmt: skip
def test_user_is_changed(sent: dict[str, Any], changes: dict[str, Any]) -> None:
    assert patched_user(USER, operations(sent)) == {**USER, **changes}


@pytest.mark.parametrize(
    ("sent", "members"),
    [
        ({"op": "Add", "path": "members", "value": [{"value": "c"}, {"value": "a"}]}, "abc"),
        ({"op": "add", "value": {"members": [{"value": "c"}]}}, "abc"),
        ({"op": "remove", "path": 'members[value eq "a"]'}, "b"),
        ({"op": "Remove", "path": "members", "value": [{"value": "a"}]}, "b"),
        ({"op": "remove", "path": "members"}, ""),
        ({"op": "remove", "path": "members", "value": []}, "ab"),
        ({"op": "replace", "path": "members", "value": [{"value": "c"}]}, "c"),
        ({"op": "replace", "path": "members", "value": []}, ""),
    ],
)
def test_members_are_changed(sent: dict[str, Any], members: str) -> None:
    assert patched_group(GROUP, operations(sent)).members == frozenset(members)


def test_members_that_are_named_without_need_are_known() -> None:
    assert patched_group(GROUP, operations({"op": "remove", "path": 'members[value eq "z"]'})).named == {"z"}


_VALUES = st.recursive(
    st.none() | st.booleans() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["value", "type", "members"]), inner),
    max_leaves=6,
)
_PATHS = st.sampled_from(["", "active", "emails", 'emails[type eq "work"]', "name.givenName", "members", "name", "x[["])


_OPERATIONS = st.builds(PatchOperation, op=st.sampled_from(["add", "remove", "replace"]), path=_PATHS, value=_VALUES)


@given(st.lists(_OPERATIONS, max_size=4))
def test_any_operations_are_carried_out_or_refused(changes: list[PatchOperation]) -> None:
    for patch in (lambda: patched_user(USER, changes), lambda: patched_group(GROUP, changes)):
        with contextlib.suppress(ScimFault):
            patch()
