"""The prolog ends a fabric test on its node, and no other program that has the test's former process id."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headway.catalog.node_images import slurm_release
from headway.render.machine_paths import PROLOG
from headway.render.slurm.hooks.prolog_epilog import GIVES_WAY, scripts


def part(mark: Path) -> str:
    """Returns the lines of the prolog that end a test, with another place for the mark."""
    text = scripts(slurm_release("24.11"))[PROLOG].text
    begin = text.index(f"if read -r test 2>/dev/null <{GIVES_WAY}")
    return text[begin : text.index("\nfi\n", begin) + 4].replace(GIVES_WAY, str(mark))


@pytest.mark.parametrize(("words", "ends"), [(("test", "fabric", "--json"), True), (("node",), False)])
def test_only_a_test_program_is_ended(tmp_path: Path, words: tuple[str, ...], ends: bool) -> None:
    program = tmp_path / "agent.pyz"
    program.write_text("print('up', flush=True)\ninput()\n")
    argv = [sys.executable, str(program), *words]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == b"up\n"
            mark = tmp_path / "mark"
            mark.write_text(f"{running.pid}\n")
            # A killed child of this process keeps its entry in /proc until it is waited for.
            text = part(mark).replace("n < 100", "n < 1")
            subprocess.run(["bash", "-eu", "-c", text], check=True, timeout=30)
            if ends:
                assert running.wait(timeout=30) == -9
            else:
                assert running.poll() is None
        finally:
            running.kill()


@pytest.mark.parametrize("text", [None, "", "0\n"])
def test_prolog_continues_without_a_test(tmp_path: Path, text: str | None) -> None:
    mark = tmp_path / "mark"
    if text is not None:
        mark.write_text(text)
    ran = subprocess.run(["bash", "-u", "-c", f"{part(mark)}\necho on"], capture_output=True, text=True, timeout=30)
    assert (ran.stdout, ran.stderr) == ("on\n", "")
