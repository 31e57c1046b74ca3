"""How much one person may have open or running at once: commands, followed logs, event streams."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from headway.errors import TooManyAtOnce
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState

MAX_COMMANDS_PER_PERSON = 16  # running at once; admins have no limit
MAX_OPEN_LOGS_PER_PERSON = 64  # followed at once; admins have no limit
MAX_PLANS_PER_PERSON = 4  # computed at once
MAX_PLANS_PER_ADMIN = 16  # computed at once, for programs that plan all clusters
MAX_LARGE_REQUESTS_PER_PERSON = 4  # sent at once, all but one of which wait; admins have no limit
MAX_EVENT_STREAMS_PER_PERSON = 64  # open at once, live pages included; admins have no limit


def command_slot(state: AppState, who: Principal) -> contextlib.AbstractContextManager[None]:
    """Counts a running command while the context is open, so that no member uses up a cluster's connections. Raises
    TooManyAtOnce."""
    return _slot(
        state.running_commands,
        who,
        MAX_COMMANDS_PER_PERSON,
        "commands",
        "are running already",
        "wait until one has ended",
    )


def log_slot(state: AppState, who: Principal) -> contextlib.AbstractContextManager[None]:
    """Counts a followed log while the context is open. Raises TooManyAtOnce."""
    return _slot(state.open_logs, who, MAX_OPEN_LOGS_PER_PERSON, "logs", "are open already", "close one of them")


def event_stream_slot(state: AppState, who: Principal) -> contextlib.AbstractContextManager[None]:
    """Counts an open stream of server-sent events while the context is open. Raises TooManyAtOnce."""
    limit, hint = MAX_EVENT_STREAMS_PER_PERSON, "close live pages or programs that follow events"
    return _slot(state.open_event_streams, who, limit, "event streams", "are open already", hint)


def plan_slot(state: AppState, who: Principal) -> contextlib.AbstractContextManager[None]:
    """Counts a plan that is being computed while the context is open. Raises TooManyAtOnce."""
    most = MAX_PLANS_PER_ADMIN if who.may(Right.ADMIN) else MAX_PLANS_PER_PERSON
    hint = "wait until one of them is ready"
    return _slot(state.running_plans, who, most, "plans", "are being computed", hint, admins=True)


def large_request_slot(state: AppState, who: Principal) -> contextlib.AbstractContextManager[None]:
    """Counts a request with a large body while the context is open. Raises TooManyAtOnce."""
    limit, hint = MAX_LARGE_REQUESTS_PER_PERSON, "send one after the other"
    return _slot(state.large_requests, who, limit, "large requests", "are being handled", hint)


@contextlib.contextmanager
def _slot(
    used: Counter[str], who: Principal, limit: int, what: str, how: str, hint: str, *, admins: bool = False
) -> Iterator[None]:
    """Counts one while the context is open. `admins`: the limit also holds for admins."""
    if used[who.person] >= limit and (admins or not who.may(Right.ADMIN)):
        raise TooManyAtOnce(f"{limit} {what} of {who.person} {how}", hint=hint)
    used[who.person] += 1
    try:
        yield
    finally:
        used[who.person] -= 1
        if not used[who.person]:
            del used[who.person]
