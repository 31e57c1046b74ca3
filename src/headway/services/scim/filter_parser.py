"""Filters of SCIM lists: comparisons with `eq`, joined by `and`. Providers send no others. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from headway.schemas.access.scim import GROUP_SCHEMA, MOST_FILTER, USER_SCHEMA
from headway.schemas.base import text_fault
from headway.services.scim.scim_fault import ScimFault

MOST_TERMS = 4
_TERM = re.compile(r'\s*([A-Za-z][A-Za-z0-9_.:$-]*)\s+eq\s+("(?:[^"\\]|\\.)*")\s*', re.IGNORECASE)
_AND = re.compile(r"and\b", re.IGNORECASE)


def parse_filter(text: str, names: Mapping[str, str]) -> dict[str, str]:
    """Returns the compared values by field. `names` are the attributes that may be compared, in lower case, with their
    fields. Raises ScimFault."""
    found: dict[str, str] = {}
    if len(text) > MOST_FILTER:
        raise _fault(f"the filter is longer than {MOST_FILTER} characters")
    at = 0
    while text:
        term = _TERM.match(text, at)
        if term is None:
            raise _fault('the filter is not of the form: ATTRIBUTE eq "VALUE" and ATTRIBUTE eq "VALUE"')
        name = plain_name(term[1])
        if name not in names:
            raise _fault(f"{term[1]} can't be compared, only {', '.join(sorted(names))}")
        value = _text_of(term[2])
        if (names[name] in found and found[names[name]] != value) or len(found) == MOST_TERMS:
            raise _fault("the filter compares too much")
        found[names[name]] = value
        at = term.end()
        if at == len(text):
            break
        joined = _AND.match(text, at)
        if joined is None:
            raise _fault("comparisons of a filter are joined by and")
        at = joined.end()
    return found


def plain_name(attribute: str) -> str:
    """Returns an attribute's name in lower case, without the name of its schema."""
    lower = attribute.lower()
    for schema in (USER_SCHEMA, GROUP_SCHEMA):
        lower = lower.removeprefix(f"{schema.lower()}:")
    return lower


def _text_of(quoted: str) -> str:
    try:
        value = json.loads(quoted)
    except ValueError:
        raise _fault("a value of the filter is not a text") from None
    if not value or text_fault(value):
        raise _fault("a value of the filter is empty or not a text")
    return str(value)


def _fault(message: str) -> ScimFault:
    return ScimFault(
        message, hint="see which filters there are: docs/howto/scim.md#what-is-supported", scim_type="invalidFilter"
    )
