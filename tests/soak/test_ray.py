"""Real Ray on a local cluster: the Rays of several jobs do not meet, and a search survives lost nodes.

HEADWAY_RAY_WHEELS names a folder with the wheels of Ray for the machines' Python; without it they are downloaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.lab import Lab

pytestmark = pytest.mark.soak
EXAMPLES = Path(__file__).parents[2] / "examples"
PACKAGES = "ray[default,tune,data,train]==2.60.0"
VENV = "/scratch/ray"
SPEC = """
name: ray
provider: local
plan: h100-8
nodes: 4
teams:
  vision: {users: [alice, vera]}
"""
# Says what it sees of its Ray, then waits for the file "go".
LOOK = """\
import os, time, ray
ray.init()
found = ray.cluster_resources()
print("sees", sum(node["Alive"] for node in ray.nodes()), "nodes", int(found["GPU"]), "GPUs", flush=True)

@ray.remote(num_gpus=1, num_cpus=0)
def gpu():
    return os.uname().nodename, os.environ["CUDA_VISIBLE_DEVICES"]

print("has", sorted(set(ray.get([gpu.remote() for _ in range(8)]))), flush=True)
open("address", "w").write(os.environ["RAY_ADDRESS"] + " " + os.environ["RAY_API_SERVER_ADDRESS"])
while not os.path.exists("go"):
    time.sleep(0.1)
"""
REFUSED = """\
import sys, urllib.error, urllib.request, ray
try:
    ray.init(address=sys.argv[1], _node_ip_address="127.0.0.1")
except Exception as error:
    print("init", type(error).__name__)
try:
    urllib.request.urlopen(sys.argv[2] + "/api/version", timeout=10)
except urllib.error.HTTPError as error:
    print("dashboard", error.code)
"""
SEARCH_S = 1200.0


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A cluster whose users have Ray in one venv."""
    folder = tmp_path_factory.mktemp("ray")
    wheels = Path(os.environ.get("HEADWAY_RAY_WHEELS") or folder / "wheels")
    made = Lab(folder / "state", name="ray")
    with made.applied(SPEC):
        version = made.head("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").out.strip()
        if not wheels.is_dir():
            fetch = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--only-binary",
                ":all:",
                "--dest",
                str(wheels),
            ]
            subprocess.run([*fetch, "--python-version", version, PACKAGES], check=True, timeout=1800)
        made.podman("cp", str(wheels), f"{made.container('ray-head')}:/scratch/wheels")
        made.head("chmod", "-R", "a+rX", "/scratch/wheels")
        made.head("python3", "-m", "venv", "--system-site-packages", VENV)
        made.head(f"{VENV}/bin/pip", "install", "--quiet", "--no-index", "--find-links", "/scratch/wheels", PACKAGES)
        yield made


def start(lab: Lab, folder: Path, user: str, nodes: int, *words: str) -> int:
    """Submits a command of the folder under Ray, and returns the job's id."""
    more = ["--gpus", "2"] if words == ("look.py",) else []
    run = ["run", "ray", "--as", user, "--nodes", str(nodes), "--launcher", "ray", "--folder", str(folder), *more]
    told = lab.cli(*run, "--", f"{VENV}/bin/python", *words).out
    return int(told.partition("Submitted batch job ")[2].split()[0])


def log(lab: Lab, job: int) -> str:
    return lab.cli("logs", "ray", str(job)).out


def folder_of(lab: Lab, job: int) -> str:
    return lab.field(job, "WorkDir")


