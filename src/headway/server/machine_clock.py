"""Whether the clock of the server's machine is right, as times of the audit trail, of tokens and of incidents depend on it."""

from __future__ import annotations

import ctypes
import ctypes.util

_TIME_ERROR = 5  # sys/timex.h: the clock is not synchronized
_TIMEX_LONGS = 32  # struct timex has 26 words on 64-bit Linux


def is_clock_synchronized() -> bool:
    """Returns whether a time service keeps the clock of this machine right, as it tells the kernel; True if the kernel does
    not say."""
    adjtimex = getattr(ctypes.CDLL(ctypes.util.find_library("c") or None), "adjtimex", None)
    if adjtimex is None:
        return True
    words = (ctypes.c_long * _TIMEX_LONGS)()  # zeros only read
    return bool(adjtimex(words) != _TIME_ERROR)
