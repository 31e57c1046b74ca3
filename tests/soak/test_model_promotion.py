"""Promotions of models with a real MLflow server: a job logs and registers a model, a gate's job evaluates it, the server is
killed meanwhile, and the manifest is verified against the files.

HEADWAY_MLFLOW_WHEELS names a folder with the wheels for the machines' Python; without it they are downloaded."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headway.sdk.local_server import running_server
from tests.cluster.lab import Done, Lab

pytestmark = pytest.mark.soak
PACKAGES = ("mlflow==3.17.2", "scikit-learn")
VENV = "/scratch/mlflow"
LONG_S = 900.0
SPEC = """
name: flow
provider: local
plan: h100-8
nodes: 1
mlflow: true
teams:
  vision: {users: [alice, lena], leads: [lena]}
"""
TRAIN = """\
import mlflow
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

data = load_iris()
with mlflow.start_run() as run:
    model = LogisticRegression(max_iter=200).fit(data.data, data.target)
    mlflow.log_metric("accuracy", model.score(data.data, data.target))
    mlflow.sklearn.log_model(model, name="model")
print("version", mlflow.register_model(f"runs:/{run.info.run_id}/model", "flowers").version, flush=True)
"""
EVALUATE = """\
import os
import time

import mlflow
from sklearn.datasets import load_iris

data = load_iris()
model = mlflow.sklearn.load_model(os.environ["HEADWAY_MODEL_URI"])
with mlflow.start_run():
    mlflow.log_metric("held_out", model.score(data.data[::3], data.target[::3]))
open("/scratch/evaluated", "w").close()
while not os.path.exists("/scratch/go"):
    time.sleep(0.2)
"""
GATES = f"""\
jobs:
  evaluate: {{run: {VENV}/bin/python evaluate.py, time: 20}}
gates:
  accuracy: {{metric: accuracy, min: 0.9}}
  held-out: {{metric: held_out, job: evaluate, min: 0.9}}
  licence: {{approval: lead}}
"""
ALIAS = """\
import mlflow

client = mlflow.MlflowClient()
found = client.get_model_version_by_alias("flowers", "production")
print("production is", found.version, flush=True)
mlflow.sklearn.load_model("models:/flowers@production")
client.set_registered_model_alias("flowers", "mine", found.version)
try:
    client.set_registered_model_alias("flowers", "production", found.version)
except Exception as error:
    print("refused", error, flush=True)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A cluster with MLflow, whose users have MLflow's client in a venv, and version 1 of model flowers."""
    made = Lab(tmp_path_factory.mktemp("flow") / "state", name="flow")
    with made.applied(SPEC):
        furnish(made)
        yield made


def furnish(lab: Lab) -> None:
    """Installs MLflow and its client, and has a job register the model."""
    lab.cli("mlflow", "install", timeout_s=1000)
    wheels = Path(os.environ.get("HEADWAY_MLFLOW_WHEELS") or lab.state.parent / "wheels")
    version = lab.head("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").out.strip()
    if not wheels.is_dir():
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"]
        subprocess.run(
            [*fetch, "--python-version", version, "--dest", str(wheels), *PACKAGES], check=True, timeout=1800
        )
    lab.podman("cp", str(wheels), f"{lab.container('flow-head')}:/scratch/wheels")
    lab.head("chmod", "-R", "a+rX", "/scratch/wheels")
    lab.head("python3", "-m", "venv", VENV)
    lab.head(f"{VENV}/bin/pip", "install", "--quiet", "--no-index", "--find-links", "/scratch/wheels", *PACKAGES)
    lab.wait(lambda: lab.cli("mlflow", "status", check=False).code == 0, "MLflow to run")
    folder = lab.state / "train"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "alias.py").write_text(ALIAS)
    assert "version 1" in finished(lab, "train.py")


def finished(lab: Lab, program: str) -> str:
    """Runs a program as alice, and returns its log."""
    words = ("run", "flow", "--as", "alice", "--folder", str(lab.state / "train"), "--", f"{VENV}/bin/python", program)
    job = int(lab.cli(*words).out.partition("Submitted batch job ")[2].split()[0])
    lab.wait_job(job, "COMPLETED", patience_s=LONG_S)
    return lab.cli("logs", "flow", str(job)).out


@dataclass(frozen=True)
class Person:
    """A person with a token."""

    lab: Lab
    url: str
    token: str

    def cli(self, *words: str, check: bool = True) -> Done:
        return self.lab.cli(*words, check=check, HEADWAY_URL=self.url, HEADWAY_TOKEN=self.token)


