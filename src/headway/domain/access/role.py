"""The roles that a person may have. services/access/role_rights.py defines the rights of each."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """Roles, from the fewest rights to all. Exception: lead and operator each have rights that the other lacks."""

    VIEWER = "viewer"
    MEMBER = "member"
    LEAD = "lead"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def description(self) -> str:
        """Returns the rights of this role in words, for a list of roles."""
        return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
    Role.VIEWER: "sees clusters, nodes and the queue",
    Role.MEMBER: "submits jobs, and acts on their own",
    Role.LEAD: "a member who also acts on jobs of the teams they lead (leads in the cluster file)",
    Role.OPERATOR: "a member who also acts on nodes and incidents",
    Role.ADMIN: "may do everything",
}
CAN_SUBMIT = tuple(role for role in Role if role is not Role.VIEWER)
