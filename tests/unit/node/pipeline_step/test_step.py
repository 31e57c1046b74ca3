"""Steps of a pipeline read outputs of earlier ones, are skipped by their condition, and are cached by content."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pipeline_step import outputs, step
from pipeline_step.__main__ import main
from pipeline_step.outputs import StepFault
from pipeline_step.results import Results
from pipeline_step.step import Step, substitute, variable


class Pipeline:
    """A pipeline in a folder, with commands `squeue` and `scancel` that record their words."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tmp, self.patch = tmp_path, monkeypatch
        self.folder = tmp_path / "work"
        self.steps: dict[str, dict[str, Any]] = {}
        self.waiting: dict[str, int] = {}
        self.job = 10
        bin_folder = tmp_path / "bin"
        bin_folder.mkdir()
        self.queue = tmp_path / "queue"
        self.queue.touch()
        self.cancelled = tmp_path / "cancelled"
        for name, text in (("squeue", f"cat {self.queue}"), ("scancel", f'echo "$*" >> {self.cancelled}')):
            (bin_folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (bin_folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
        self.new_folder("work")

    def new_folder(self, name: str) -> None:
        self.folder = self.tmp / name
        self.folder.mkdir()
        (self.folder / "in.txt").write_text("text")

    def add(self, name: str, needs: list[str] | None = None, **fields: Any) -> None:
        bare = {
            "when": [],
            "outputs": {},
            "inputs": None,
            "digests": True,
            "settings": "s",
            "fresh": False,
            "earlier": [],
        }
        self.steps[name] = {"needs": needs or [], **bare, **fields}

    def queue_jobs(self, **jobs: int) -> None:
        self.queue.write_text("".join(f"{job}|{name}|{self.folder}\n" for name, job in jobs.items()))

    def run(self, name: str, argv: list[str], files: dict[str, str] | None = None, lines: str = "") -> list[str] | None:
        """Runs a step whose command makes these files. Returns the words of the command; None if it did not run."""
        self.job += 1
        self.patch.setenv("SLURM_JOB_ID", str(self.job))
        plan = {
            "folder": str(self.folder),
            "cache": str(self.tmp / "cache"),
            "metrics": str(self.tmp / "metrics"),
            "steps": self.steps,
        }
        begun = Step(plan, name)
        variables, words = begun.begin(argv)
        if words is None:
            return None
        for key in ("HEADWAY_STEP_KEY",):
            self.patch.delenv(key, raising=False)
        for key, value in variables.items():
            self.patch.setenv(key, value)
        for path, text in (files or {}).items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)
        Path(variables["HEADWAY_OUTPUTS"]).write_text(lines)
        begun.end()
        return words

    def result(self, name: str) -> dict[str, Any]:
        found = Results(str(self.folder)).read(name)
        assert found is not None
        return dict(found)


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    return Pipeline(tmp_path, monkeypatch)


ABOVE = [[[["evaluate", "accuracy"], ">=", 0.9]]]


def test_later_step_reads_outputs_by_variable_and_in_its_command(pipeline: Pipeline) -> None:
    pipeline.add("train", outputs={"model": {"file": "out/model.pt"}, "loss": {"metric": "loss"}})
    pipeline.add("test", ["train"])
    pipeline.run("train", ["x"], {"out/model.pt": "weights"}, "loss=0.25\n")
    words = pipeline.run("test", ["--model={train.model}", "{train.loss}", "{other.thing}"])
    model = str(pipeline.folder / "out/model.pt")
    assert words == [f"--model={model}", "0.25", "{other.thing}"]
    assert os.environ["HEADWAY_OUTPUT_TRAIN_MODEL"] == model
    assert pipeline.result("train")["outputs"]["model"]["bytes"] == 7


def test_missing_output_fails_the_step(pipeline: Pipeline) -> None:
    pipeline.add("train", outputs={"model": {"file": "model.pt"}})
    with pytest.raises(StepFault, match="output model: the command made no model"):
        pipeline.run("train", ["x"])
    assert Results(str(pipeline.folder)).read("train") is None


def test_metric_is_the_last_reported_value(pipeline: Pipeline) -> None:
    pipeline.add("train", outputs={"acc": {"metric": "accuracy"}})
    (pipeline.tmp / "metrics").mkdir()
    lines = [{"run": 1.0}, {"names": ["loss", "accuracy"]}, [1, 2.0, 0.5, 0.7], [2, 3.0, 0.4, None], {"dropped": 1}]
    (pipeline.tmp / "metrics" / "11.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + "[3, 4")
    pipeline.run("train", ["x"])
    assert pipeline.result("train")["outputs"]["acc"] == {"kind": "metric", "value": "0.7"}


def test_metric_that_was_not_reported_fails_the_step(pipeline: Pipeline) -> None:
    pipeline.add("train", outputs={"acc": {"metric": "accuracy"}})
    with pytest.raises(StepFault, match="reported no accuracy"):
        pipeline.run("train", ["x"])
    with pytest.raises(StepFault, match="'high' is not a number"):
        pipeline.run("train", ["x"], lines="acc=high\n")
    (pipeline.tmp / "metrics").mkdir()
    (pipeline.tmp / "metrics" / "13.jsonl").write_text(json.dumps({"names": ["accuracy"]}) + f"\n[1, 2.0, {10**400}]\n")
    with pytest.raises(StepFault, match=r"output acc: '1000.* is not a number, or too large"):
        pipeline.run("train", ["x"])


def test_dataset_output_names_the_newest_version_or_the_written_one(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "DATASETS", str(pipeline.tmp / "datasets"))
    for version in ("2", "10"):
        (pipeline.tmp / "datasets" / "books" / version).mkdir(parents=True)
    pipeline.add("shard", outputs={"data": {"dataset": "books"}})
    pipeline.run("shard", ["x"])
    assert pipeline.result("shard")["outputs"]["data"]["version"] == "books@10"
    pipeline.run("shard", ["x"], lines="data=books@2\n")
    assert pipeline.result("shard")["outputs"]["data"]["value"].endswith("/books/2")
    with pytest.raises(StepFault, match="no version '3'"):
        pipeline.run("shard", ["x"], lines="data=3\n")


def test_false_condition_cancels_the_waiting_jobs_of_all_later_steps(pipeline: Pipeline) -> None:
    pipeline.add("evaluate", outputs={"accuracy": {"metric": "accuracy"}})
    pipeline.add("publish", ["evaluate"], when=ABOVE)
    pipeline.add("announce", ["publish"])
    pipeline.add("report", ["evaluate"])
    pipeline.queue_jobs(publish=21, announce=22, report=23)
    pipeline.run("evaluate", ["x"], lines="accuracy=0.71\n")
    assert pipeline.cancelled.read_text() == "21 22\n"
    assert pipeline.result("publish")["why"] == "evaluate.accuracy is 0.71, not >= 0.9"
    assert (pipeline.result("announce")["state"], pipeline.result("announce")["job"]) == ("skipped", 22)
    assert Results(str(pipeline.folder)).read("report") is None


def test_true_condition_lets_the_step_run(pipeline: Pipeline) -> None:
    pipeline.add("evaluate", outputs={"accuracy": {"metric": "accuracy"}})
    pipeline.add("publish", ["evaluate"], when=ABOVE)
    pipeline.queue_jobs(publish=21)
    pipeline.run("evaluate", ["x"], lines="accuracy=0.9\n")
    assert not pipeline.cancelled.exists()
    assert pipeline.run("publish", ["go"]) == ["go"]


def test_step_whose_job_was_not_cancelled_skips_itself(pipeline: Pipeline) -> None:
    pipeline.add("evaluate", outputs={"accuracy": {"metric": "accuracy"}})
    pipeline.add("publish", ["evaluate"], when=ABOVE)
    pipeline.run("evaluate", ["x"], lines="accuracy=nan\n")
    assert pipeline.run("publish", ["go"]) is None
    assert pipeline.result("publish")["state"] == "skipped"


def test_step_waits_for_results_that_shared_storage_shows_late(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.add("evaluate", outputs={"accuracy": {"metric": "accuracy"}})
    pipeline.add("publish", ["evaluate"], when=ABOVE)
    late = {"job": 11, "state": "done", "outputs": {"accuracy": {"kind": "metric", "value": "0.95"}}}
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            Results(str(pipeline.folder)).write("evaluate", late)

    monkeypatch.setattr(step, "pause", pause)
    assert pipeline.run("publish", ["go", "{evaluate.accuracy}"]) == ["go", "0.95"]
    assert len(pauses) == 3


def test_step_fails_if_a_needed_step_has_no_result(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.add("evaluate", outputs={"accuracy": {"metric": "accuracy"}})
    pipeline.add("publish", ["evaluate"], when=ABOVE)
    pauses: list[float] = []
    monkeypatch.setattr(step, "pause", pauses.append)
    with pytest.raises(StepFault, match=r"the result of step evaluate is not in .*; run it again"):
        pipeline.run("publish", ["go", "{evaluate.accuracy}"])
    assert sum(pauses) > 60  # the longest time for which NFS keeps attributes of a folder


def test_result_of_a_job_before_the_retry_does_not_count(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.add("evaluate", outputs={"accuracy": {"metric": "accuracy"}})
    pipeline.add("publish", ["evaluate"], when=ABOVE)
    pipeline.run("evaluate", ["x"], lines="accuracy=0.5\n")
    pipeline.steps["evaluate"]["earlier"] = [11]
    new = {"job": 12, "state": "done", "outputs": {"accuracy": {"kind": "metric", "value": "0.95"}}}
    monkeypatch.setattr(step, "pause", lambda _: Results(str(pipeline.folder)).write("evaluate", new))
    assert pipeline.run("publish", ["go"]) == ["go"]


@pytest.mark.parametrize("outputs", [None, [], {"accuracy": 1}, {"accuracy": {"kind": "metric"}}])
def test_malformed_result_counts_as_missing(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, outputs: object
) -> None:
    pipeline.add("evaluate", outputs={"accuracy": {"metric": "accuracy"}})
    pipeline.add("publish", ["evaluate"], when=ABOVE)
    Results(str(pipeline.folder)).write("evaluate", {"job": 11, "state": "done", "outputs": outputs})
    monkeypatch.setattr(step, "pause", lambda _: None)
    with pytest.raises(StepFault, match="the result of step evaluate"):
        pipeline.run("publish", ["go"])


@pytest.mark.parametrize(("job", "left"), [("11", None), ("12", 11)])
def test_only_the_result_of_the_named_job_is_forgotten(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, job: str, left: int | None
) -> None:
    pipeline.add("train")
    pipeline.run("train", ["x"])
    monkeypatch.setattr("sys.argv", ["step", "forget", str(pipeline.folder), f"train={job}", "absent=3"])
    assert main() == 0
    assert (Results(str(pipeline.folder)).read("train") or {}).get("job") == left


def cached_pair(pipeline: Pipeline) -> None:
    pipeline.add("prepare", outputs={"data": {"file": "data"}}, inputs=["in.txt"])
    pipeline.add("train", ["prepare"], outputs={"model": {"file": "model.pt"}}, inputs=[])
    pipeline.run("prepare", ["prepare", "in.txt"], {"data/a": "1", "data/b": "2"})
    pipeline.run("train", ["train", "{prepare.data}"], {"model.pt": "weights"})


def test_step_with_the_same_content_is_cached_in_another_folder(pipeline: Pipeline) -> None:
    cached_pair(pipeline)
    pipeline.new_folder("second")
    assert pipeline.run("prepare", ["prepare", "in.txt"]) is None
    assert pipeline.run("train", ["train", "{prepare.data}"]) is None
    result = pipeline.result("prepare")
    assert (result["state"], result["source"], result["job"]) == ("cached", 11, 13)
    assert (pipeline.folder / "data" / "b").read_text() == "2"
    assert result["outputs"]["data"]["value"] == str(pipeline.folder / "data")
    assert (pipeline.folder / "model.pt").read_text() == "weights"


@pytest.mark.parametrize("change", ["input", "command", "settings", "needed"])
def test_other_content_runs_again(pipeline: Pipeline, change: str) -> None:
    cached_pair(pipeline)
    pipeline.new_folder("second")
    if change == "input":
        (pipeline.folder / "in.txt").write_text("other")
    if change == "settings":
        pipeline.steps["prepare"]["settings"] = "t"
    argv = ["prepare", "in.txt", *(["--more"] if change == "command" else [])]
    ran = pipeline.run("prepare", argv, {"data/a": "3" if change == "needed" else "1", "data/b": "2"})
    assert (ran is None) == (change == "needed")
    if change == "needed":
        pipeline.steps["prepare"]["fresh"] = True
        assert pipeline.run("prepare", argv, {"data/a": "3"})
        assert pipeline.run("train", ["train", "{prepare.data}"], {"model.pt": "new"})


@pytest.mark.parametrize("what", ["changed", "deleted"])
def test_cached_outputs_that_are_gone_or_changed_are_made_again(pipeline: Pipeline, what: str) -> None:
    cached_pair(pipeline)
    if what == "changed":
        (pipeline.folder / "data" / "a").write_text("damaged")
    else:
        for file in ("a", "b"):
            (pipeline.folder / "data" / file).unlink()
        (pipeline.folder / "data").rmdir()
    pipeline.new_folder("second")
    assert pipeline.run("prepare", ["prepare", "in.txt"], {"data/a": "1"}) == ["prepare", "in.txt"]


def test_record_of_the_cache_stays_with_the_folder_that_made_the_files(pipeline: Pipeline) -> None:
    cached_pair(pipeline)
    pipeline.new_folder("second")
    assert pipeline.run("prepare", ["prepare", "in.txt"]) is None
    (pipeline.folder / "data" / "a").write_text("damaged")
    pipeline.new_folder("third")
    assert pipeline.run("prepare", ["prepare", "in.txt"]) is None


@pytest.mark.parametrize("goal", ["link", "folder", "file"])
def test_copy_takes_the_place_of_an_earlier_file_and_leaves_no_part(pipeline: Pipeline, goal: str) -> None:
    cached_pair(pipeline)
    pipeline.new_folder("second")
    data = pipeline.folder / "data"
    if goal == "link":
        data.symlink_to(pipeline.tmp / "cache")
    elif goal == "folder":
        (data / "old").mkdir(parents=True)
    else:
        data.write_text("old")
    assert pipeline.run("prepare", ["prepare", "in.txt"]) is None
    assert sorted(path.name for path in pipeline.folder.iterdir()) == [".headway", "data", "in.txt"]
    assert sorted(path.name for path in data.iterdir()) == ["a", "b"]


def test_failed_copy_leaves_no_part(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    cached_pair(pipeline)
    pipeline.new_folder("second")

    def full(source: str, goal: str) -> None:
        Path(goal).touch()
        raise OSError("no space left on device")

    monkeypatch.setattr("shutil.copy2", full)
    assert pipeline.run("prepare", ["prepare", "in.txt"], {"data/a": "1"}) == ["prepare", "in.txt"]
    assert sorted(path.name for path in pipeline.folder.iterdir()) == [".headway", "data", "in.txt"]


def test_cached_dataset_version_that_was_removed_is_made_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "DATASETS", str(pipeline.tmp / "datasets"))
    version = pipeline.tmp / "datasets" / "books" / "2"
    version.mkdir(parents=True)
    pipeline.add("shard", outputs={"data": {"dataset": "books"}}, inputs=[])
    pipeline.run("shard", ["x"])
    assert pipeline.run("shard", ["x"]) is None
    version.rename(version.with_name("3"))
    assert pipeline.run("shard", ["x"]) == ["x"]


def test_only_outputs_that_the_cache_needs_are_hashed(pipeline: Pipeline) -> None:
    pipeline.add("train", outputs={"model": {"file": "m"}}, digests=False)
    pipeline.run("train", ["x"], {"m": "1"})
    assert "sha256" not in pipeline.result("train")["outputs"]["model"]


@pytest.mark.parametrize("link", ["latest.pt", "data/latest"])
def test_links_count_by_the_content_that_they_lead_to(pipeline: Pipeline, link: str) -> None:
    path = link.partition("/")[0]
    pipeline.add("train", outputs={"model": {"file": path}}, inputs=[])
    pipeline.add("evaluate", ["train"], outputs={"score": {"metric": "score"}}, inputs=[])

    def run(content: str) -> list[str] | None:
        (pipeline.folder / link).parent.mkdir(exist_ok=True)
        (pipeline.folder / link).symlink_to(pipeline.folder / "s100.pt")
        pipeline.steps["train"]["fresh"] = True
        pipeline.run("train", ["train"], {"s100.pt": content})
        return pipeline.run("evaluate", ["evaluate"], lines="score=1\n")

    assert run("A") == ["evaluate"]
    pipeline.new_folder("second")
    assert run("B") == ["evaluate"]
    assert len(pipeline.result("train")["outputs"]["model"]["sha256"]) == 64
    pipeline.new_folder("third")
    assert run("A") is None
    pipeline.new_folder("fourth")
    pipeline.steps["train"]["fresh"] = False
    assert pipeline.run("train", ["train"]) is None
    copied = pipeline.folder / link
    assert (copied.read_text(), copied.is_symlink()) == ("A", False)


def test_cached_folder_keeps_links_within_it(pipeline: Pipeline) -> None:
    pipeline.add("train", outputs={"model": {"file": "out"}}, inputs=[])
    for name in ("out/empty", "out/deep", "other"):
        (pipeline.folder / name).mkdir(parents=True)
    (pipeline.folder / "out" / "deep" / "latest").symlink_to("../s100")
    (pipeline.folder / "out" / "folder").symlink_to("deep")
    (pipeline.folder / "out" / "above").symlink_to("..")
    (pipeline.folder / "out" / "gone").symlink_to("nowhere")
    (pipeline.folder / "out" / "other").symlink_to("../other")
    (pipeline.folder / "out" / "run").write_text("x")
    (pipeline.folder / "out" / "run").chmod(0o755)
    pipeline.run("train", ["train"], {"out/s100": "A", "other/file": "B"})
    pipeline.new_folder("second")
    assert pipeline.run("train", ["train"]) is None
    out = pipeline.folder / "out"
    links = {name: str((out / name).readlink()) for name in ("deep/latest", "folder", "above", "gone")}
    assert links == {"deep/latest": "../s100", "folder": "deep", "above": "..", "gone": "nowhere"}
    assert (out / "deep" / "latest").read_text() == "A"
    assert ((out / "other").is_symlink(), (out / "other" / "file").read_text()) == (False, "B")
    assert (out / "empty").is_dir()
    assert os.access(out / "run", os.X_OK)


@pytest.mark.parametrize("second", ["A", "B"])
def test_input_that_is_a_link_counts_by_its_content(pipeline: Pipeline, second: str) -> None:
    pipeline.add("train", outputs={"model": {"file": "m"}}, inputs=["cur.csv"])
    (pipeline.folder / "a.csv").write_text("A")
    (pipeline.folder / "cur.csv").symlink_to("a.csv")
    pipeline.run("train", ["train"], {"m": "1"})
    pipeline.new_folder("second")
    (pipeline.folder / "a.csv").write_text(second)
    (pipeline.folder / "cur.csv").symlink_to("a.csv")
    assert (pipeline.run("train", ["train"], {"m": "1"}) is None) == (second == "A")


def test_missing_input_fails_the_step(pipeline: Pipeline) -> None:
    pipeline.add("prepare", outputs={"data": {"file": "data"}}, inputs=["absent.txt"])
    with pytest.raises(StepFault, match="has no absent"):
        pipeline.run("prepare", ["x"])


def test_names_and_words_of_outputs() -> None:
    assert variable("train-2.a", "model") == "HEADWAY_OUTPUT_TRAIN_2_A_MODEL"
    assert substitute(["{a.b}{a.b}", "{a.bc}"], {("a", "b"): "1", ("a", "bc"): "2"}) == ["11", "2"]