def person(lab: Lab, name: str, role: str, *scopes: str) -> Person:
    """Returns a person with a token of these scopes."""
    words = [word for scope in scopes for word in ("--scope", scope)]
    token = lab.cli("token", "create", name, "--role", role, *words, "-q").out.strip()
    server = running_server(lab.state)
    assert server is not None
    return Person(lab, server.url, token)


def promote(who: Person, gates: str, *words: str) -> tuple[int, Any]:
    """Returns (exit code, promotion) of `headway model promote flowers@1 --to production`."""
    folder = who.lab.state / "gates"
    folder.mkdir(exist_ok=True)
    (folder / "gates.yaml").write_text(gates)
    (folder / "evaluate.py").write_text(EVALUATE)
    asked = ("--to", "production", "--gates", str(folder / "gates.yaml"), "--cluster", "flow", "-o", "json")
    done = who.cli("model", "promote", "flowers@1", *asked, *words, check=False)
    assert done.out, done.err
    return done.code, json.loads(done.out)


def test_refusal_says_what_the_gate_wants_and_saw(lab: Lab) -> None:
    alice = person(lab, "alice", "member", "submit")
    code, found = promote(alice, "gates: {accuracy: {metric: accuracy, min: 0.999}}")
    assert (code, found["state"]) == (1, "refused")
    assert found["why"].startswith("gate accuracy wants accuracy at least 0.999: accuracy 0.9"), found["why"]
    code, found = promote(alice, GATES)
    assert (code, found["gates"][1]["state"]) == (1, "skipped"), found
    assert found["why"] == "gate licence wants approval licence by a lead other than alice: not approved"


def test_killed_server_continues_the_promotion_and_signs_its_manifest(lab: Lab, tmp_path: Path) -> None:
    lena, alice = person(lab, "lena", "lead", "all"), person(lab, "alice", "member", "submit")
    approve = ("model", "approve", "flowers@1", "licence", "--cluster", "flow")
    lena.cli(*approve)
    assert alice.cli(*approve, check=False).code == 4
    code, begun = promote(alice, GATES, "--no-wait")
    assert (code, begun["state"]) == (0, "pending")
    lab.wait(lambda: lab.head("test", "-e", "/scratch/evaluated", check=False).code == 0, "the evaluation", LONG_S)
    server = running_server(lab.state)
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    lab.podman("exec", lab.container("flow-head"), "touch", "/scratch/go")
    lab.cli("server", "start")
    lab.forget_client()

    def ended() -> dict[str, Any]:
        now = lab.cli("model", "promotions", begun["id"], "--cluster", "flow", "-o", "json").json()
        return dict(now) if now["state"] in ("promoted", "refused") else {}

    found = lab.wait(ended, "the end of the promotion", LONG_S)
    assert found["state"] == "promoted", found
    assert [gate["state"] for gate in found["gates"]] == ["passed"] * 3
    manifest, key = tmp_path / "manifest.json", tmp_path / "flow.pub"
    manifest.write_text(lab.cli("model", "manifest", begun["id"], "--cluster", "flow").out)
    key.write_text(lab.cli("model", "key", "--cluster", "flow").out)
    (stored,) = (path.parent for path in (lab.state / "mlflow" / "artifacts").glob("**/MLmodel"))
    shutil.copytree(stored, tmp_path / "model")
    words = ("model", "verify", str(manifest), "--key", str(key), "--files", str(tmp_path / "model"))
    told = lab.cli(*words, HEADWAY_STATE=str(tmp_path / "none"))  # without a server
    assert "the signature is valid" in told.out
    assert "those in the folder are the same" in told.out
    (tmp_path / "model" / "MLmodel").write_text("changed")
    assert "MLmodel differs" in lab.cli(*words, check=False).err


def test_jobs_load_the_alias_and_can_not_change_it(lab: Lab) -> None:
    text = finished(lab, "alias.py")
    assert "production is 1" in text
    assert "a promotion has set it" in text


def test_version_whose_files_are_gone_is_refused(lab: Lab) -> None:
    stored = [path.parent for path in (lab.state / "mlflow" / "artifacts").glob("**/MLmodel")]
    for folder in stored:
        folder.rename(folder.with_name("away"))
    try:
        code, found = promote(person(lab, "alice", "member", "submit"), "gates: {}")
        assert (code, found["state"]) == (1, "refused")
        assert found["why"].startswith("the files of flowers@1 are gone"), found["why"]
    finally:
        for folder in stored:
            folder.with_name("away").rename(folder)
