"""A value cannot forge a line of the server's log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from headway import paths
from headway.server import logging_config


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """The server's log file; the settings of logging are restored at the end."""
    before, handlers = structlog.get_config(), list(logging.getLogger().handlers)
    logging_config.configure_logging(tmp_path)
    yield tmp_path / paths.LOG_FILE
    structlog.configure(**before)
    logging.getLogger().handlers[:] = handlers


def test_each_entry_is_one_line_of_json_whatever_its_values_are(log: Path) -> None:
    hostile = 'x"}\n{"event": "forged"}\r\n\u2028\x1b[2J\x00'
    structlog.get_logger("test").warning(hostile, who=hostile, **{"a key": [hostile]})
    logging.getLogger("library").warning("from a library: %s", hostile)
    lines = log.read_bytes().split(b"\n")
    assert lines.pop() == b""
    entries = [json.loads(line) for line in lines]
    assert len(entries) == 2
    assert entries[0]["who"] == entries[0]["event"] == hostile
    assert hostile in entries[1]["event"] or hostile in str(entries[1])
    assert all(byte >= 32 for line in lines for byte in line), "no control characters reach a terminal"
