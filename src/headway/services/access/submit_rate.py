"""How many jobs one person may submit a minute through the server. The number is a setting, with its default in
services/server_settings.py."""

from __future__ import annotations

from headway.errors import TooManySubmits
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState


def limit_submissions(state: AppState, who: Principal, jobs: int = 1) -> None:
    """Counts jobs that the person submits now; a job array is one job. Admins have no limit. Raises TooManySubmits."""
    if who.may(Right.ADMIN):
        return
    wait_s = state.submit_buckets.take(who.person, state.clock(), jobs)
    if wait_s:
        raise TooManySubmits(
            f"{who.person} submits more than {state.submit_buckets.size} jobs a minute to this server",
            hint=f"try again in {wait_s} s; a job array counts as one job. "
            "HEADWAY_SUBMITS_PER_MINUTE of the server is the limit",
            retry_after_s=wait_s,
        )
