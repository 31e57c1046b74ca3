"""A process of the headway command loads only what help and completion need, and ends cleanly if its output can't be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.cli.registry import ENTRIES

HEAVY = ("pydantic", "httpx", "rich", "yaml", "asyncssh", "sqlalchemy", "fastapi", "jinja2", "anyio")
LISTS_MODULES = """
import sys
from headway.cli.main import main
code = main(sys.argv[1:])
sys.stdout.flush()
print("\\n".join(sorted(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


def loaded(*words: str) -> tuple[int, str, set[str]]:
    """Exit code, output and modules of a fresh interpreter that ran `headway WORDS...`."""
    done = subprocess.run(
        [sys.executable, "-c", LISTS_MODULES, *words], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, set(done.stderr.split())


def test_help_loads_no_command_and_no_heavy_module() -> None:
    code, out, modules = loaded("--help")
    assert code == 0
    assert all(f"  {name} " in out for name in ENTRIES)
    assert not modules.intersection(HEAVY)
    assert {m for m in modules if m.startswith("headway.")} == {
        "headway.cli", "headway.cli.command_group", "headway.cli.main", "headway.cli.registry", "headway.errors",
    }  # fmt: skip


@pytest.mark.parametrize(
    "words", [("apply", "--help"), ("queue", "--help"), ("submit", "--help"), ("server", "--help")]
)
def test_command_help_loads_only_that_command(words: tuple[str, ...]) -> None:
    code, out, modules = loaded(*words)
    assert code == 0
    assert out.startswith(f"Usage: headway {words[0]}")
    assert not modules.intersection(HEAVY)
    commands = {e.target.partition(":")[0] for e in ENTRIES.values()}
    prefix = "headway.cli.commands."
    loaded_commands = {m.removeprefix(prefix) for m in modules if m.startswith(prefix)} & commands
    assert {name.rpartition(".")[2] for name in loaded_commands} == {words[0]}


def test_command_that_asks_the_server_loads_no_other_subject_and_no_table_library(tmp_path: Path) -> None:
    script = "import sys\nfrom headway.cli.main import run\ntry: run()\nfinally: print(*sys.modules, file=sys.stderr)"
    env = {**os.environ, "HEADWAY_URL": "http://127.0.0.1:9", "HEADWAY_TOKEN": "x", "XDG_STATE_HOME": str(tmp_path)}
    words = ["exec", "lab", "--", "true"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    modules = set(done.stderr.split())
    assert "headway.sdk.resources.exec_commands" in modules, done.stderr
    assert not modules.intersection(("rich", "pygments", "yaml", "headway.sdk.resources.billing"))


def test_closed_pipe_causes_no_traceback() -> None:
    script = "from headway.cli.main import run; run()"
    process = subprocess.Popen([sys.executable, "-c", script, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(60) in (1, 141)
    assert b"Traceback" not in said
    process.stderr.close()


@pytest.mark.parametrize("words", [["schema"], ["--help"]])
def test_full_disk_on_stdout_is_reported_in_one_line(words: list[str], tmp_path: Path) -> None:
    script = "from headway.cli.main import run; run()"
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", script, *words], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, b"error: standard output can't be written: no space left on device\n")
    assert not list(tmp_path.iterdir())


def completed(shell: str, typed: str) -> str:
    """What is offered in the place of the last word."""
    env = {
        **os.environ, "_HEADWAY_COMPLETE": f"complete_{shell}", "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split(" ")) - 1), "_TYPER_COMPLETE_ARGS": typed,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", "from headway.cli.main import run; run()"],
        env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_offers_commands_without_loading_them(shell: str) -> None:
    said = completed(shell, "headway lo")
    assert "logs" in said
    assert "queue" not in said


def test_completion_offers_job_subcommands() -> None:
    assert completed("bash", "headway job ").split() == [
        "show",
        "stacks",
        "metrics",
        "compare",
        "note",
        "retry",
        "rerun",
        "resume",
    ]
    assert completed("bash", "headway job re").split() == ["retry", "rerun", "resume"]
