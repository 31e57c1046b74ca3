"""In docs/, generated pages are current, command lines parse and cluster files validate."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headway.catalog.plans import load_catalogue
from headway.cli.command_group import load_command
from headway.cli.main import UsageError
from headway.cli.registry import ENTRIES
from headway.clusterfile.load import check_cluster_file
from headway.clusterfile.models.hosts import HostsSourcePart
from headway.jobs.pipelines.pipeline_file import read_pipeline
from headway.jobs.promotions.gates_file import read_gates
from headway.jobs.serving.service_file import read_service
from headway.jobs.sweeps.sweep_file import read_sweep
from headway.validation.yaml_parser import parse_yaml

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
WRITTEN = sorted(
    [path for path in DOCS.rglob("*.md") if path.parent.name != "reference"]
    + [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "STYLE.md", "CHANGELOG.md")]
)
ALL = sorted({*WRITTEN, *DOCS.rglob("*.md")})


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def docs_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("headway_docs", ROOT / "tools" / "docs_reference.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reference_pages_are_current(docs_tool: ModuleType) -> None:
    assert docs_tool.outdated() == [], "run `make docs`"


def test_every_metric_is_documented(docs_tool: ModuleType) -> None:
    assert docs_tool.metrics_without_meaning() == set()


# ---- command lines


def shell_lines(text: str) -> Iterator[str]:
    """Lines of console blocks and indented blocks that begin with `headway`."""
    block = ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("```"):
            block = "" if block else stripped[3:] or "text"
            continue
        shell = block == "console" or (not block and line.startswith("    "))
        command = stripped.removeprefix("$ ")
        if shell and command.startswith("headway "):
            yield command


def commands(line: str) -> Iterator[list[str]]:
    """The words of each headway command of a shell line, without redirections and comments."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word in (";", "|", "&&", ">", ">>"):
            if words[:1] == ["headway"]:
                yield words[1:]
            words = []
        else:
            words.append(word)


def problem_of(words: list[str]) -> str:
    """Why the command line is wrong; "" when it is right."""
    if words in (["--help"], ["--version"]):
        return ""
    entry = ENTRIES.get(words[0])
    if entry is None:
        return f"no command {words[0]}"
    command, rest = load_command(entry), words[1:]
    subcommands: dict[str, Any] = getattr(command, "commands", {})
    if subcommands and rest and not rest[0].startswith("-"):
        if rest[0] not in subcommands:
            return f"no command {words[0]} {rest[0]}"
        command, rest = subcommands[rest[0]], rest[1:]
    if rest[:1] == ["--help"]:
        return ""
    try:
        command.make_context(" ".join(words[:2]), list(rest))
    except UsageError as error:
        return str(error.format_message())
    return ""


@pytest.mark.parametrize("path", WRITTEN, ids=name_of)
def test_documented_command_lines_parse(path: Path) -> None:
    wrong = {}
    for line in shell_lines(path.read_text(encoding="utf-8")):
        for words in commands(line):
            if problem := problem_of(words):
                wrong[line] = problem
    assert wrong == {}


def test_check_detects_wrong_command_lines() -> None:
    assert "no command" in problem_of(["aply"])
    assert "no command" in problem_of(["dataset", "ad"])
    assert problem_of(["apply", "--no-such-option"])
    assert [*shell_lines("```console\n$ headway ls\n```\n    headway queue\nheadway x")] == [
        "headway ls",
        "headway queue",
    ]


# ---- cluster files

SIGNING_KEY = "MCowBQYDK2VwAyEAAAa6Eu49FlGwkcsmvTPVL9Nn2koAi6s6jsWdPJt3m1o="


def yaml_blocks(text: str) -> Iterator[dict[str, Any]]:
    for block in re.findall(r"^```yaml\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        yield parse_yaml(block)


def completed(part: dict[str, Any]) -> dict[str, Any]:
    """A whole cluster file from one of its parts, with keys instead of key files, as the client sends it."""
    whole: dict[str, Any] = {"name": "lab", **part}
    if "groups" not in whole:
        whole = {"plan": "h100-8", "nodes": 4, **whole}
    whole["users"] = {user: {} for user in whole.get("users", {})}
    if "gpu" in part:
        key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDME\n-----END PGP PUBLIC KEY BLOCK-----\n"
        whole["gpu"] = {**part["gpu"], "repository": {**part["gpu"]["repository"], "key": key}}
    for rule in part.get("containers", {}).get("signatures", {}).get("registries", {}).values():
        if "sigstore_key" in rule:
            rule["sigstore_key"] = f"-----BEGIN PUBLIC KEY-----\n{SIGNING_KEY}\n-----END PUBLIC KEY-----\n"
    if "scripts" in part:  # the client sends the texts of the files
        whole["scripts"] = {kind: _read_scripts(files) for kind, files in part["scripts"].items()}
    read = isinstance(part.get("hosts"), dict)  # the client sends the list that it reads from the source
    if read:
        HostsSourcePart.model_validate(part["hosts"])
    if read or part.get("containers", {}).get("backend") == "enroot" or {"firewall", "gpu"} & part.keys():
        whole |= {"provider": "ssh", "nodes": 1, "hosts": ["10.0.0.1", "10.0.0.2"]}
    return whole


def _read_scripts(files: Any) -> Any:
    if isinstance(files, list):
        return [_read_scripts(file) for file in files]
    return {"name": Path(files).name, "text": "#!/bin/sh\n-- slurm_job_submit, slurm_job_modify\n"}


@pytest.mark.parametrize("path", WRITTEN, ids=name_of)
def test_documented_cluster_files_validate(path: Path) -> None:
    for part in yaml_blocks(path.read_text(encoding="utf-8")):
        if "metric" in part:
            assert read_sweep(part).trial_count()
            continue
        if "steps" in part:
            assert read_pipeline(part).steps_in_order()
            continue
        if "gates" in part:
            assert read_gates(part).gates
            continue
        if "health" in part and "run" in part:
            assert read_service(part).name
            continue
        _, faults = check_cluster_file(completed(part), load_catalogue(), owner="ann")
        assert [str(fault) for fault in faults if fault.level == "error"] == [], part
