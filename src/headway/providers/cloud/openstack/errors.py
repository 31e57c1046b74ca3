"""OpenStack's answers that refuse a request, and the faults of servers that did not come up, as Headway's errors. Pure."""

from __future__ import annotations

import json
import re

from headway.domain.machines.offer import Offer
from headway.errors import HeadwayError, Unanswered
from headway.providers.cloud.refusals import (
    AddressTaken,
    AuthFailed,
    CloudRefusal,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Throttled,
)

# Nova names several resources in one sentence, with as many numbers.
_NOVA_QUOTA = re.compile(
    r"Quota exceeded for (?P<names>[\w, ]+): Requested (?P<need>[\d, ]+), "
    r"but already used (?P<used>[\d, ]+) of (?P<limit>[-\d, ]+)"
)
# Unified limits are those of Keystone.
_UNIFIED_QUOTA = re.compile(
    r"Resource (?P<name>\S+) is over limit of (?P<limit>\d+) due to current usage (?P<used>\d+) and delta (?P<need>\d+)"
)
_OTHER_QUOTA = re.compile(
    r"Quota exceeded for resources: \['?(?P<resource>\w+)"  # Neutron
    r"|Maximum number of (?P<number>\w+) exceeded"  # Nova, of Neutron's ports
    r"|exceeds allowed (?P<cinder>\w+) quota"
    r"|exceeded allowed number of (?P<volumes>\w+)",
    re.IGNORECASE,
)
_NO_HOST = ("No valid host was found", "Exceeded maximum number of retries", "Exhausted all hosts")
_NO_ZONE = re.compile(r"availability zone .*(not available|not found|does not exist|invalid)", re.IGNORECASE)
_ADDRESS_TAKEN = re.compile(
    r"(already (in use|allocated)|IpAddressAlreadyAllocated|FixedIpAlreadyInUse)", re.IGNORECASE
)

# In a network of another project, Neutron lets only its owner choose addresses.
_ADDRESS_NOT_ALLOWED = re.compile(r"create_port:fixed_ips|disallowed by policy")


def error_of_answer(status: int, text: str, service: str, region: str) -> HeadwayError:
    """Returns a CloudRefusal for an answer that refuses a request, or Unanswered for an error of OpenStack's servers: the
    request may have been carried out."""
    kind, said = _read(text)
    if status in (413, 429):
        return Throttled(said or f"{service} answers {status}")
    if quota := _quota(said):
        return quota
    if status in (401, 403):
        return AuthFailed(f"{said or 'not allowed'} ({service} {status})")
    if status >= 500:
        return Unanswered(f"OpenStack's {service} in {region} failed: {said or status}", hint="try again in a minute")
    code = f"{service} {status}"
    if _ADDRESS_TAKEN.search(f"{kind} {said}"):
        return AddressTaken(code, said)
    if _NO_ZONE.search(said):
        return NoCapacity("machine of this type", "", said)
    return Rejected(code, said or kind or f"{service} answers {status}")


def error_of_fault(fault: str, offer: Offer, address: str = "") -> CloudRefusal:
    """Returns why a server ended before it ran. `address`: the one that was asked for; "" = the cloud chose it."""
    if any(words in fault for words in _NO_HOST) or not fault:
        return NoCapacity(offer.instance_type, offer.zone, fault)
    if address and (_ADDRESS_TAKEN.search(fault) or _ADDRESS_NOT_ALLOWED.search(fault)):
        return AddressTaken("ERROR", fault)
    return _quota(fault) or Rejected("ERROR", fault)


def is_lack_of_capacity(fault: str) -> bool:
    """Returns whether a server ended because no host had room for it."""
    return any(words in fault for words in _NO_HOST)


def _read(text: str) -> tuple[str, str]:
    """Returns the kind and the message of an error: {"forbidden": {"message": ...}}, {"NeutronError": {"type", "message"}}."""
    try:
        body = json.loads(text)
        part = next(iter(body.values()))
        return str(part.get("type", next(iter(body)))), str(part.get("message", "")).strip()
    except (ValueError, AttributeError, StopIteration):
        return "", text.strip()[:200]


def _quota(said: str) -> QuotaExceeded | None:
    if found := _NOVA_QUOTA.search(said):
        names = [name.strip() for name in found["names"].split(",")]
        need, used, limit = (
            [int(one) for one in re.findall(r"-?\d+", found[key])] for key in ("need", "used", "limit")
        )
        for name, more, there, most in zip(names, need, used, limit, strict=False):
            if 0 <= most < there + more:
                return QuotaExceeded(name, most, there + more)
        return QuotaExceeded(names[0], 0, 0)
    if found := _UNIFIED_QUOTA.search(said):
        return QuotaExceeded(found["name"], float(found["limit"]), float(found["used"]) + float(found["need"]))
    if found := _OTHER_QUOTA.search(said):
        return QuotaExceeded(next(name for name in found.groups() if name), 0, 0)
    return None
