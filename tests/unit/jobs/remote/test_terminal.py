"""The helper's `terminal` runs a command on a pseudo-terminal: keys and sizes come in frames, output goes out unchanged."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headway.jobs.remote.interactive_command import keys_frame, run_on_terminal, size_frame
from headway.jobs.remote.user_helper import helper_argv
from tests.support.clusters import builders

PATIENCE_S = 60


@contextmanager
def shell(*argv: str) -> Iterator[subprocess.Popen[bytes]]:
    request = {"do": "terminal", "user": "root", "argv": list(argv), "rows": 30, "columns": 91}
    words = [sys.executable, *helper_argv(request)[1:]]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe) as program:
        try:
            yield program
        finally:
            program.kill()


def read_until(program: subprocess.Popen[bytes], text: bytes) -> bytes:
    """Returns the output up to and with `text`."""
    assert program.stdout is not None
    found, ends = b"", time.monotonic() + PATIENCE_S
    while text not in found:
        assert time.monotonic() < ends, found
        if select.select([program.stdout], [], [], 1.0)[0]:
            piece = os.read(program.stdout.fileno(), 65536)
            assert piece, found
            found += piece
    return found


def send(program: subprocess.Popen[bytes], frames: bytes) -> None:
    assert program.stdin is not None
    program.stdin.write(frames)
    program.stdin.flush()


def test_command_has_a_terminal_of_the_given_size() -> None:
    with shell("sh", "-c", "tty; stty size; exit 7") as program:
        tty, size = read_until(program, b"91\r\n").decode().split("\r\n")[:2]
        assert tty.startswith("/dev/pts/")
        assert size == "30 91"
        assert program.wait(PATIENCE_S) == 7


def test_new_size_reaches_the_command_as_a_signal() -> None:
    with shell("bash", "-c", "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done") as program:
        read_until(program, b"ready")
        send(program, size_frame(41, 133))
        assert b"41 133" in read_until(program, b"133")
        assert program.wait(PATIENCE_S) == 0


def test_keys_are_typed_and_control_c_interrupts() -> None:
    with shell(
        "bash", "-c", "trap 'echo interrupted; exit 3' INT; read -r name; echo hello $name; sleep 300"
    ) as program:
        send(program, keys_frame(b"ann\r"))
        read_until(program, b"hello ann")
        send(program, keys_frame(b"\x03"))
        read_until(program, b"interrupted")
        assert program.wait(PATIENCE_S) == 3


def test_long_paste_reaches_the_command_whole() -> None:
    text = b"".join(b"%07d\n" % number for number in range(40_000))
    with shell("bash", "-c", f"stty raw -echo; echo ready; head -c {len(text)} | sha256sum") as program:
        read_until(program, b"ready")
        send(program, keys_frame(text))
        digest = subprocess.run(["sha256sum"], input=text, capture_output=True, check=True).stdout.split()[0]
        read_until(program, digest)


def test_output_that_is_not_read_yet_is_not_lost() -> None:
    with shell("seq", "100000") as program:
        out = read_until(program, b"100000\r\n")
        assert out.count(b"\n") == 100_000
        assert program.wait(PATIENCE_S) == 0


def test_shell_ends_when_its_input_ends_at_once() -> None:
    with shell("bash", "-c", "while :; do echo on; done") as program:
        program.communicate(timeout=PATIENCE_S)
        assert program.returncode == 128 + signal.SIGHUP


@pytest.mark.parametrize("how", ["input closed", "output closed", "terminated", "no frame"])
def test_shell_and_its_children_end_with_the_terminal(how: str) -> None:
    with shell("bash", "-c", "sleep 300 & echo child $!; wait") as program:
        child = int(read_until(program, b"\n").split()[1])
        assert program.stdin is not None
        assert program.stdout is not None
        if how == "input closed":
            program.stdin.close()
        elif how == "output closed":
            program.stdout.close()
        elif how == "terminated":
            program.terminate()
        else:
            send(program, b"not a frame")
        assert program.wait(PATIENCE_S) == 128 + signal.SIGHUP
        ends = time.monotonic() + PATIENCE_S
        while alive(child):
            assert time.monotonic() < ends
            time.sleep(0.02)


def test_terminal_closes_when_the_shell_has_ended_but_a_child_stays() -> None:
    with shell("bash", "-c", "nohup setsid sleep 300 >/dev/null 2>&1 & echo child $!") as program:
        child = int(read_until(program, b"\n").split()[1])
        try:
            assert program.wait(PATIENCE_S) == 0
        finally:
            os.kill(child, signal.SIGKILL)


def test_keys_are_divided_into_frames_that_fit() -> None:
    framed, found = keys_frame(b"x" * 100_000), 0
    while framed:
        assert framed[:1] == b"d"
        length = int.from_bytes(framed[1:3], "big")
        found, framed = found + length, framed[3 + length :]
    assert found == 100_000
    assert keys_frame(b"") == b""


async def test_request_names_user_command_and_size() -> None:
    class Talk:
        async def converse(
            self, machine: Any, argv: Any, feed: AsyncIterator[bytes]
        ) -> AsyncIterator[tuple[str, bytes]]:
            yield "out", argv[-1].encode()

    async def nothing() -> AsyncIterator[bytes]:
        for piece in ():
            yield piece

    said = run_on_terminal(Talk(), builders.machine("lab-head"), "ann", ["bash"], (24, 80), nothing())
    ((kind, text),) = [piece async for piece in said]
    assert kind == "out"
    assert text == b'{"do": "terminal", "user": "ann", "argv": ["bash"], "rows": 24, "columns": 80}'


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_backspace_erases_a_whole_character() -> None:
    with shell("bash", "-c", "echo ready; read -r word; echo word=$word.") as program:
        read_until(program, b"ready")
        send(program, keys_frame("größ\x7f\x7f\r".encode()))
        assert b"word=gr." in read_until(program, b".\r\n")