def test_rays_of_several_jobs_on_the_same_nodes_do_not_meet(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(LOOK)
    (tmp_path / "refused.py").write_text(REFUSED)
    jobs = {start(lab, tmp_path, user, 4, "look.py"): user for user in ("alice", "alice", "vera")}
    for job in jobs:
        lab.wait(lambda job=job: "has [" in log(lab, job), f"the Ray of job {job}", SEARCH_S)  # type: ignore[misc]
    seen = {job: [line for line in log(lab, job).splitlines() if line.startswith(("sees", "has"))] for job in jobs}
    assert {lines[0] for lines in seen.values()} == {"sees 4 nodes 8 GPUs"}
    alice, own = next(iter(jobs)), [lines[1] for lines in seen.values()]
    assert all(f"('ray-1-{node}', '{gpu}')" in line for line in own for node in range(1, 5) for gpu in (0, 1)), own
    # A program of another user with a token of its own, in a job on the same node.
    where = folder_of(lab, alice)
    addresses = lab.output(f"{where}/address").split()
    words = (
        f"RAY_AUTH_MODE=token RAY_AUTH_TOKEN={'0' * 64} {VENV}/bin/python {folder_of(lab, list(jobs)[2])}/refused.py"
    )
    step = lab.head(
        "srun", "--nodelist=ray-1-1", "-n1", "sh", "-c", f"{words} {' '.join(addresses)}", user="vera", check=False
    )  # fmt: skip
    assert "init " in step.out, step
    assert "dashboard 401" in step.out, step
    for job in jobs:
        lab.head("touch", f"{folder_of(lab, job)}/go")
    for job in jobs:
        lab.wait_job(job, "COMPLETED")
    for node in range(1, 5):
        left = lab.podman(
            "exec", lab.container(f"ray-1-{node}"), "sh", "-c", "ps -eo args | grep [r]aylet/raylet || true"
        )
        assert left == ""


def results(lab: Lab, job: int) -> dict[str, list[dict[str, object]]]:
    """Returns what each trial of a search has reported, oldest first."""
    find = f"for file in {folder_of(lab, job)}/checkpoints/search/*/result.json; do echo $file; cat $file; done"
    found: dict[str, list[dict[str, object]]] = {}
    name = ""
    for line in lab.head("sh", "-c", find, check=False).out.splitlines():
        if line.startswith("/"):
            name = line.split("/")[-2]
        elif line.endswith("}"):
            found.setdefault(name, []).append(json.loads(line))
    return found


def started_at(rows: list[dict[str, object]]) -> list[int]:
    """Returns the epochs at which a trial began: 1, then those after the checkpoints that it continued from."""
    return sorted({int(str(row["started_at"])) for row in rows})


def search(lab: Lab, tmp_path: Path, on: str) -> tuple[int, list[str]]:
    """Starts a search without early stops on three nodes. Returns its job, and the trials that run on the node once all
    three have written checkpoints."""
    (tmp_path / "ray_tune.py").write_text((EXAMPLES / "ray_tune.py").read_text())
    size = ["--samples", "3", "--epochs", "40", "--grace", "40", "--rows", "100000"]
    job = start(lab, tmp_path, "alice", 3, "ray_tune.py", *size)

    def running() -> list[str]:
        found = results(lab, job)
        if len(found) < 3 or any(len(rows) < 3 for rows in found.values()):
            return []
        return [name for name, rows in found.items() if rows[-1]["hostname"] == on]

    return job, lab.wait(running, f"trials with checkpoints on {on}", SEARCH_S)


def test_lost_worker_costs_its_trials_the_time_since_their_checkpoints(lab: Lab, tmp_path: Path) -> None:
    job, lost = search(lab, tmp_path, "ray-1-3")
    had = {name: len(rows) for name, rows in results(lab, job).items()}
    lab.podman("kill", lab.container("ray-1-3"))
    lab.wait_job(job, "COMPLETED", patience_s=SEARCH_S)
    assert lab.field(job, "Restarts") == "0"
    assert "3 trials, 0 failed; best accuracy" in log(lab, job)
    for name, rows in results(lab, job).items():
        began = started_at(rows)
        assert began[0] == 1
        # The last checkpoint before the loss is at most one epoch old.
        assert (len(began) == 2 and began[1] >= had[name] - 1) if name in lost else began == [1], (name, began, had)
        assert max(int(str(row["epoch"])) for row in rows) == 40


def test_search_continues_after_the_loss_of_the_first_node(lab: Lab, tmp_path: Path) -> None:
    job, _ = search(lab, tmp_path, "ray-1-1")
    had = {name: len(rows) for name, rows in results(lab, job).items()}
    lab.podman("kill", lab.container("ray-1-1"))
    lab.wait(lambda: lab.field(job, "Restarts") not in ("", "0"), "the requeue", SEARCH_S)
    lab.wait_job(job, "COMPLETED", patience_s=SEARCH_S)
    assert "continues the search in" in log(lab, job)
    for name, rows in results(lab, job).items():
        assert started_at(rows)[-1] >= had[name] - 1, (name, started_at(rows), had)
        assert max(int(str(row["epoch"])) for row in rows) == 40


def test_loss_of_rays_head_process_ends_the_job_and_says_so(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(LOOK)
    job = start(lab, tmp_path, "alice", 2, "look.py")
    lab.wait(lambda: "has [" in log(lab, job), "Ray", SEARCH_S)
    first = lab.field(job, "BatchHost")
    lab.podman("exec", lab.container(first), "pkill", "-KILL", "-x", "-u", "alice", "gcs_server")
    lab.wait_job(job, "FAILED")
    assert f"headway: Ray on {first} ended with status 1; the end of " in log(lab, job)
