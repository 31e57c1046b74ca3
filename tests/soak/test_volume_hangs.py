"""When a volume's server stops answering, its readers hang: the node drains with that reason, running jobs continue,
Headway itself does not wait, and the node returns when the volume does.

The server is a FUSE daemon on the node, which is frozen.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.lab import Lab

pytestmark = pytest.mark.soak
SPEC = """\
name: vol
plan: cpu-64
nodes: 1
teams: {vision: {users: [ann]}}
"""
IMAGE = "/srv/headway/scratch/models.sqsh"
MOUNT = f"fuse.squashfuse {IMAGE} ro,allow_other"
VOLUME = f"storage: {{volumes: [{{name: models, path: /models, mount: '{MOUNT}'}}]}}\n"
NODE = "vol-1-1"
DETECTED_S = 90


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("vol") / "state", name="vol")
    file = made.state / "vol.yaml"
    file.write_text(SPEC)
    try:
        made.cli("image", "build", "debian13", timeout_s=1800)
        made.cli("apply", str(file), "--yes", timeout_s=600)
        script = f"mkdir -p /tmp/models && echo here >/tmp/models/there && mksquashfs /tmp/models {IMAGE} -quiet -no-progress"
        made.head("sh", "-c", script)
        yield made
    finally:
        made.down()


def test_hanging_volume_drains_node_until_volume_returns(lab: Lab) -> None:
    def on_node(*argv: str) -> str:
        return lab.podman("exec", lab.container(NODE), *argv)

    def reason() -> str:
        output = lab.head("sinfo", "-h", "-N", "-n", NODE, "-o", "%T|%E").out.strip()
        return output.partition("|")[2] if "drain" in output else ""

    file = lab.state / "volume.yaml"
    file.write_text(SPEC + VOLUME)
    lab.cli("apply", str(file), "--yes")
    assert on_node("runuser", "-u", "ann", "--", "cat", "/models/there") == "here\n"
    job = lab.sbatch("ann", "-o", "/dev/null", wrap="while [ ! -e /scratch/go ]; do sleep 0.2; done")
    lab.wait_job(job, "RUNNING")
    server = on_node("pgrep", "-x", "squashfuse").split()
    assert len(server) == 1
    on_node("kill", "-STOP", *server)
    try:
        why = lab.wait(reason, "the node to drain", patience_s=DETECTED_S)
        assert "remote_volumes" in why
        assert lab.state_of(job) == "RUNNING"
        waits = lab.sbatch("ann", "-o", "/dev/null", wrap="cat /models/there")
        assert "nothing to change" in lab.cli("plan", str(file), timeout_s=60).out.lower()
        assert lab.state_of(waits) == "PENDING"
    finally:
        on_node("kill", "-CONT", *server)
    lab.wait(lambda: not reason(), "the node to return", patience_s=DETECTED_S)
    lab.head("touch", "/scratch/go")
    for number in (job, waits):
        assert lab.wait_job(number) == "COMPLETED"
    assert [incident.state for incident in lab.client.incidents.list("vol")] == ["returned"]
