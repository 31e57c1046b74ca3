"""Changes of SCIM resources (PATCH), as Okta, Entra ID and Keycloak write them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headway.schemas.access.scim import (
    HEADWAY_USER_SCHEMA,
    MOST_MEMBERS,
    PatchOperation,
    Reference,
)
from headway.services.scim.filter_parser import parse_filter, plain_name
from headway.services.scim.scim_fault import ScimFault

# ATTRIBUTE, ATTRIBUTE.PART, ATTRIBUTE[FILTER], ATTRIBUTE[FILTER].PART; the attribute may begin with its schema
_PATH = re.compile(r"((?:urn:[A-Za-z0-9:._-]+:)?)([A-Za-z$][A-Za-z0-9_$-]*)(?:\[([^\[\]]+)\])?(?:\.([A-Za-z$]+))?")
_TEXTS = {"username": "userName", "externalid": "externalId", "displayname": "displayName", "active": "active"}
_NAME_PARTS = {"formatted": "formatted", "familyname": "familyName", "givenname": "givenName"}
_EMAIL_PARTS = {"value": "value", "type": "type", "primary": "primary"}
_KEPT = frozenset({"userName", "externalId"})


@dataclass(frozen=True)
class GroupPatch:
    """What a PATCH changes of a group. `members` are ids of users, `named` those that the operations name."""

    display_name: str
    external_id: str
    members: frozenset[str]
    named: frozenset[str] = frozenset()


def patched_user(resource: Mapping[str, Any], operations: Iterable[PatchOperation]) -> dict[str, Any]:
    """Returns the changed user as JSON; it is not validated. Attributes that Headway does not have are ignored. Raises
    ScimFault."""
    changed = dict(resource)
    for operation in operations:
        for path, value in _places(operation):
            _change_user(changed, operation.op, path, value)
    return changed


def patched_group(group: GroupPatch, operations: Iterable[PatchOperation]) -> GroupPatch:
    """Returns the changed group. Raises ScimFault."""
    for operation in operations:
        for path, value in _places(operation):
            group = _changed_group(group, operation.op, path, value)
    return group


def _places(operation: PatchOperation) -> list[tuple[str, Any]]:
    """Returns the (path, value) pairs of an operation. Without a path the value holds them; the attributes of a schema of
    its own may be one level deeper."""
    if operation.path:
        return [(operation.path, operation.value)]
    if operation.op == "remove":
        raise ScimFault("a removal needs a path", hint="name the attribute in path", scim_type="noTarget")
    if not isinstance(operation.value, dict):
        raise ScimFault("an operation without a path needs an object as value", hint="name the attribute in path")
    found: list[tuple[str, Any]] = []
    for name, value in operation.value.items():
        if str(name).lower().startswith("urn:") and isinstance(value, dict):
            found += [(f"{name}:{part}", one) for part, one in value.items()]
        else:
            found.append((str(name), value))
    return found


def _parsed(path: str) -> tuple[str, str, str, str]:
    """Returns (schema, attribute, filter, part) of a path, in lower case but for the filter. Raises ScimFault."""
    match = _PATH.fullmatch(path.strip())
    if match is None:
        raise ScimFault(
            f"the path {path[:80]!r} can't be read",
            hint="write ATTRIBUTE, ATTRIBUTE.PART or ATTRIBUTE[FILTER]",
            scim_type="invalidPath",
        )
    schema, attribute, where, part = match.groups()
    return schema.rstrip(":").lower(), attribute.lower(), where or "", (part or "").lower()


def _change_user(user: dict[str, Any], op: str, path: str, value: Any) -> None:
    schema, attribute, where, part = _parsed(path)
    if schema == HEADWAY_USER_SCHEMA.lower():
        if attribute == "linuxuser":
            user[HEADWAY_USER_SCHEMA] = {} if op == "remove" else {"linuxUser": value}
    elif attribute in _TEXTS and not part and plain_name(path) == attribute:
        name = _TEXTS[attribute]
        if op != "remove":
            user[name] = value
        elif name in _KEPT:
            raise ScimFault(
                f"{name} can't be removed", hint="replace its value, or delete the user", scim_type="mutability"
            )
        else:
            user.pop(name, None)
    elif attribute == "name":
        _change_part(user, op, "name", _NAME_PARTS, part, value)
    elif attribute == "emails":
        _change_emails(user, op, where, part, value)


def _change_part(user: dict[str, Any], op: str, name: str, parts: Mapping[str, str], part: str, value: Any) -> None:
    """Changes a part of a complex attribute, or all of it."""
    if not part:
        if op == "remove":
            user.pop(name, None)
        else:
            user[name] = {**_object(user.get(name)), **value} if op == "add" and isinstance(value, dict) else value
    elif part in parts:
        values = _object(user.get(name))
        if op == "remove":
            values.pop(parts[part], None)
        else:
            values[parts[part]] = value
        user[name] = values


def _change_emails(user: dict[str, Any], op: str, where: str, part: str, value: Any) -> None:
    """Changes the addresses of a type, or all."""
    sent = user.get("emails")
    emails = [_object(email) for email in sent] if isinstance(sent, list) else []
    if not where and not part:
        added = value if isinstance(value, list) else [value]
        user["emails"] = [] if op == "remove" else [*emails, *added] if op == "add" else added
        return
    fields = parse_filter(where, {"type": "type", "value": "value"}) if where else {}
    mine = [email for email in emails if all(email.get(name) == wanted for name, wanted in fields.items())]
    if op == "remove":
        user["emails"] = [email for email in emails if email not in mine]
        return
    if not mine:
        mine = [dict(fields)]
        emails += mine
    for email in mine:
        if not part and isinstance(value, dict):
            email.update(value)
        elif part in _EMAIL_PARTS:
            email[_EMAIL_PARTS[part]] = value
    user["emails"] = emails


def _object(value: Any) -> dict[str, Any]:
    """Returns a copy of an object; {} for another value, which an earlier operation may have put there."""
    return dict(value) if isinstance(value, dict) else {}


def _changed_group(group: GroupPatch, op: str, path: str, value: Any) -> GroupPatch:
    _, attribute, where, _ = _parsed(path)
    if attribute == "members":
        named = _named_members(op, where, value)
        members = _changed_members(group.members, op, named, everybody=not where and value is None)
        return replace(group, members=members, named=group.named | named)
    if attribute == "displayname":
        if op == "remove" or not isinstance(value, str) or not value:
            raise ScimFault(
                "displayName can't be removed", hint="replace its value, or delete the group", scim_type="mutability"
            )
        return replace(group, display_name=value)
    if attribute == "externalid":
        return replace(group, external_id="" if op == "remove" or not isinstance(value, str) else value)
    return group


def _named_members(op: str, where: str, value: Any) -> frozenset[str]:
    """Returns the members that an operation names: in the path's filter (Okta) or in the value (Entra ID)."""
    if not where:
        return _ids(value)
    if op != "remove":
        raise ScimFault(
            "members are added by value, not by filter",
            hint='send the path members and the value [{"value": ID}]',
            scim_type="invalidPath",
        )
    return frozenset(parse_filter(where, {"value": "value"}).values())


def _changed_members(members: frozenset[str], op: str, named: frozenset[str], *, everybody: bool) -> frozenset[str]:
    """Returns the members after the operation. A removal that names none (`everybody`) is of all."""
    if op == "remove":
        return frozenset() if everybody else members - named
    found = named if op == "replace" else members | named
    if len(found) > MOST_MEMBERS:
        raise _too_many()
    return found


def _ids(value: Any) -> frozenset[str]:
    rows = value if isinstance(value, list) else [] if value is None else [value]
    if len(rows) > MOST_MEMBERS:
        raise _too_many()
    try:
        return frozenset(Reference.model_validate(row).value for row in rows)
    except ValueError:
        raise ScimFault(
            'members are objects of the form {"value": ID}', hint="ID is the id of a user: GET /scim/v2/Users"
        ) from None


def _too_many() -> ScimFault:
    return ScimFault(
        f"a group has more than {MOST_MEMBERS} members",
        hint="split it: the settings may name several groups for a role or team (docs/howto/scim.md)",
        scim_type="tooMany",
    )
