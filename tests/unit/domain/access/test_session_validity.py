from __future__ import annotations

from headway.domain.access.session_validity import SESSION_IDLE_S, SESSION_S, session_end, session_is_valid


def test_a_session_ends_when_it_was_not_used_for_twelve_hours() -> None:
    last_used_at = 1000.0
    assert session_end(SESSION_S, last_used_at) == last_used_at + SESSION_IDLE_S
    assert session_is_valid(SESSION_S, last_used_at, last_used_at + SESSION_IDLE_S - 1)
    assert not session_is_valid(SESSION_S, last_used_at, last_used_at + SESSION_IDLE_S)


def test_a_session_that_is_used_ends_when_it_expires() -> None:
    assert session_end(SESSION_S, SESSION_S - 60) == SESSION_S
    assert session_is_valid(SESSION_S, SESSION_S - 60, SESSION_S - 1)
    assert not session_is_valid(SESSION_S, SESSION_S - 60, SESSION_S)
