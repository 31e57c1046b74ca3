"""The error of a SCIM request."""

from __future__ import annotations

from headway.errors import HeadwayError


class ScimFault(HeadwayError):
    """A SCIM request that can't be done as asked. `scim_type` is one of RFC 7644, section 3.12."""

    kind = "refused"

    def __init__(self, message: str, *, hint: str, scim_type: str = "invalidValue", status: int = 400) -> None:
        super().__init__(message, hint=hint)
        self.scim_type = scim_type
        self.http_status = status
