"""The jobs of examples/ci on a real cluster. A stand-in for the CI system gives their steps variables, and programs `pip`, `gh`
and `curl` that only record how they were called."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.lab import Lab
from tests.support.paths import ROOT

SHARED = ROOT / "tests" / "cluster" / "lab.yaml"
RECORDER = '#!/bin/sh\necho "$(basename "$0") $*" >>"$CALLS"\n'
GITHUB, GITLAB = ROOT / "examples/ci/github-actions.yml", ROOT / "examples/ci/gitlab-ci.yml"


@dataclass
class Runner:
    """A checkout with cluster.yaml, and the programs that its jobs find. `run` executes one job's commands."""

    folder: Path
    env: Mapping[str, str]

    @property
    def calls(self) -> list[str]:
        """Returns the calls of the recorded programs, one a line."""
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def run(self, commands: list[tuple[str, Mapping[str, str]]]) -> tuple[int, str]:
        """Returns the exit code and output of the commands. As in CI systems, the first that fails ends the job."""
        output = ""
        for command, env in commands:
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", command],
                cwd=self.folder, env={**self.env, **env, "CALLS": str(self.folder / "calls")},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
            )  # fmt: skip
            output += done.stdout
            if done.returncode:
                return done.returncode, output
        return 0, output


def github_commands(job: str) -> list[tuple[str, Mapping[str, str]]]:
    """Returns the commands of a job of the GitHub workflow, each with its environment, and its expressions replaced."""
    known = {
        "vars.HEADWAY_WHEEL": "headway.whl", "github.token": "t", "github.event.pull_request.html_url": "https://example.com/7",
    }  # fmt: skip

    def fill(text: str) -> str:
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda found: known[found[1]], text)

    steps = yaml.safe_load(GITHUB.read_text())["jobs"][job]["steps"]
    return [
        (fill(step["run"]), {k: fill(v) for k, v in step.get("env", {}).items()}) for step in steps if "run" in step
    ]


def gitlab_commands(job: str) -> list[tuple[str, Mapping[str, str]]]:
    """Returns the commands of a job of the GitLab pipeline."""
    pipeline: dict[str, Any] = yaml.safe_load(GITLAB.read_text())
    variables = {
        "HEADWAY_WHEEL": "headway.whl", "NOTE_TOKEN": "t", "CI_API_V4_URL": "https://example.com/api/v4",
        "CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "7",
    }  # fmt: skip
    return [(line, variables) for line in (*pipeline["default"]["before_script"], *pipeline[job]["script"])]


@pytest.fixture
def runner(lab: Lab, tmp_path: Path) -> Runner:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("pip", "gh", "curl"):
        (programs / name).write_text(RECORDER)
        (programs / name).chmod(0o755)
    (tmp_path / "cluster.yaml").write_text(SHARED.read_text().replace("./data/", f"{SHARED.parent}/data/"))
    return Runner(tmp_path, {**lab.env, "PATH": f"{programs}:{Path(sys.executable).parent}:{lab.env['PATH']}"})


def set_field(runner: Runner, line: str) -> None:
    with (runner.folder / "cluster.yaml").open("a") as file:
        file.write(line + "\n")


Commands = Callable[[str], list[tuple[str, Mapping[str, str]]]]
SYSTEMS = pytest.mark.parametrize("commands", [github_commands, gitlab_commands])


@SYSTEMS
def test_pull_request_gets_the_plan_as_its_comment(runner: Runner, commands: Commands) -> None:
    set_field(runner, "slurm: {PriorityWeightAge: 4321}")
    code, output = runner.run(commands("plan"))
    assert code == 0, output
    comment = (runner.folder / "plan.md").read_text()
    assert comment.startswith("### Headway plan: lab\n")
    assert "+PriorityWeightAge=4321" in comment
    assert any("plan.md" in call and "7" in call for call in runner.calls), runner.calls


@SYSTEMS
def test_merge_of_an_unchanged_file_changes_nothing(runner: Runner, commands: Commands) -> None:
    code, output = runner.run(commands("apply"))
    assert (code, "nothing to change" in output) == (0, True), output


@SYSTEMS
def test_scheduled_job_fails_only_if_the_cluster_differs(runner: Runner, commands: Commands) -> None:
    assert runner.run(commands("drift"))[0] == 0
    set_field(runner, "slurm: {PriorityWeightAge: 4321}")
    code, output = runner.run(commands("drift"))
    assert code == 8
    assert "slurm.conf" in output
