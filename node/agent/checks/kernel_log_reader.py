"""Reads the kernel's log. What its lines mean: XIDs of GPUs in xid_errors.py, all other errors in kernel_log_errors.py."""

from __future__ import annotations

import os

MOST_RECORDS = 200  # records read in one go, so that the agent's main loop goes on
# Syslog facilities that are read: the kernel's own (0), which programs can't use, and local7 (23), which
# `headway fault` uses on a real machine (node/programs/inject_fault.py).
_FACILITIES = frozenset({0, 23})


class KernelLog:
    """Reads the kernel's log from its beginning and as it grows. `path` is /dev/kmsg, or on machines without GPUs a
    plain file with lines of the same form: "PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT"."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.handle = -1
        self.wakes = path.startswith("/dev/")
        self._rest = ""

    def new_records(self) -> list[str]:
        """Returns the new records, each once; [] while there is no log."""
        try:
            if self.handle < 0:
                self.handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            return self._device() if self.wakes else self._file()
        except OSError:
            return []

    def _device(self) -> list[str]:
        found = []
        while len(found) < MOST_RECORDS:
            try:
                found.append(os.read(self.handle, 8192).decode(errors="replace"))
            except BrokenPipeError:  # the kernel overwrote unread records; the next read returns the oldest one left
                continue
            except OSError:  # no more records, or one that can't be read
                break
        return found

    def _file(self) -> list[str]:
        data = os.read(self.handle, 1 << 20)
        *lines, self._rest = (self._rest + data.decode(errors="replace")).split("\n")
        if os.fstat(self.handle).st_nlink == 0:  # the file was replaced
            os.close(self.handle)
            self.handle, self._rest = -1, ""
        return lines


def kernel_line(record: str) -> str:
    """Returns the first line of a record's text; "" if a program wrote the record, not the kernel."""
    head, _, text = record.partition(";")
    number = head.partition(",")[0]
    return text.split("\n")[0] if number.isdigit() and int(number) >> 3 in _FACILITIES else ""


def boot_id() -> str:
    """Returns the first 8 characters of the kernel's boot id."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read()[:8]
