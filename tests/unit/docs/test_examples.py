"""The files of examples/ compile and say what they show, and the commands that they and the documentation give for them exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.jobs.pipelines.pipeline_file import read_pipeline
from headway.validation.yaml_parser import parse_yaml
from tests.unit.docs.test_docs import DOCS, ROOT, commands, name_of, problem_of

EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
FILES = sorted(path for path in EXAMPLES.iterdir() if path.is_file())
LLM = DOCS / "howto" / "language-models.md"


@pytest.mark.parametrize("path", PROGRAMS, ids=name_of)
def test_example_programs_compile_and_have_a_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text(), str(path))
    compile(tree, str(path), "exec")
    assert ast.get_docstring(tree)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_headway_commands_in_examples_parse(path: Path) -> None:
    for line in path.read_text().splitlines():
        # one comment line may hold several commands, with wide gaps between them
        for part in re.split(r" {3,}", line.strip(" #")):
            if part.startswith("headway "):
                for words in commands(part):
                    assert problem_of(words) == "", part


def test_jobs_page_lists_every_example_of_a_job() -> None:
    text = (DOCS / "howto" / "jobs.md").read_text() + LLM.read_text()
    of_jobs = [path.name for path in FILES if path.suffix in (".py", ".sbatch", ".sh", ".c", ".txt")]
    assert [name for name in of_jobs if f"`{name}`" not in text] == []


def test_programs_of_documented_launches_exist() -> None:
    text = LLM.read_text()
    named = re.findall(r"(?:torchrun|python3|accelerate launch [^\n]*?) (\w+\.py)", text)
    assert named
    assert [name for name in named if not (EXAMPLES / name).is_file()] == []


def test_steps_of_the_example_pipeline_are_programs_of_examples() -> None:
    pipeline = read_pipeline(parse_yaml((EXAMPLES / "rlhf.yaml").read_text()))
    for step in pipeline.steps.values():
        assert step.environment == "llm"
        program = next(word for word in step.run if word.endswith(".py"))
        assert (EXAMPLES / program).is_file()


def test_versions_of_packages_are_pinned() -> None:
    lines = (EXAMPLES / "requirements-llm.txt").read_text().splitlines()
    packages = [line for line in lines if not line.startswith("#")]
    assert packages
    assert [line for line in packages if not re.fullmatch(r"[a-z0-9-]+==[0-9.]+", line)] == []


@pytest.mark.parametrize("path", sorted((EXAMPLES / "ci").glob("*.yml")), ids=name_of)
def test_headway_commands_of_ci_files_parse(path: Path) -> None:
    found = [line for script in _scripts(parse_yaml(path.read_text())) for line in script.splitlines()]
    lines = [line for line in found if line.startswith("headway ")]
    assert lines
    for line in lines:
        for words in commands(line):
            assert problem_of(words) == "", line


def _scripts(value: Any) -> Iterator[str]:
    """Yields the values of `run` and `script` in a file of GitHub or GitLab."""
    if isinstance(value, list):
        for one in value:
            yield from _scripts(one)
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key in ("run", "script"):
            yield from [inner] if isinstance(inner, str) else inner
        else:
            yield from _scripts(inner)
