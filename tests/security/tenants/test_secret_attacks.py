"""What others can learn of a job's secrets: another user, and another job of the same user on the same node."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.cluster.lab import Lab
from tests.security.tenants.conftest import NODE

Attack = Callable[[str], str]
VALUE = "carols-key-0123456789"
_LOOK = """\
echo "own: $HEADWAY_SECRETS_DIR"
ls -la /run/headway/secrets /run/headway/job-secrets /var/lib/headway/job-tmp /var/lib/headway/job-tmp/* 2>&1
cat /run/headway/secrets/* /run/headway/job-secrets/*/* /proc/[0-9]*/root/run/headway/secrets/* 2>&1
unshare --user --map-root-user --mount sh -c '
    umount /run/headway/secrets; cat /run/headway/secrets/*; ls /run/headway/job-secrets/*' 2>&1
"""
# Asks the head as the prolog does, with a seal of this user; and the job's own names, made up by the user.
_ASK = """\
SPANK_HEADWAY_SECRETS=wandb SLURM_JOB_UID=$(id -u carol) SLURM_JOB_ACCOUNT=small \\
    python3 -I -S /usr/lib/headway/agent.pyz secrets /tmp/carol /tmp/failure; ls /tmp/carol 2>&1
python3 - <<'END'
import json, socket, subprocess
ask = {"secrets": {"job": 1, "uid": @UID@, "account": "small", "names": ["wandb"], "node": "x", "number": "n"}}
sealed = subprocess.run(["munge"], input=json.dumps(ask).encode(), capture_output=True).stdout.strip()
for data in (sealed, json.dumps(ask).encode(), b"x" * 100000):
    try:
        head = socket.create_connection(("lab-head", 6821), timeout=10)
        head.sendall(data)
        head.shutdown(socket.SHUT_WR)
        print("answer", head.recv(65536))
    except OSError as error:
        print("answer", error)
END
"""


@pytest.fixture
def victim(lab: Lab) -> Iterator[int]:
    """Carol's job with a secret on NODE."""
    lab.client.secrets.set("lab", "wandb", VALUE, user="carol")
    job = lab.sbatch(
        "carol", "--secret=wandb", "-w", NODE, "--mem=1G", wrap="cat $HEADWAY_SECRETS_DIR/wandb; sleep 600"
    )
    lab.wait_job(job, "RUNNING")
    yield job
    lab.head("scancel", str(job))
    lab.client.secrets.remove("lab", "wandb", user="carol")


def test_another_user_on_the_node_sees_no_secret(lab: Lab, victim: int, attack: Attack) -> None:
    seen = attack(_LOOK)
    assert "own: \n" in seen
    assert VALUE not in seen


def test_head_answers_no_user_who_asks_for_secrets(lab: Lab, victim: int, attack: Attack) -> None:
    seen = attack(_ASK.replace("@UID@", lab.head("id", "-u", "carol").out.strip()))
    assert VALUE not in seen
    assert seen.count("answer [Errno 111] Connection refused") == 3, "users can't take the connections of root"


def test_user_of_the_head_can_not_read_its_file(lab: Lab, victim: int) -> None:
    done = lab.head("cat", "/var/lib/headway/job-secrets.json", user="alice", check=False)
    assert "Permission denied" in done.err


def test_another_job_of_the_same_user_finds_an_empty_folder(lab: Lab, victim: int) -> None:
    look = "echo own: $HEADWAY_SECRETS_DIR; ls -A /run/headway/secrets; cat /run/headway/job-secrets/*/* 2>&1 || true"
    done = lab.head("srun", "-w", NODE, "--mem=1G", "bash", "-c", look, user="carol")
    assert done.out.splitlines() == ["own:", "cat: '/run/headway/job-secrets/*/*': Permission denied"]


def test_job_names_of_other_owners_are_not_accepted(lab: Lab, victim: int) -> None:
    """Variables with which a user may try to look like another user or team to the prolog."""
    forged = ("SPANK_HEADWAY_SECRETS=wandb", "SLURM_JOB_UID=0", "SLURM_JOB_ACCOUNT=small", "SLURM_JOB_USER=carol")
    done = lab.head(
        "env", *forged, "srun", "-w", NODE, "--mem=1G", "--secret=wandb", "ls", "/run/headway/secrets", user="alice",
        check=False,
    )  # fmt: skip
    assert "there is no secret wandb: alice has none" in done.err
