"""The LLM examples train with two ranks on CPUs, are killed, and continue from their checkpoints. They run in a venv that is
made from examples/requirements-llm.txt; HEADWAY_LLM_PYTHON names the Python of one that exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.gpu.gpu_source import Gpu
from gpu_proof.training import Training, torchrun
from headway.jobs.pipelines.pipeline_file import read_pipeline
from headway.validation.yaml_parser import parse_yaml

pytestmark = pytest.mark.soak
EXAMPLES = Path(__file__).parents[2] / "examples"
RANKS = 2
SIZE = ["--width", "32", "--layers", "2", "--context", "32", "--batch", "2"]
OFTEN = ["--log-every", "1", "--checkpoint-every", "20"]
KILL_AFTER = 69  # the checkpoint of step 40 is complete then, because the one of step 60 waited for it
INSTALL_S = 2400.0
RUN_S = 900.0
STEP = re.compile(r"^step (\d+) loss (\S+)", re.MULTILINE)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of a venv with the packages of the examples."""
    if given := os.environ.get("HEADWAY_LLM_PYTHON"):
        return given
    venv = tmp_path_factory.mktemp("llm") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=INSTALL_S)
    # The same torch first: some of the packages would otherwise build with another one.
    for words in (["torch==2.13.0"], ["-r", str(EXAMPLES / "requirements-llm.txt")]):
        subprocess.run([str(venv / "bin/pip"), "install", "-q", *words], check=True, timeout=INSTALL_S)
    return str(venv / "bin/python")


class NoGpus:
    """A source of metrics without GPUs."""

    simulated, driver = True, ""

    def read(self) -> list[Gpu]:
        return []


def run(python: str, *words: str, kill_after: int = 0) -> tuple[int, str]:
    """Runs an example, and kills it with SIGKILL once it has logged step `kill_after`. Returns exit status and log."""
    ran = Training(torchrun(RANKS, words, python), NoGpus(), kill_after=kill_after, longest_s=RUN_S)
    assert ran.result("training").state == "ok", ran.log
    return ran.ended, ran.log


def losses(log: str) -> dict[int, str]:
    return {int(step): loss for step, loss in STEP.findall(log)}


@pytest.mark.parametrize(
    ("script", "sharded"),
    [
        ("train_fsdp.py", True),
        ("train_deepspeed.py", True),
        ("train_lightning.py", True),
        ("train_accelerate.py", False),
    ],
)
def test_training_is_killed_and_continues_with_the_same_losses(
    python: str, tmp_path: Path, script: str, sharded: bool
) -> None:
    words = [script, *SIZE, *OFTEN, "--checkpoint-dir", str(tmp_path)]
    ended, log = run(python, *words, "--steps", "5000", kill_after=KILL_AFTER)
    assert ended == -9, log
    held = [int(count.replace(",", "")) for count in re.findall(r"rank \d of 2 holds ([\d,]+) of", log)]
    weights = int(re.findall(r" of ([\d,]+) weights", log)[0].replace(",", ""))
    assert len(held) == RANKS, log
    if sharded:
        assert weights <= sum(held) <= 1.02 * weights  # DeepSpeed pads
        assert max(held) <= 0.52 * weights
    else:  # Accelerate has no FSDP for CPUs
        assert held == [weights] * RANKS
    before = losses(log)

    ended, log = run(python, *words, "--steps", "75")
    assert ended == 0, log
    continued = re.search(r"continues after step (\d+)", log)
    assert continued, log
    first = int(continued[1])
    after = losses(log)
    assert first in (40, 60)
    assert sorted(after) == list(range(first + 1, 76)), log
    again = sorted(before.keys() & after.keys())
    assert again
    assert [after[step] for step in again] == [before[step] for step in again]


def test_rlhf_steps_use_what_earlier_ones_wrote_and_continue(python: str, tmp_path: Path) -> None:
    pipeline = read_pipeline(parse_yaml((EXAMPLES / "rlhf.yaml").read_text()))
    ways = {name: pipeline.steps[name].run for name in pipeline.steps_in_order()}
    assert [way[-2:] for way in ways.values()] == [["rlhf.py", name] for name in ("sft", "reward", "policy", "compare")]
    size = ["--models", str(tmp_path), "--width", "32", "--checkpoint-every", "10", "--log-every", "5"]
    for name in ("sft", "reward", "policy"):
        ended, log = run(python, "rlhf.py", name, *size, "--steps", "10")
        assert (ended, losses(log).keys()) == (0, {5, 10}), log
        ended, log = run(python, "rlhf.py", name, *size, "--steps", "15")
        assert ended == 0, log
        assert "continues after step 10" in log
        assert losses(log).keys() == {15}
        assert (tmp_path / name / "model.safetensors").is_file()
    done = subprocess.run(
        [python, "rlhf.py", "compare", *size], cwd=EXAMPLES, capture_output=True, text=True, timeout=RUN_S,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent / "node/train")}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\w+): mean reward -?\d", done.stdout, re.MULTILINE) == ["sft", "policy"]
