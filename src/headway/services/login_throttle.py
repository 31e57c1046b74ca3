"""Limits failed sign-ins by address and by account. The counts are kept in memory and bounded: the entry with the
oldest attempt is dropped first."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

from headway.errors import TooManyTries

MAX_FAILURES = 20  # per key within WINDOW_S
WINDOW_S = 300.0
MAX_KEYS = 10_000  # addresses and accounts


class LoginThrottle:
    """Counts failed sign-ins by key. A key has MAX_FAILURES tries per WINDOW_S."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()  # key -> (count, time of the first failure)

    def check(self, now: float, *keys: str) -> None:
        """Raises TooManyTries if one of the keys has failed MAX_FAILURES times within WINDOW_S."""
        for key in keys:
            count, since = self._failures.get(key, (0, now))
            if count >= MAX_FAILURES and now - since < WINDOW_S:
                wait = int(WINDOW_S - (now - since)) + 1
                raise TooManyTries(
                    "too many attempts to sign in have failed", hint=f"try again in {wait} s", retry_after_s=wait
                )

    def record_failure(self, now: float, *keys: str) -> bool:
        """Counts a failure, and returns whether it is the first of one of the keys within WINDOW_S."""
        first = False
        for key in keys:
            count, since = self._failures.pop(key, (0, now))
            if now - since >= WINDOW_S:
                count, since = 0, now
            first = first or count == 0
            self._failures[key] = (count + 1, since)
        while len(self._failures) > MAX_KEYS:
            self._failures.popitem(last=False)
        return first

    def record_success(self, *keys: str) -> None:
        """Resets the counts of these keys."""
        for key in keys:
            self._failures.pop(key, None)


def address_key(address: str) -> str:
    """Returns the key of a client address: one per IPv4 address, and one per /64 network of IPv6, because a single
    machine can use all addresses of such a network."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return f"from {address[:64]}"
    if found.version == 6:
        return f"from {ipaddress.ip_network((found, 64), strict=False)}"
    return f"from {found}"


def account_key(person: str) -> str:
    """Returns the key of an account."""
    return f"as {person[:64]}"
