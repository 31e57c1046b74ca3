"""AWS's error codes as Headway's errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headway.errors import HeadwayError, Unanswered
from headway.providers.cloud.refusals import (
    AddressTaken,
    AuthFailed,
    CloudRefusal,
    NoCapacity,
    OtherOrder,
    QuotaExceeded,
    Rejected,
    Throttled,
)

_NO_CAPACITY = frozenset(
    (
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "SpotMaxPriceTooLow",
        "Unsupported",  # the type is not sold in this zone
    )
)
_QUOTA = frozenset(
    (
        "VcpuLimitExceeded",
        "InstanceLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "VolumeLimitExceeded",
        "AddressLimitExceeded",
        "VpcLimitExceeded",
        "SubnetLimitExceeded",
        "SecurityGroupLimitExceeded",
        "InternetGatewayLimitExceeded",
    )
)
_THROTTLED = frozenset(("RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException"))
_AUTH = frozenset(
    (
        "AuthFailure",
        "UnauthorizedOperation",
        "AccessDenied",
        "AccessDeniedException",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "InvalidSignatureException",
        "OptInRequired",
        "PendingVerification",
    )
)
_REJECTED: Mapping[str, type[Rejected]] = {
    "IdempotentParameterMismatch": OtherOrder,
    "InvalidIPAddress.InUse": AddressTaken,
}
_SERVER_FAULTS = frozenset(("InternalError", "InternalFailure", "Unavailable", "ServiceUnavailable"))


def error_of_response(response: Mapping[str, Any], service: str, region: str) -> HeadwayError:
    """Returns a CloudRefusal for an answer that refuses a request, or Unanswered for an error of AWS's servers: the request
    may have been carried out."""
    fault = response.get("Error", {})
    code, said = str(fault.get("Code", "")), str(fault.get("Message", "")).strip()
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _SERVER_FAULTS or (status >= 500 and code not in _NO_CAPACITY | _THROTTLED):
        return Unanswered(f"AWS {service} in {region} failed: {said} ({code})", hint="try again in a minute")
    return _refusal(code, said)


def _refusal(code: str, said: str) -> CloudRefusal:
    if code in _NO_CAPACITY:
        return NoCapacity("machine of this type", "", said)
    if code in _QUOTA:
        limit = re.search(r"limit of (\d+)", said)
        return QuotaExceeded(code.removesuffix("LimitExceeded") or code, float(limit[1]) if limit else 0, need=0)
    if code in _THROTTLED:
        return Throttled(said)
    if code in _AUTH:
        return AuthFailed(f"{said} ({code})")
    return _REJECTED.get(code, Rejected)(code, said)
