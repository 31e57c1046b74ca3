"""Messages of SCIM 2.0 (RFC 7643, RFC 7644) about users and groups. What other systems send is read leniently: attributes
that Headway does not know are ignored, and names of attributes have no case."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from headway.schemas.base import RequestModel

SCIM_PREFIX = "/scim/v2"
SCIM_JSON = "application/scim+json"
MESSAGES = "urn:ietf:params:scim:api:messages:2.0"
USER_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:Group"
HEADWAY_USER_SCHEMA = "urn:headway:params:scim:schemas:2.0:User"
MOST_OPERATIONS = 100  # of one PATCH
MOST_MEMBERS = 10_000  # of one group
MOST_EMAILS = 10
MOST_RESULTS = 200  # of one page
MOST_FILTER = 500  # characters
_LONG = 200  # characters of a text


class ScimIn(RequestModel):
    """Base class of what a provider sends."""

    model_config = ConfigDict(extra="ignore", alias_generator=to_camel, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _plain_names(cls, sent: Any) -> Any:
        """Gives attributes the names as Headway writes them, and leaves out those that are null."""
        if not isinstance(sent, dict):
            return sent
        names = {str(field.alias).lower(): str(field.alias) for field in cls.model_fields.values()}
        return {names.get(str(name).lower(), name): value for name, value in sent.items() if value is not None}


class Name(ScimIn):
    """The parts of a person's name."""

    formatted: str | None = Field(None, max_length=_LONG)
    family_name: str | None = Field(None, max_length=_LONG)
    given_name: str | None = Field(None, max_length=_LONG)


class Email(ScimIn):
    """A mail address."""

    value: str = Field(max_length=_LONG)
    type: str | None = Field(None, max_length=32)
    primary: bool | None = None


class HeadwayUser(ScimIn):
    """Headway's own attributes of a user."""

    linux_user: str | None = Field(None, max_length=32)


class UserAttributes(ScimIn):
    """What is stored of a user besides name and external id. `active` is what the provider sent last."""

    active: bool = True
    display_name: str | None = Field(None, max_length=_LONG)
    name: Name | None = None
    emails: list[Email] | None = Field(None, max_length=MOST_EMAILS)
    headway: HeadwayUser | None = Field(None, alias=HEADWAY_USER_SCHEMA)


class UserIn(UserAttributes):
    """A user. `external_id` is the person's id at the provider, by which a sign-in finds them."""

    user_name: str = Field(min_length=1, max_length=_LONG)
    external_id: str = Field(min_length=1, max_length=_LONG)


class Reference(ScimIn):
    """A member of a group, by the id of the user."""

    value: str = Field(min_length=1, max_length=64)


class GroupIn(ScimIn):
    """A group. Without `members` those that it has stay."""

    display_name: str = Field(min_length=1, max_length=_LONG)
    external_id: str = Field("", max_length=_LONG)
    members: list[Reference] | None = Field(None, max_length=MOST_MEMBERS)


class PatchOperation(ScimIn):
    """One change of a resource. Providers write `op` with and without capitals."""

    op: Literal["add", "remove", "replace"]
    path: str = Field("", max_length=MOST_FILTER)
    value: Any = None

    @model_validator(mode="before")
    @classmethod
    def _lower_op(cls, sent: Any) -> Any:
        if isinstance(sent, dict) and isinstance(sent.get("op"), str):
            return {**sent, "op": sent["op"].lower()}
        return sent


class PatchIn(ScimIn):
    """Changes of a resource, in order."""

    operations: list[PatchOperation] = Field(alias="Operations", min_length=1, max_length=MOST_OPERATIONS)


class ScimOut(BaseModel):
    """Base class of answers."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Meta(ScimOut):
    """Type, times and address of a resource."""

    resource_type: str
    created: str
    last_modified: str
    location: str


class Link(ScimOut):
    """A reference to a user or group."""

    value: str
    display: str
    ref: str = Field(alias="$ref")


class ScimUserOut(ScimOut):
    """A user as Headway has it."""

    schemas: tuple[str, ...] = (USER_SCHEMA, HEADWAY_USER_SCHEMA)
    id: str
    user_name: str
    external_id: str
    active: bool
    display_name: str | None = None
    name: Name | None = None
    emails: list[Email] | None = None
    groups: list[Link] = []
    headway: HeadwayUser = Field(alias=HEADWAY_USER_SCHEMA)
    meta: Meta


class ScimGroupOut(ScimOut):
    """A group with its members."""

    schemas: tuple[str, ...] = (GROUP_SCHEMA,)
    id: str
    display_name: str
    external_id: str | None = None
    members: list[Link] = []
    meta: Meta


class ListOut(ScimOut):
    """One page of a list of resources."""

    schemas: tuple[str, ...] = (f"{MESSAGES}:ListResponse",)
    total_results: int
    start_index: int
    items_per_page: int
    resources: list[dict[str, Any]] = Field(alias="Resources")


class ScimErrorOut(ScimOut):
    """Body of an answer that is not 2xx."""

    schemas: tuple[str, ...] = (f"{MESSAGES}:Error",)
    status: str
    scim_type: str | None = None
    detail: str
