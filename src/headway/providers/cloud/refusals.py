"""Refusals of a cloud, each with its remedy. After a launch that raised one of these, it is certain that no machine of the
launch is left; code that is refused something after a launch turns the refusal into Unanswered by `after_launch`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headway.errors import Refused, Unanswered


class CloudRefusal(Refused):
    """The cloud refused a request."""

    kind = "cloud_refusal"


class NoCapacity(CloudRefusal):
    """The cloud has no machine of this type in this zone now."""

    kind = "no_capacity"

    def __init__(self, instance_type: str, zone: str, said: str = "", *, spot: bool = False) -> None:
        super().__init__(
            f"{zone or 'the region'} has no {'spot ' if spot else ''}{instance_type} now"
            + (f": {said}" if said else ""),
            hint="name more zones or instance types in cloud, "
            + ("give spot_fallback: on-demand" if spot else "reserve capacity")
            + ", or try again later",
        )
        self.instance_type, self.zone = instance_type, zone


class QuotaExceeded(CloudRefusal):
    """The account's limit does not allow another machine. `have` and `need` in the cloud's unit; 0: not known."""

    kind = "quota_exceeded"

    def __init__(self, name: str, have: float, need: float) -> None:
        known = f" is {have:g}" if have else " is used up"
        needs = f", {need:g} are needed" if need else ""
        super().__init__(
            f"the quota {name}{known}{needs}", hint=f"ask the cloud for a higher quota {name}, or rent less"
        )
        self.name, self.have, self.need = name, have, need


class Throttled(CloudRefusal):
    """The cloud takes no more requests for the moment."""

    kind = "throttled"
    http_status = 429

    def __init__(self, said: str) -> None:
        super().__init__(f"the cloud takes fewer requests than were sent: {said}", hint="try again in a minute")


class AuthFailed(CloudRefusal):
    """The cloud does not accept the credentials, or they do not allow the request."""

    kind = "cloud_auth_failed"

    def __init__(self, said: str) -> None:
        super().__init__(
            f"the cloud refuses the server's credentials: {said}",
            hint="renew the credentials of the server's user, or allow the request (docs/howto/cloud.md lists the rights)",
        )


class Rejected(CloudRefusal):
    """The cloud rejects the request itself: an unknown image, a wrong network."""

    kind = "cloud_rejected"

    def __init__(self, code: str, said: str) -> None:
        super().__init__(f"the cloud rejects the request: {said} ({code})", hint="correct cloud in the cluster file")
        self.code = code


class OtherOrder(Rejected):
    """An order with the same token and other contents was carried out before."""


class AddressTaken(Rejected):
    """Another machine has the address that was asked for, or this project may not choose one."""


class TooExpensive(CloudRefusal):
    """The offer would exceed the price limit of the machine's group or of the cluster. The cloud was not asked."""

    def __init__(self, instance_type: str, zone: str, why: str) -> None:
        super().__init__(
            f"{instance_type} in {zone} is over the price limit: {why}",
            hint="raise the limit that the message names, give cheaper types in cloud.types, or wait until others have ended",
        )


# After these another zone or instance type may have a machine.
TRY_ELSEWHERE: tuple[type[CloudRefusal], ...] = (NoCapacity, QuotaExceeded)
# After these the same request may succeed later.
NOT_NOW: tuple[type[CloudRefusal], ...] = (Throttled, AuthFailed)


@contextmanager
def after_launch() -> Iterator[None]:
    """Raises Unanswered for a refusal: machines were launched, and the next apply goes on with them."""
    try:
        yield
    except CloudRefusal as error:
        raise Unanswered(f"after the launch {error.message}", hint=error.hint) from error
