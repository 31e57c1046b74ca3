"""What the SCIM server says about itself: its features, resource types and schemas (RFC 7643, sections 5 to 7)."""

from __future__ import annotations

from typing import Any

from headway.schemas.access.scim import (
    GROUP_SCHEMA,
    HEADWAY_USER_SCHEMA,
    MOST_RESULTS,
    SCIM_PREFIX,
    USER_SCHEMA,
)

_CORE = "urn:ietf:params:scim:schemas:core:2.0"


def service_provider_config(url: str) -> dict[str, Any]:
    """Returns the features."""
    off = {"supported": False}
    return {
        "schemas": [f"{_CORE}:ServiceProviderConfig"],
        "documentationUri": f"{url}/docs/howto/scim/",
        "patch": {"supported": True},
        "bulk": {**off, "maxOperations": 0, "maxPayloadSize": 0},
        "filter": {"supported": True, "maxResults": MOST_RESULTS},
        "changePassword": off,
        "sort": off,
        "etag": off,
        "authenticationSchemes": [
            {
                "type": "oauthbearertoken",
                "name": "Bearer token",
                "description": "A token of scope scim: headway token create --scope scim",
                "primary": True,
            }
        ],
        "meta": _meta(url, "ServiceProviderConfig", "ServiceProviderConfig"),
    }


def resource_types(url: str) -> list[dict[str, Any]]:
    """Returns the types of resources."""
    extensions = {"User": [{"schema": HEADWAY_USER_SCHEMA, "required": False}], "Group": []}
    return [
        {
            "schemas": [f"{_CORE}:ResourceType"],
            "id": name,
            "name": name,
            "endpoint": f"/{name}s",
            "schema": schema,
            "schemaExtensions": extensions[name],
            "meta": _meta(url, "ResourceType", f"ResourceTypes/{name}"),
        }
        for name, schema in (("User", USER_SCHEMA), ("Group", GROUP_SCHEMA))
    ]


def schemas(url: str) -> list[dict[str, Any]]:
    """Returns the attributes of users and groups."""
    name = [_text(part) for part in ("formatted", "familyName", "givenName")]
    email = [_text("value"), _text("type"), _attribute("primary", "boolean")]
    user = [
        _text("userName", required=True, uniqueness="server"),
        _text("externalId", required=True, uniqueness="server", case_exact=True),
        _text("displayName"),
        _attribute("active", "boolean"),
        {**_attribute("name", "complex"), "subAttributes": name},
        {**_attribute("emails", "complex", many=True), "subAttributes": email},
        {**_attribute("groups", "complex", many=True, mutability="readOnly"), "subAttributes": _references("Group")},
    ]
    group = [
        _text("displayName", required=True, uniqueness="server"),
        _text("externalId", case_exact=True),
        {**_attribute("members", "complex", many=True), "subAttributes": _references("User")},
    ]
    return [
        _schema(url, USER_SCHEMA, "User", "A person", user),
        _schema(url, GROUP_SCHEMA, "Group", "A group, which gives a role or teams", group),
        _schema(url, HEADWAY_USER_SCHEMA, "HeadwayUser", "A person on clusters", [_text("linuxUser", case_exact=True)]),
    ]


def _schema(url: str, schema: str, name: str, text: str, attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schemas": [f"{_CORE}:Schema"],
        "id": schema,
        "name": name,
        "description": text,
        "attributes": attributes,
        "meta": _meta(url, "Schema", f"Schemas/{schema}"),
    }


def _references(kind: str) -> list[dict[str, Any]]:
    return [
        _text("value", case_exact=True),
        _text("display", mutability="readOnly"),
        {**_attribute("$ref", "reference", mutability="readOnly"), "referenceTypes": [kind]},
    ]


def _text(name: str, **traits: Any) -> dict[str, Any]:
    return _attribute(name, "string", **traits)


def _attribute(
    name: str,
    kind: str,
    *,
    many: bool = False,
    required: bool = False,
    mutability: str = "readWrite",
    uniqueness: str = "none",
    case_exact: bool = False,
) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "multiValued": many,
        "description": name,
        "required": required,
        "caseExact": case_exact,
        "mutability": mutability,
        "returned": "default",
        "uniqueness": uniqueness,
    }


def _meta(url: str, kind: str, path: str) -> dict[str, Any]:
    return {"resourceType": kind, "location": f"{url}{SCIM_PREFIX}/{path}"}
