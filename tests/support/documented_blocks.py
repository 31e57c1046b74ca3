"""Runs the shell blocks of documentation pages as a person does: on a terminal, one block after the other.

In a page, an HTML comment before a fenced block says how it is tested; readers do not see it:

    <!-- tested: server -->          run on a server of its own, without a cluster
    <!-- tested: cluster -->         run on a real cluster, after the page's blocks for a server
    <!-- tested: file cluster.yaml --> written to that file
"""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BLOCK_S = 1200.0  # generous: it only limits a page that hangs
_STOP_AT_FAULTS = "trap 'code=$?; [ $code = 130 ] || exit $code' ERR"  # 130: interrupted from the keyboard
_BLOCK = re.compile(r"^<!-- tested: (.+?) -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of a page. `how`: what the comment before it says."""

    how: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Returns the page's blocks that have a comment, in order."""
    return [Block(how, text) for how, _, text in _BLOCK.findall(page.read_text())]


def run_blocks(
    page: Path,
    how: str,
    folder: Path,
    env: Mapping[str, str],
    replies: Sequence[tuple[str, str]] = (),
    *,
    values: Mapping[str, str] | None = None,
) -> str:
    """Runs the page's blocks with this `how` in the folder, and writes its files between them, in one bash with a
    terminal, until the first line that fails. Returns what the terminal shows. Raises AssertionError for a line that fails.

    When new output matches the pattern of a reply, its text is typed; "^C" interrupts the running program. `values`: what is
    typed instead of words of the page, such as the number of a job that exists."""
    found = blocks(page)
    assert any(block.how == how for block in found), f"{page} has no block of {how}"
    chosen = [block for block in found if block.how in ("server", how) or block.how.startswith("file ")]
    script = "".join(_lines(block) for block in chosen)
    for word, value in (values or {}).items():
        pattern = rf"(?<!\w){re.escape(word)}(?!\w)"
        assert re.search(pattern, script), f"{page} has no {word}"
        script = re.sub(pattern, value, script)
    master, slave = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-O", "expand_aliases", "-o", "pipefail", "-c", f"{_STOP_AT_FAULTS}\n{script}"],
        cwd=folder,
        env={**env, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "dumb"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(slave)
    try:
        shown = _follow(master, replies)
        code = process.wait(BLOCK_S)
    finally:
        process.kill()
        process.wait()
        os.close(master)
    sys.stdout.write(shown)  # for the report of a failed test
    assert code == 0, f"a block of {page} ended with {code}"
    assert "Traceback" not in shown, shown
    return shown


def _lines(block: Block) -> str:
    """Returns the lines that run the block, or write its file."""
    file = block.how.removeprefix("file ")
    return block.text if file == block.how else f"cat > {file} <<'END-OF-FILE'\n{block.text}END-OF-FILE\n"


def _follow(terminal: int, replies: Sequence[tuple[str, str]]) -> str:
    """Reads the terminal until the last program has closed it, and types the replies. Returns the output."""
    shown, seen, ends = "", 0, time.monotonic() + BLOCK_S
    while True:
        assert select.select([terminal], [], [], max(0.0, ends - time.monotonic()))[0], f"it hangs:\n{shown}"
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            return shown
        shown += piece.decode(errors="replace").replace("\r\n", "\n")
        for pattern, reply in replies:
            if found := re.search(pattern, shown[seen:]):
                seen += found.end()
                os.write(terminal, b"\x03" if reply == "^C" else reply.encode())


def _take_terminal() -> None:
    import fcntl
    import signal
    import termios

    # A test run in the background of a script ignores Ctrl-C, and so would all programs that it starts.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
