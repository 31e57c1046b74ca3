"""When the first head is killed, the second one takes over, jobs continue, and the first one returns with every
record."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.cluster.lab import Lab

from headway.domain.cluster import SLURM_STATE_FOLDER
from headway.render.ha.takeover_settings import SLURMCTLD_TIMEOUT_S

SPEC = """\
name: pair
plan: h100-8
nodes: 1
controllers: 2
teams:
  ml: {users: [ada]}
"""
WAITS = "while [ ! -e /scratch/go ]; do sleep 0.2; done"


@pytest.fixture(scope="module")
def lab(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("pair") / "state", name="pair")
    with made.applied(SPEC):
        yield made


def on(lab: Lab, machine: str, *argv: str) -> str:
    return lab.podman("exec", lab.container(machine), *argv)


def beat(lab: Lab) -> tuple[int, int]:
    """Returns (unix seconds, number of the controller that wrote them). Waits for a moment in which the file is
    being written."""
    show = f"od -A n -t u8 --endian=big {SLURM_STATE_FOLDER}/heartbeat"
    words = lab.wait(lambda: on(lab, "pair-head2", "sh", "-c", f"{show} 2>/dev/null || true").split(), "a heartbeat")
    return int(words[0]), int(words[1])


def agent_says(lab: Lab) -> str:
    return on(lab, "pair-head2", "journalctl", "-u", "headway-agent")


def test_heads_without_contact_never_control_the_cluster_both(lab: Lab) -> None:
    address = on(lab, "pair-head2", "getent", "hosts", "pair-head").split()[0]
    on(lab, "pair-head2", "ip", "route", "add", "blackhole", address)
    try:
        began, _ = beat(lab)
        assert "pair-head is DOWN" in on(lab, "pair-head2", "scontrol", "ping")
        lab.wait_job(lab.sbatch("ada", wrap="true"), "COMPLETED")
        lab.wait(
            lambda: beat(lab)[0] >= began + 2 * SLURMCTLD_TIMEOUT_S + 2, "heartbeats long after a takeover was due"
        )
        assert beat(lab)[1] == 0
    finally:
        on(lab, "pair-head2", "ip", "route", "del", "blackhole", address)
    assert "taking over" not in on(lab, "pair-head2", "journalctl", "-u", "slurmctld")
    assert "is gone" not in agent_says(lab), "its heartbeat went on"


def test_second_head_takes_over_and_the_first_returns_without_losing_jobs(lab: Lab) -> None:
    """On a new cluster, whose controller would not have saved its accounting yet; slurmdbd dies with the head."""
    running = lab.sbatch("ada", wrap=WAITS)
    lab.wait_job(running, "RUNNING")
    head = lab.container("pair-head")
    # Jobs accepted right after the controller has saved are not in its state yet: it saves every five seconds at most.
    saves = f"until grep -aqs just-saved {SLURM_STATE_FOLDER}/job_state; do sleep 0.05; done"
    change = f"scontrol update JobId={running} Comment=just-saved"
    on(lab, "pair-head", "timeout", "120", "bash", "-c", f"{change}; {saves}")
    forgotten = lab.sbatch("ada", "-o", "/dev/null", wrap=f"{WAITS}; echo $SLURM_JOB_ID >>/scratch/forgotten")
    lab.podman("kill", head)

    def submitted() -> int:
        done = lab.cli("submit", "pair", "--as", "ada", "--parsable", "--wrap", "true", check=False)
        return int(done.out) if done.code == 0 else 0

    meanwhile = lab.wait(submitted, "a submission while the first head is away")
    lab.wait(
        lambda: "Running as primary" in on(lab, "pair-head2", "journalctl", "-u", "slurmctld"), "the second to lead"
    )
    lab.head("touch", "/scratch/go")
    lab.wait(
        lambda: lab.client.clusters.get("pair").state == "ready" and beat(lab)[1] == 0, "the first head to lead again"
    )
    lab.wait(lambda: lab.head("sacctmgr", "-nP", "show", "cluster", check=False).code == 0, "slurmdbd")
    lab.wait(lambda: "answers again" in agent_says(lab), "the second head to ask the first one as before")
    assert "is down: requests to its controller and accounting fail at once" in agent_says(lab)
    assert "6817-6819" not in on(lab, "pair-head2", "ip", "rule")
    # The second controller may have recorded that `meanwhile` runs when it had to stand by, without launching it.
    for job, runs in ((running, 1), (meanwhile, 2)):
        lab.wait_job(job, "COMPLETED")
        records = ["sacct", "-XnD", "-o", "State", "-j", str(job)]

        def ended(records: list[str] = records, runs: int = runs) -> bool:
            states = lab.head(*records, check=False).out.split()
            return states[-1:] == ["COMPLETED"] and len(states) <= runs

        lab.wait(ended, f"the record of job {job}")
    lab.wait(lambda: f"had accepted jobs without saving them: {forgotten};" in agent_says(lab), "its list")
    done = ["journalctl", "-u", "headway-resubmit", "--no-pager"]
    said = lab.wait(
        lambda: re.search(rf"job {forgotten} was not saved .* again: (\d+)", lab.head(*done).out),
        "what the first controller forgot to be submitted again",
    )
    lab.wait_job(int(said[1]), "COMPLETED")
    assert lab.head("cat", "/scratch/forgotten").out.split()[-1] == said[1]
    carried_out = ["test", "!", "-e", "/srv/headway-state/resubmit"]
    lab.wait(lambda: lab.head(*carried_out, check=False).code == 0, "the list to be removed")
