"""Filters of SCIM lists are read as providers write them; every other text is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.schemas.access.scim import USER_SCHEMA
from headway.services.scim.filter_parser import parse_filter
from headway.services.scim.scim_fault import ScimFault

NAMES = {"username": "user_name", "id": "id"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ('userName eq "ann"', {"user_name": "ann"}),
        ('  USERNAME  Eq  "a\\"n\\\\n"  ', {"user_name": 'a"n\\n'}),
        ('id eq "7" and userName eq "and eq"', {"id": "7", "user_name": "and eq"}),
        (f'{USER_SCHEMA}:userName eq "ann"', {"user_name": "ann"}),
    ],
)
def test_comparisons_are_read(text: str, found: dict[str, str]) -> None:
    assert parse_filter(text, NAMES) == found


@given(st.text(max_size=80) | st.text(alphabet='userName eq"\\andid ', max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ScimFault):
        assert set(parse_filter(text, NAMES)) <= set(NAMES.values())


@pytest.mark.parametrize("text", ['userName sw "a"', 'title eq "a"', 'userName eq "a" or id eq "b"', 'id eq ""'])
def test_other_filters_are_refused(text: str) -> None:
    with pytest.raises(ScimFault) as fault:
        parse_filter(text, NAMES)
    assert (fault.value.http_status, fault.value.scim_type) == (400, "invalidFilter")
