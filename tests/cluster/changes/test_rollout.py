"""A rollout stops at the first node that a broken image breaks; a fixed image is rolled out without disturbing a
running job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.cluster.changes.installation import Installation
from tests.cluster.lab import Lab

from headway.images.recipe import BASE_REPOSITORY, base_hash
from headway.paths import instance_label

SPEC = "name: roll\nplan: h100-8\nnodes: 2\nteams:\n  t: {users: [ann], share: 1}\n"


@pytest.fixture(scope="module")
def own(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    made = Installation(tmp_path_factory.mktemp("own"))
    yield made
    made.remove_images()


@pytest.fixture(scope="module")
def lab(own: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    assert base_hash("debian13", own.folder / "node/image") == base_hash("debian13"), BASE_REPOSITORY
    made = Lab(tmp_path_factory.mktemp("roll") / "state", name="roll")
    made.env["PYTHONPATH"] = str(own.folder / "src")
    with made.applied(SPEC):
        yield made


def images(lab: Lab) -> list[str]:
    """Returns the images of both nodes; a node that is being recreated is missing."""
    ours = f"--filter=label=headway.instance={instance_label(lab.state)}"
    rows = json.loads(lab.podman("ps", "-a", "--format", "json", ours))
    found = {row["Labels"]["headway.machine"]: str(row["Image"]) for row in rows}
    return [found[name] for name in ("roll-1-1", "roll-1-2") if name in found]


def progress(lab: Lab) -> str:
    """Returns what the last operation has reported, and what Slurm says of the nodes."""
    last = lab.client.operations.list("roll")[0]
    lines = [f"{event.step}: {event.text}" for event in lab.client.operations.events(last.id)]
    return "\n".join([f"{last.kind} {last.state}", *lines, lab.head("sinfo", "-N", "-o", "%N %T %E").out])


def test_broken_node_image_stops_at_one_node_and_a_fixed_one_rolls_out(lab: Lab, own: Installation) -> None:
    before = images(lab)
    job = lab.sbatch("ann", "--nodelist=roll-1-1", wrap="while [ ! -e go ]; do sleep 0.1; done")
    lab.wait_job(job, "RUNNING")
    own.image("#!/bin/sh\necho 'no GPU' >&2\nexit 9\n")
    assert "rebuild" in lab.cli("plan", str(lab.state / "roll.yaml")).out
    shown = lab.cli("roll", "roll", "--dry-run").out
    assert f"once job {job} has ended" in shown
    done = lab.cli("roll", "roll", "--yes", check=False)
    assert (done.code != 0, "roll-1-2: nvidia-smi lists 0 GPUs" in done.err) == (True, True), done.out + done.err
    assert "headway: rolls: nvidia-smi" in lab.head("sinfo", "-h", "-N", "-o", "%N %T %E", "-n", "roll-1-2").out
    assert images(lab)[0] == before[0]
    own.image(own.smi + "\n# newer\n")
    argv = [sys.executable, "-m", "headway", "roll", "roll", "--yes"]
    roll = subprocess.Popen(argv, env=lab.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert roll.stdout is not None
    shown = ""
    while not ("roll-1-2" in (line := roll.stdout.readline()) and "machine is being created" in line):
        shown += line
        assert line, f"the roll ended before it created a machine: {shown}"
    os.kill(lab.cli("server", "status", "-o", "json").json()["pid"], signal.SIGKILL)
    lab.forget_client()
    lab.cli("server", "start")
    lab.wait(lambda: own.tags[1] in images(lab), "the node without a job to be of the new image", seen=progress)
    assert lab.state_of(job) == "RUNNING"
    lab.head("touch", "/home/ann/go", user="ann")
    assert lab.wait_job(job) == "COMPLETED"
    lab.wait(lambda: lab.client.operations.list("roll")[0].state == "done", "the roll to end", seen=progress)
    roll.communicate(timeout=240)
    assert images(lab) == [own.tags[1]] * 2
    assert lab.field(job, "Restarts") == "0"
