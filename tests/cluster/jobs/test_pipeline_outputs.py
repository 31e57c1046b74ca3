"""Steps of a pipeline on a real cluster pass outputs on, are skipped by a metric, and are cached by content."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.lab import Lab

from headway.schemas.submission.pipelines import PipelineOut

STEPS = """\
import os
import pathlib
import sys

if sys.argv[1] == "prepare":
    pathlib.Path("data").mkdir()
    pathlib.Path("data/tokens.txt").write_text("1 2 3")
elif sys.argv[1] == "evaluate":
    from headway_train import report

    assert os.environ["HEADWAY_OUTPUT_PREPARE_DATA"] == sys.argv[2]
    assert pathlib.Path(sys.argv[2], "tokens.txt").read_text() == "1 2 3"
    report(step=1, accuracy=0.5)
    report(step=2, accuracy=0.75)
"""
PIPELINE = """\
name: branches
steps:
  prepare:
    run: python3 steps.py prepare
    inputs: [steps.py]
    outputs:
      data: {file: data}
  evaluate:
    needs: [prepare]
    run: python3 steps.py evaluate {prepare.data}
    outputs:
      accuracy: {metric: accuracy}
  publish:
    needs: [evaluate]
    when: evaluate.accuracy >= 0.9
    nodes: 2
    gpus: 8
    run: "true"
  announce: {needs: [publish], run: "true"}
  improve:
    needs: [evaluate]
    when: evaluate.accuracy < 0.9
    run: echo it has {evaluate.accuracy}
"""


def run(lab: Lab, file: Path) -> PipelineOut:
    """Runs the pipeline and returns it when it is done."""
    started = lab.cli("pipeline", "run", str(file), "--as", "viola", "-o", "json").json()["id"]

    def ended() -> PipelineOut | None:
        found = lab.client.pipelines.get("lab", started)
        return found if found.state != "running" else None

    found = lab.wait(ended, "the pipeline to end", seen=lambda lab: lab.cli("pipeline", "show", started).out)
    assert found
    return found


def test_steps_pass_outputs_on_branch_on_a_metric_and_are_cached(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "branches.yaml").write_text(PIPELINE)
    first = run(lab, tmp_path / "branches.yaml")
    shown = lab.cli("pipeline", "show", first.id).out
    assert first.state == "done", shown
    steps = {step.name: step for step in first.steps}
    assert {name: step.state for name, step in steps.items()} == {
        "prepare": "COMPLETED",
        "evaluate": "COMPLETED",
        "publish": "SKIPPED",
        "announce": "SKIPPED",
        "improve": "COMPLETED",
    }, shown
    assert steps["evaluate"].outputs["accuracy"].value == "0.75"
    assert steps["publish"].why == "evaluate.accuracy is 0.75, not >= 0.9"
    assert "it has 0.75" in lab.cli("logs", "lab", str(steps["improve"].job_id)).out
    # A skipped step gets no nodes: its job was cancelled while it waited.
    told = lab.head("sacct", "-X", "-n", "-P", "-o", "State,AllocNodes,Start", "-j", str(steps["publish"].job_id)).out
    assert told.startswith("CANCELLED"), told
    assert told.strip().endswith("|0|None"), told
    (tmp_path / "branches.yaml").write_text(PIPELINE.partition("  publish:")[0])
    second = run(lab, tmp_path / "branches.yaml")
    states = {step.name: step.state for step in second.steps}
    assert states == {"prepare": "CACHED", "evaluate": "COMPLETED"}, lab.cli("pipeline", "show", second.id).out
    assert second.steps[0].source == first.steps[0].job_id
    assert second.steps[0].outputs["data"].value == f"{second.workdir}/data"
