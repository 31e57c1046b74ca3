"""Real MLflow on a local cluster: unmodified programs log to it, nothing is lost while it is down, and teams are apart.

HEADWAY_MLFLOW_WHEELS names a folder with the wheels for the machines' Python; without it they are downloaded. PyTorch is that
of the machines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab import Lab

pytestmark = pytest.mark.soak
# The second group needs PyTorch, which is on the machines as Debian's package: pip would download another.
PACKAGES = ("mlflow==3.17.2", "scikit-learn")
WITHOUT_TORCH = (
    "transformers", "accelerate", "lightning", "pytorch-lightning", "torchmetrics", "lightning-utilities", "tokenizers",
    "safetensors", "huggingface-hub", "regex", "tqdm", "filelock", "psutil", "fsspec", "httpx", "httpcore", "hf-xet",
    "numpy",
)  # fmt: skip
VENV = "/scratch/mlflow"
SPEC = """
name: flow
provider: local
plan: h100-8
nodes: 2
mlflow: true
teams:
  vision: {users: [alice]}
  speech: {users: [sam]}
"""
PLAIN = """\
import mlflow

mlflow.set_experiment("plain")
with mlflow.start_run():
    mlflow.log_params({"lr": 3e-4})
    for step in range(300):
        mlflow.log_metric("loss", 300.0 - step, step=step)
    mlflow.log_text("hello", "notes.txt")
    mlflow.set_tag("headway.user", "root")
"""
SKLEARN = """\
import mlflow
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

mlflow.set_experiment("sklearn")
mlflow.autolog()
data = load_iris()
with mlflow.start_run() as run:
    LogisticRegression(max_iter=200).fit(data.data, data.target)
version = mlflow.register_model(f"runs:/{run.info.run_id}/model", "iris")
model = mlflow.sklearn.load_model(f"models:/iris/{version.version}")
assert model.predict(data.data[:1]).tolist() == [0]
"""
HUGGING_FACE = """\
import os

os.environ |= {"HF_HUB_OFFLINE": "1", "MLFLOW_EXPERIMENT_NAME": "huggingface"}
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2))
rows = [{"input_ids": (row := torch.randint(0, 64, (16,))), "labels": row} for _ in range(32)]
arguments = TrainingArguments(
    output_dir="out", max_steps=10, logging_steps=1, report_to="mlflow", use_cpu=True, save_strategy="no"
)
Trainer(model=model, args=arguments, train_dataset=rows).train()
"""
LIGHTNING = """\
import os

import lightning
import torch
from lightning.pytorch.loggers import MLFlowLogger


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        loss = (self.layer(batch[0]) - batch[1]).pow(2).mean()
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


x = torch.rand(40, 1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, 2 * x), batch_size=4)
logger = MLFlowLogger("lightning", tracking_uri=os.environ["MLFLOW_TRACKING_URI"])
lightning.Trainer(max_epochs=1, logger=logger, log_every_n_steps=1, accelerator="cpu").fit(Line(), data)
"""
# Reads the runs of all experiments that its team has, then tries to reach the run and the workspace that it was given.
INTRUDER = """\
import os, sys
import mlflow, requests

with mlflow.start_run():
    mlflow.log_metric("own", 1.0)
print("finds", sorted(mlflow.search_runs(search_all_experiments=True).run_id), flush=True)
uri, head = os.environ["MLFLOW_TRACKING_URI"], {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}
run, workspace = sys.argv[1:]
for path in ("/api/2.0/mlflow/runs/get", "/%61pi/2.0/mlflow/runs/get", "/api/2.0/mlflow/runs%2Fget"):
    answer = requests.get(uri + path, params={"run_id": run}, headers={**head, "X-MLFLOW-WORKSPACE": workspace})
    print("run", answer.status_code, run in answer.text and "artifact_uri" in answer.text, flush=True)
