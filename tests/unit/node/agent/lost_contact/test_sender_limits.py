"""Unreadable messages of one sender do not block other senders."""

from __future__ import annotations

from agent.lost_contact.sender_limits import MOST_BAD, SenderLimits

AGENT, STRANGER = ("10.0.0.3", 40_001), ("10.0.0.3", 50_000)


def test_address_with_unreadable_messages_is_ignored_for_the_rest_of_the_second() -> None:
    limits = SenderLimits()
    for _ in range(MOST_BAD):
        assert limits.admits(STRANGER, 100.1)
        limits.note_unreadable(STRANGER)
    assert not limits.admits(STRANGER, 100.2)
    assert limits.admits(("10.0.0.4", 50_000), 100.2)
    assert limits.admits(STRANGER, 101.0)


def test_known_agent_is_admitted_beside_an_unreadable_sender() -> None:
    limits = SenderLimits()
    limits.note_readable(AGENT, "lab-1-1")
    for _ in range(MOST_BAD):
        limits.note_unreadable(STRANGER)
    assert limits.admits(AGENT, 100.0)
    assert (limits.node_of_sender(AGENT), limits.node_of_sender(STRANGER)) == ("lab-1-1", "")
