"""Secrets reach the jobs that ask for them, on all nodes, and are in no record of Slurm or Headway."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from tests.cluster.containers.container_images import images, no_node_is_drained
from tests.cluster.lab import Lab
from tests.cluster.slurm.test_identity import ON_NODE, with_key

__all__ = ["images", "no_node_is_drained"]  # fixtures

KEY, TOKEN = "alices-key-0123456789", "team-token-0123456789"
SCRIPT = """\
#!/bin/bash
#SBATCH --secret=token
#SBATCH --open-mode=append
#SBATCH --output=/scratch/alice/secrets-%j.out
stat -c '%A %U' "$HEADWAY_SECRETS_DIR" "$HEADWAY_SECRETS_DIR"/*
srun sh -c 'echo "$(hostname) $(cat "$HEADWAY_SECRETS_DIR/wandb" "$HEADWAY_SECRETS_DIR/token")"'
while [ ! -e /scratch/alice/go-$SLURM_JOB_ID ]; do sleep 0.2; done
"""
# Processes end while they are read.
READ_PROCESSES = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; true"


@pytest.fixture(autouse=True)
def secrets(lab: Lab) -> Iterator[None]:
    """A secret of alice, and one of the team vision."""
    lab.cli("secret", "set", "lab", "wandb", "--as", "alice", stdin=f"{KEY}\n")
    lab.cli("secret", "set", "token", "--team", "vision", stdin=TOKEN)
    yield
    for row in lab.client.secrets.list("lab"):
        lab.client.secrets.remove("lab", row.name, team=row.team, user=row.user)


def log_of(lab: Lab, job: int) -> str:
    return lab.head("cat", f"/scratch/alice/secrets-{job}.out", check=False).out


def on_machine(lab: Lab, machine: str, script: str) -> str:
    """Returns the output of a shell script that root runs on a machine; processes may end while it reads them."""
    return lab.podman("exec", lab.container(machine), "bash", "-c", f"{script}; true")


def delivered(lab: Lab, job: int) -> list[list[str]]:
    """Returns the names in the audit lines of the starts of a job."""
    lines = [json.loads(line) for line in lab.cli("audit", "export", "--action", "secret.deliver").out.splitlines()]
    return [line["detail"]["secrets"] for line in lines if line["detail"]["job"] == job]


def let_end(lab: Lab, job: int) -> None:
    lab.head("touch", f"/scratch/alice/go-{job}", user="alice")
    lab.wait_job(job, "COMPLETED")


@pytest.mark.core
def test_job_on_two_nodes_reads_its_secrets_and_no_record_has_them(lab: Lab) -> None:
    lab.head("tee", "/scratch/alice/secrets.sh", user="alice", stdin=SCRIPT)
    done = lab.cli("submit", "lab", "--as", "alice", "--secret", "wandb", "-N2", "--parsable", "-", stdin=SCRIPT)
    job = int(done.out)
    lab.wait(lambda: log_of(lab, job).count(KEY + TOKEN) == 2, "both nodes to read the secrets")
    nodes = lab.field(job, "NodeList")
    first = lab.head("scontrol", "show", "hostnames", nodes).out.split()
    assert log_of(lab, job).splitlines()[:3] == ["dr-x------ alice", "-r-------- alice", "-r-------- alice"]
    records = [
        lab.head("scontrol", "show", "job", "-dd", str(job)).out,
        lab.head("scontrol", "write", "batch_script", str(job), "-").out,
        lab.head("squeue", "-j", str(job), "-o", "%all").out,
        lab.head("sacct", "-j", str(job), "-P", "-o", "ALL").out,
        lab.head("sacct", "-j", str(job), "--batch-script", "--env-vars", check=False).out,
        lab.head("bash", "-c", "cat /home/alice/.headway-submitted-* || true").out,
        *(lab.podman("exec", lab.container(node), "bash", "-c", READ_PROCESSES) for node in first),
        *(on_machine(lab, node, READ_PROCESSES) for node in first),
        *(on_machine(lab, node, "journalctl --no-pager") for node in (*first, "lab-head")),
        lab.client.jobs.lineage("lab", job).model_dump_json(),
        lab.cli("audit", "export").out,
        lab.cli("secret", "ls", "lab", "-o", "json").out,
        lab.cli("server", "logs", "-n", "500").out,
        lab.cli("logs", "lab", str(job)).out,
    ]
    assert [text for text in records if KEY in text or TOKEN in text] == []
    assert "*" * len(KEY + TOKEN) in records[-1]

    def given_to() -> set[str]:
        journal = on_machine(lab, "lab-head", "journalctl -u headway-agent")
        return {node for node in first if f"job {job} of alice on {node} gets token, wandb" in journal}

    lab.wait(lambda: given_to() == set(first), "the head's agent to say which nodes it gave the secrets to")
    assert re.search(rf'"job": {job}, .*"secrets": \["wandb", "token"\]', lab.cli("audit", "export").out)
    let_end(lab, job)
    for node in first:
        left = on_machine(lab, node, "ls -A /run/headway/job-secrets /run/headway/secrets")
        assert left.split() == ["/run/headway/job-secrets:", "/run/headway/secrets:"]
        assert on_machine(lab, node, "df --output=fstype /run/headway").split()[-1] == "tmpfs"


def test_requeued_job_gets_its_secrets_again(lab: Lab) -> None:
    job = lab.sbatch("alice", "--secret=wandb", "--requeue", script=SCRIPT)
    lab.wait(lambda: KEY in log_of(lab, job), "the job to read the secrets")
    lab.client.secrets.set("lab", "wandb", "the-new-value-of-it", user="alice")
    lab.wait(lambda: delivered(lab, job) == [["token", "wandb"]], "the audit line")
    lab.head("scontrol", "requeue", str(job))
    lab.wait(lambda: "the-new-value-of-it" in log_of(lab, job), "the job to read the secrets again")
    assert lab.field(job, "Restarts") == "1"
    let_end(lab, job)


@pytest.mark.usefixtures("no_node_is_drained")
def test_queued_job_whose_secret_is_removed_fails_with_a_sentence(lab: Lab) -> None:
    script = "#!/bin/bash\n#SBATCH --output=/scratch/alice/secrets-%j.out\n#SBATCH --secret=wandb\necho it ran\n"
    job = lab.submit(script, "--hold", user="alice")
    lab.cli("secret", "rm", "lab", "wandb", "--as", "alice")
    lab.head("scontrol", "release", str(job))
    lab.wait_job(job, "FAILED")
    assert lab.wait(lambda: log_of(lab, job), "the sentence").splitlines() == [
        "headway: there is no secret wandb: alice has none of this name on the cluster and team vision has none. It was "
        "removed or never set: set it with headway secret set, then submit the job again"
    ]
    refused = lab.cli("run", "lab", "--as", "alice", "--secret", "wandb", "--no-files", "--", "true", check=False)
    assert "alice and team vision have no secret of this name on lab" in refused.err


def test_secrets_of_another_team_and_user_do_not_reach_a_job(lab: Lab) -> None:
    for name in ("wandb", "token"):
        done = lab.head("srun", f"--secret={name}", "cat", f"/run/headway/secrets/{name}", user="carol", check=False)
        assert done.code != 0
        assert f"headway: there is no secret {name}: carol has none" in done.err
        assert KEY not in done.out + done.err
        assert TOKEN not in done.out + done.err


def test_container_step_sees_the_secrets(lab: Lab, images: None) -> None:
    image = "--container-image=/scratch/vito/tiny.sqsh"
    done = lab.head(
        "srun", "-N2", "--secret=wandb", image, "bash", "-c", 'cat "$HEADWAY_SECRETS_DIR/wandb"; echo', user="alice"
    )
    assert done.out.split() == [KEY, KEY]
    written = lab.head(
        "srun", "--secret=wandb", image, "bash", "-c", ": >/run/headway/secrets/x", user="alice", check=False
    )
    assert written.code != 0


def test_ssh_session_in_the_job_sees_the_secrets(lab: Lab) -> None:
    with_key(lab, "alice")
    job = lab.sbatch("alice", "--secret=wandb", "-w", "lab-1-2", script=SCRIPT)
    lab.wait(lambda: KEY in log_of(lab, job), "the job to begin")
    done = lab.head(*ON_NODE, "lab-1-2", "cat", "/run/headway/secrets/wandb", user="alice")
    assert done.out == KEY
    let_end(lab, job)


def test_head_has_a_file_for_root_and_the_state_folder_a_key(lab: Lab) -> None:
    assert lab.head("stat", "-c", "%a %U", "/var/lib/headway/job-secrets.json").out.split() == ["600", "root"]
    known = json.loads(lab.head("cat", "/var/lib/headway/job-secrets.json").out)
    assert (known["users"], known["teams"]) == ({"alice": {"wandb": KEY}}, {"vision": {"token": TOKEN}})
    assert (lab.state / "secrets.key").stat().st_mode & 0o777 == 0o600
    for file in lab.state.glob("headway.db*"):
        assert KEY.encode() not in file.read_bytes()
