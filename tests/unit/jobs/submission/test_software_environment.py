"""Scripts use the environment that was asked for, and lineage knows which environments a job names."""

from __future__ import annotations

import time

import pytest

from headway.domain.environment import EnvironmentVersion
from headway.errors import Refused
from headway.jobs.submission.software_environment import environment_lines, used_environments, with_environment
from headway.schemas.submission.submit_request import SubmitIn


def version(name: str, number: int) -> EnvironmentVersion:
    return EnvironmentVersion("lab", name, number, "ab" * 32, "3.13.5", 1, 10, "requirements.txt", "", "ann", 0.0, 7)


KNOWN = [version("demo", 1), version("demo", 2), version("torch", 10)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("module load demo\n", ["demo@2"]),
        ("  module load gcc demo/1 torch # comment demo\n", ["demo@1", "torch@10"]),
        ("ml torch/10", ["torch@10"]),
        ("source /environments/demo/1/bin/activate", ["demo@1"]),
        ("/environments/torch/1/bin/python", []),
        ("cat /my/environments/demo/1/x", []),
        ("echo module load demo", []),
        ("module load demo/3", []),
        ("module unload demo", []),
    ],
)
def test_environments_are_found_by_path_and_by_module(text: str, found: list[str]) -> None:
    assert [one.label for one in used_environments([text], KNOWN)] == found


@pytest.mark.parametrize("piece", ["\n", " \n", " ", "module load ", "ml\t", "/environments/a"])
def test_long_script_is_searched_in_linear_time(piece: str) -> None:
    """20,000 empty lines took two seconds, and four times that with twice as many."""
    began = time.process_time()
    used_environments([piece * (1_000_000 // len(piece))], KNOWN)
    assert time.process_time() - began < 10


def test_lines_of_an_environment_are_found_again() -> None:
    assert [one.label for one in used_environments(environment_lines("demo@1"), KNOWN)] == ["demo@1"]
    assert environment_lines("") == []


@pytest.mark.parametrize("word", ["demo", "demo@0", "demo@1; rm -rf /", "none", "../x@1"])
def test_only_a_pinned_name_becomes_part_of_a_script(word: str) -> None:
    with pytest.raises(ValueError):
        environment_lines(word)


def test_script_gets_the_environment_before_its_first_command() -> None:
    request = SubmitIn(script="#!/bin/bash\n#SBATCH -N1\n\npython x.py\n", environment="demo@2")
    done = with_environment(request)
    assert done.environment == ""
    lines = (done.script or "").split("\n")
    assert lines[:3] == ["#!/bin/bash", "#SBATCH -N1", ""]
    assert lines[3].startswith("[ -x /environments/demo/2/bin/python ] ||")
    assert lines[5] == "python x.py"


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (SubmitIn(args=["--wrap=true"], environment="demo@2"), "needs a script"),
        (SubmitIn(script="#!/usr/bin/python3\n", environment="demo@2"), "needs a shell script"),
        (SubmitIn(script="#!/bin/sh\n", args=["--container-image=x"], environment="demo@2"), "has its own Python"),
    ],
)
def test_refuses_what_can_not_use_an_environment(request_: SubmitIn, why: str) -> None:
    with pytest.raises(Refused, match=why):
        with_environment(request_)
