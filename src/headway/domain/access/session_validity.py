"""Whether a browser session is still valid, and how long sessions and sign-in links last. The store asks here each time a
session is used."""

from __future__ import annotations

SIGNIN_CODE_S = 300.0  # of the code in a sign-in link
OIDC_FLOW_S = 600.0  # from the way to the OpenID provider to the return from there
SESSION_S = 7 * 86400.0
SESSION_IDLE_S = 12 * 3600.0  # without a request; an open live page counts as use


def session_end(expires_at: float, last_used_at: float) -> float:
    """Returns when a session ends, in unix seconds, if it is not used again."""
    return min(expires_at, last_used_at + SESSION_IDLE_S)


def session_is_valid(expires_at: float, last_used_at: float, now: float) -> bool:
    """Returns whether a session is valid now: neither expired nor idle for SESSION_IDLE_S."""
    return session_end(expires_at, last_used_at) > now
