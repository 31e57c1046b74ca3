"""Messages between agents while the cluster's MUNGE key changes.

While the machines receive the new key one after another, some can't open the messages of others. They must not count as
silent: as long as the file MARK is fresh, the head answers a message that it can't open with UNREAD. The node then keeps its
lease, and the head counts the message as a heartbeat. A node that is cut off gets no answer, as always. UNREAD has no other
effect, and is accepted only from the head's own port, which no user on the head can bind."""

from __future__ import annotations

import os
import time

MARK = "/run/headway/keys-change"  # written by the key change (cluster/keys/munge_key.py)
CHANGE_S = 240.0  # how long the mark is valid; Slurm itself sets a node DOWN whose messages it can't read for 300 s
UNREAD = b"unread"


def key_change_begun(mark: str = MARK) -> bool:
    """Returns whether a key change began less than CHANGE_S ago."""
    try:
        age_s = time.time() - os.stat(mark).st_mtime
    except OSError:
        return False
    return -1 < age_s < CHANGE_S