answer = requests.get(uri + "/api/3.0/mlflow/workspaces", headers=head)
print("workspaces", answer.status_code, "vision" in answer.text, flush=True)
"""
LONG_S = 900.0  # imports of torch on a busy machine


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A cluster, and a server with MLflow. Apart from `lab`, because a test with its fixtures may take 20 minutes."""
    made = Lab(tmp_path_factory.mktemp("flow") / "state", name="flow")
    with made.applied(SPEC):
        made.cli("mlflow", "install", timeout_s=1000)
        yield made


@pytest.fixture(scope="module")
def lab(flow: Lab) -> Lab:
    """The cluster, whose users have MLflow's client in one venv."""
    wheels = Path(os.environ.get("HEADWAY_MLFLOW_WHEELS") or flow.state.parent / "wheels")
    version = flow.head("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").out.strip()
    if not wheels.is_dir():
        download(wheels, version)
    flow.podman("cp", str(wheels), f"{flow.container('flow-head')}:/scratch/wheels")
    flow.head("chmod", "-R", "a+rX", "/scratch/wheels")
    flow.head("python3", "-m", "venv", "--system-site-packages", VENV)
    pip = (f"{VENV}/bin/pip", "install", "--quiet", "--no-index", "--find-links", "/scratch/wheels")
    flow.head(*pip, *PACKAGES)
    flow.head(*pip, "--no-deps", "--ignore-installed", *WITHOUT_TORCH)
    return flow


def test_mlflow_runs_after_its_installation(flow: Lab) -> None:
    flow.wait(lambda: flow.cli("mlflow", "status", check=False).code == 0, "MLflow to run")


def test_users_can_import_the_client(lab: Lab) -> None:
    assert "3.17" in lab.head(f"{VENV}/bin/python", "-c", "import mlflow; print(mlflow.__version__)").out


def download(wheels: Path, version: str) -> None:
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--python-version", version]
    fetch += ["--dest", str(wheels)]
    for words in (PACKAGES, ("--no-deps", *WITHOUT_TORCH)):
        subprocess.run([*fetch, *words], check=True, timeout=1800)


def start(lab: Lab, folder: Path, user: str, text: str, *words: str) -> int:
    """Submits a program, and returns the job's id."""
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(text)
    run = ("run", "flow", "--as", user, "--folder", str(folder), "--", f"{VENV}/bin/python", "program.py", *words)
    return int(lab.cli(*run).out.partition("Submitted batch job ")[2].split()[0])


def ask(lab: Lab, team: str, path: str, body: dict[str, Any] | None = None, query: str = "") -> Any:
    """Returns an answer of the MLflow server in a team's workspace, as people read it."""
    method, address = "GET" if body is None else "POST", f"/clusters/flow/mlflow/{team}/api/2.0/mlflow/{path}"
    content = json.dumps(body).encode() if body is not None else b""
    headers = {"content-type": "application/json"}
    with lab.client.forward(method, address, query=query, headers=headers, content=content) as answer:
        return json.loads(b"".join(answer.iter_bytes()))


def ended_run(lab: Lab, team: str, job: int) -> dict[str, Any]:
    """Waits until MLflow has the job's run, and all that it logged. Returns the run."""

    def read() -> dict[str, Any]:
        experiments = ask(lab, team, "experiments/search", {"max_results": 100}).get("experiments", [])
        ids = [one["experiment_id"] for one in experiments]
        wanted = f"tags.`headway.job` = '{job}' and attributes.status = 'FINISHED'"
        found = ask(lab, team, "runs/search", {"experiment_ids": ids, "filter": wanted}).get("runs", [])
        return dict(found[0]) if found else {}

    return lab.wait(read, f"the run of job {job} in MLflow", LONG_S)


def points(lab: Lab, team: str, run: dict[str, Any], metric: str) -> list[tuple[int, float]]:
    """Returns step and value of all points of a metric that MLflow has."""
    query = f"run_id={run['info']['run_id']}&metric_key={metric}&max_results=1000"
    return [
        (int(one["step"]), float(one["value"])) for one in ask(lab, team, "metrics/get-history", None, query)["metrics"]
    ]


