"""Limits by sender how many messages that it can't read the head's agent passes to MUNGE."""

from __future__ import annotations

MOST_BAD = 10  # unreadable messages a second, from one address, that are still passed to MUNGE
_MOST_KNOWN = 20_000

Sender = tuple[str, int]


class SenderLimits:
    """Limits unreadable messages by sender, because MUNGE has to work for each message: a sender of nonsense must not
    block the others. An agent is recognized by its port, so that other processes on its machine can't block it
    either."""

    def __init__(self) -> None:
        self._nodes: dict[Sender, str] = {}  # agents that sent a readable message -> their node
        self._bad: dict[str, int] = {}  # address -> number of unreadable messages in this second
        self._second = 0

    def admits(self, sender: Sender, now: float) -> bool:
        """Returns whether a message from this sender is to be opened."""
        if int(now) != self._second:
            self._second = int(now)
            self._bad.clear()
        return sender in self._nodes or self._bad.get(sender[0], 0) < MOST_BAD

    def note_unreadable(self, sender: Sender) -> None:
        """Counts a message that could not be opened."""
        self._bad[sender[0]] = self._bad.get(sender[0], 0) + 1

    def note_readable(self, sender: Sender, node: str) -> None:
        """Records that a message from this address and port was sealed by root on `node`."""
        if sender not in self._nodes and len(self._nodes) >= _MOST_KNOWN:
            self._nodes.clear()
        self._nodes[sender] = node

    def node_of_sender(self, sender: Sender) -> str:
        """Returns the node of an agent that has sent a readable message; "" for any other sender."""
        return self._nodes.get(sender, "")
