"""How many jobs one person may submit a minute through the server."""

from __future__ import annotations

from headway.errors import TooManySubmits
from headway.services.access.role_rights import Principal, Right
from headway.services.token_buckets import TokenBuckets

DEFAULT_SUBMITS_PER_MINUTE = 600  # HEADWAY_SUBMITS_PER_MINUTE of the server changes it


def limit_submissions(buckets: TokenBuckets, who: Principal, now: float, jobs: int = 1) -> None:
    """Counts jobs that the person submits now; a job array is one job. Admins have no limit. Raises TooManySubmits."""
    if who.may(Right.ADMIN):
        return
    wait_s = buckets.take(who.person, now, jobs)
    if wait_s:
        raise TooManySubmits(
            f"{who.person} submits more than {buckets.size} jobs a minute to this server",
            hint=f"try again in {wait_s} s; a job array counts as one job. "
            "HEADWAY_SUBMITS_PER_MINUTE of the server is the limit",
            retry_after_s=wait_s,
        )