@pytest.mark.parametrize(
    ("text", "metric", "count"),
    [(PLAIN, "loss", 300), (SKLEARN, "training_score", 1), (HUGGING_FACE, "loss", 10), (LIGHTNING, "train_loss", 10)],
    ids=["log_metric", "sklearn", "huggingface", "lightning"],
)
def test_unmodified_programs_log_to_mlflow(lab: Lab, tmp_path: Path, text: str, metric: str, count: int) -> None:
    job = start(lab, tmp_path / "files", "alice", text)
    lab.wait_job(job, "COMPLETED", patience_s=LONG_S)
    run = ended_run(lab, "vision", job)
    assert len(points(lab, "vision", run, metric)) == count
    tags = {tag["key"]: tag["value"] for tag in run["data"]["tags"]}
    assert (tags["headway.user"], tags["headway.team"], tags["headway.cluster"]) == ("alice", "vision", "flow")
    known = {one["name"] for one in lab.cli("job", "metrics", "flow", str(job), "-o", "json").json()["metrics"]}
    assert metric in known


def test_lineage_leads_from_a_registered_model_to_its_job_and_code(lab: Lab, tmp_path: Path) -> None:
    job = start(lab, tmp_path / "files", "alice", SKLEARN)
    lab.wait_job(job, "COMPLETED", patience_s=LONG_S)

    def latest() -> str:
        graph = lab.cli("lineage", "show", "iris", "--cluster", "flow", "-o", "json").json()
        return graph["start"] if [f"job:{job}", graph["start"]] in graph["edges"] else ""

    model = lab.wait(latest, f"the model of job {job} in the lineage", LONG_S)
    shown = lab.cli("lineage", "show", model, "--cluster", "flow").out
    assert f"└─ job {job}  program · alice  COMPLETED" in shown, shown
    assert "files " in shown, shown
    assert f"model {model.partition(':')[2]}" in lab.cli("lineage", "show", str(job), "--cluster", "flow").out


def test_nothing_is_lost_while_mlflow_is_down(lab: Lab, tmp_path: Path) -> None:
    program = lab.state / "mlflow" / "env" / "bin" / "mlflow"
    away = program.with_name("mlflow.away")
    program.rename(away)  # otherwise it is started again at once
    try:
        for process in of_mlflow(lab):
            os.kill(process, signal.SIGKILL)
        lab.wait(lambda: lab.cli("mlflow", "status", check=False).code == 1, "MLflow to be down")
        job = start(lab, tmp_path / "files", "alice", PLAIN)
        lab.wait_job(job, "COMPLETED", patience_s=LONG_S)
        assert lab.cli("mlflow", "status", check=False).code == 1
    finally:
        away.rename(program)
    run = ended_run(lab, "vision", job)
    assert sorted(points(lab, "vision", run, "loss")) == [(step, 300.0 - step) for step in range(300)]


def of_mlflow(lab: Lab) -> list[int]:
    """Returns the processes of this lab's MLflow server."""
    found, database = [], f"sqlite:///{lab.state / 'mlflow' / 'mlflow.db'}".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if database in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:  # it has ended
            continue
    assert found
    return found


def test_teams_do_not_see_each_other(lab: Lab, tmp_path: Path) -> None:
    first = start(lab, tmp_path / "files", "alice", PLAIN)
    lab.wait_job(first, "COMPLETED", patience_s=LONG_S)
    run = ended_run(lab, "vision", first)
    tracked = run["info"]["run_id"]
    second = start(lab, tmp_path / "others", "sam", INTRUDER, tracked, "vision")
    lab.wait_job(second, "COMPLETED", patience_s=LONG_S)
    text = lab.cli("logs", "flow", str(second)).out
    own = ended_run(lab, "speech", second)["info"]["run_id"]
    assert f"finds ['{own}']" in text
    assert [line for line in text.splitlines() if line.startswith("run ")] != []
    assert " True" not in text
