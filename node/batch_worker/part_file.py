"""The results of an attempt on a shard, a line for each row, in their order. A later attempt continues after the whole ones:

+ CHECKSUM RESULT       the result of a row
- CHECKSUM ERROR        why a row has none"""

import os
import time
import zlib

_SYNC_S = 2.0


def checked_line(kind, text):
    """Returns a line. `kind`: b"+" or b"-". `text` is JSON without a line break."""
    return b"%s %08x %s\n" % (kind, zlib.crc32(kind + text), text)


def whole_lines(data):
    """Returns the lines of a part as (kind, text), up to the first one that is not whole."""
    found = []
    for line in data.split(b"\n")[:-1]:
        kind, text = line[:1], line[11:]
        if kind not in (b"+", b"-") or line[2:10] != b"%08x" % zlib.crc32(kind + text):
            break
        found.append((kind, text))
    return found


class PartFile:
    """The part of an attempt that is being written."""

    def __init__(self, path, lines, clock=time.monotonic):
        """Creates the file with the lines of earlier attempts."""
        self._clock, self.lines = clock, list(lines)
        self._file = open(path, "wb")  # noqa: SIM115 (closed by close)
        self._synced = float("-inf")
        self._write(self.lines)

    def add(self, lines):
        """Adds the lines of rows."""
        self.lines += lines
        self._write(lines)

    def close(self):
        """Closes the file."""
        self._file.close()

    def _write(self, lines):
        self._file.write(b"".join(checked_line(*line) for line in lines))
        self._file.flush()
        if self._clock() - self._synced > _SYNC_S:
            os.fsync(self._file.fileno())  # what is not synced is computed again if the node fails
            self._synced = self._clock()
