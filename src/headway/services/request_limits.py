"""How many requests one person may send, and how many sign-in links and tokens they may have. Jobs:
services/access/submit_rate.py; what may run at once: services/access/concurrency_limits.py."""

from __future__ import annotations

from headway.domain.access.role import Role
from headway.errors import TooManyAtOnce
from headway.services.token_buckets import TokenBuckets

REQUESTS_PER_MINUTE = 12_000  # and at once
LINKS_PER_MINUTE = 30
MOST_TOKENS = 200  # of one person that are valid


def limit_requests(buckets: TokenBuckets, person: str, role: str, now: float) -> None:
    """Counts a request of the person. Admins have no limit. Raises TooManyAtOnce."""
    if role != Role.ADMIN:
        _take(buckets, person, now, "sends", "requests")


def limit_links(buckets: TokenBuckets, person: str, now: float) -> None:
    """Counts a sign-in link that the person creates. Raises TooManyAtOnce."""
    _take(buckets, person, now, "creates", "sign-in links")


def _take(buckets: TokenBuckets, person: str, now: float, does: str, what: str) -> None:
    wait_s = buckets.take(person, now)
    if wait_s:
        raise TooManyAtOnce(
            f"{person} {does} more than {buckets.size} {what} a minute",
            hint=f"try again in {wait_s} s",
            retry_after_s=wait_s,
        )
