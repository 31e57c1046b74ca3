"""Messages between agents while the cluster's MUNGE key changes.

Between the first machine and the last one that receives the new key, some machines can't open the messages of others. They
are not silent: as long as the file MARK is fresh, the head answers a message that it can't open with UNREAD, the node then
keeps its lease, and the head counts the node as heard. A node that is cut off gets no answer, as always. UNREAD is trusted
for nothing else, and only from the head's own port, which no user on the head can bind."""

from __future__ import annotations

import os
import time

MARK = "/run/headway/keys-change"  # made by whoever changes the key (cluster/keys/munge_key.py)
CHANGE_S = 240.0  # so long a mark counts: Slurm itself gives a node up that it can't read for 300 s
UNREAD = b"unread"
MOST_BAD = 10  # messages a second that MUNGE is asked about for nothing, from one address
_MOST_KNOWN = 20_000

Sender = tuple[str, int]


def key_change_begun(mark: str = MARK) -> bool:
    try:
        age_s = time.time() - os.stat(mark).st_mtime
    except OSError:
        return False
    return -1 < age_s < CHANGE_S


class SenderLimits:
    """Who sends what can't be opened: MUNGE has to work for each message, and whoever sends nonsense keeps it from nobody
    else. An agent is known by its port, so that others on its machine can't keep it out either."""

    def __init__(self) -> None:
        self._nodes: dict[Sender, str] = {}  # agents whose message was good -> their node
        self._bad: dict[str, int] = {}  # address -> how many within this second
        self._second = 0

    def admits(self, sender: Sender, now: float) -> bool:
        if int(now) != self._second:
            self._second = int(now)
            self._bad.clear()
        return sender in self._nodes or self._bad.get(sender[0], 0) < MOST_BAD

    def note_unreadable(self, sender: Sender) -> None:
        self._bad[sender[0]] = self._bad.get(sender[0], 0) + 1

    def note_readable(self, sender: Sender, node: str) -> None:
        """What this port said was sealed by root on that node."""
        if sender not in self._nodes and len(self._nodes) >= _MOST_KNOWN:
            self._nodes.clear()
        self._nodes[sender] = node

    def node_of_sender(self, sender: Sender) -> str:
        """Of an agent that was read before; "" for anybody else."""
        return self._nodes.get(sender, "")
