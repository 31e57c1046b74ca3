"""A person whom the identity provider deactivates by SCIM is out within a minute: jobs, scrontab, SSH sessions, new jobs; and
comes back without the jobs. A group gives and takes a team within a minute, without an apply."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial

import httpx
import pytest
from tests.cluster.identity_provider import SETTINGS, add_person, change_member, identity_provider, sent
from tests.cluster.lab import Lab

SPEC = """\
name: leavers
plan: h100-8
nodes: 1
teams:
  vision: {users: [bob]}
  language: {users: [xia]}
"""
WITHIN_S = 60.0
STUBBORN = "trap '' TERM; while true; do sleep 1; done"
KEY = (
    "mkdir -p -m 700 .ssh; ssh-keygen -q -t ed25519 -N '' -f .ssh/test;"
    "cp .ssh/test.pub .ssh/authorized_keys; chmod 600 .ssh/authorized_keys"
)
SSH = ("ssh", "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes", "-i", "/home/zoe/.ssh/test", "leavers-head")


@pytest.fixture(scope="module")
def lab(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("leavers") / "state", name="leavers")
    made.env |= {**SETTINGS, "HEADWAY_OIDC_TEAMS": "ml=vision"}
    with made.applied(SPEC):
        yield made


@pytest.fixture(scope="module")
def idp(lab: Lab) -> Iterator[httpx.Client]:
    with identity_provider(lab) as made:
        yield made


def set_active(idp: httpx.Client, user: str, *, active: bool) -> None:
    """Changes a user as Okta does."""
    body = {"Operations": [{"op": "replace", "value": {"active": active}}]}
    assert sent(idp.patch(f"/Users/{user}", json=body))["active"] is active


def accounted(lab: Lab, *jobs: int) -> list[str]:
    wanted = ",".join(map(str, jobs))
    rows = lab.head("sacct", "-X", "-n", "-P", "-o", "State", "-j", wanted).out.splitlines()
    return [row.split(" ")[0] for row in rows]


def as_zoe(lab: Lab, *argv: str) -> int:
    """Runs a command as zoe past Headway, as cron or another session could; returns its exit code."""
    return lab.head("runuser", "-u", "zoe", "--", *argv, check=False).code


def test_deactivated_person_is_out_within_a_minute_and_comes_back_without_jobs(lab: Lab, idp: httpx.Client) -> None:
    zoe = add_person(idp, "zoe", "staff", "ml")
    lab.cli("apply", str(lab.state / "leavers.yaml"), "--yes")
    lab.head("bash", "-c", KEY, user="zoe")
    running = lab.sbatch("zoe", "--chdir=/home/zoe", "--gpus=8", wrap=STUBBORN)
    pending = lab.sbatch("zoe", "--chdir=/home/zoe", "--gpus=8", "--array=1-2", wrap="sleep 600")
    lab.head("scrontab", "-", user="zoe", stdin="#SCRON -t 10\n0 3 * * * /bin/true\n")
    lab.wait_job(running, "RUNNING")
    lab.head("systemd-run", "--unit=session", "--uid=zoe", "--collect", *SSH, "sleep 4000.5")
    lab.wait(lambda: lab.head("pgrep", "-xf", "sleep 4000.5", check=False).code == 0, "zoe's session")
    uid = lab.head("id", "-u", "zoe").out.strip()

    began = time.monotonic()
    set_active(idp, zoe, active=False)
    lab.wait(lambda: set(accounted(lab, running, pending)) == {"CANCELLED"}, "the jobs to be cancelled", WITHIN_S)
    lab.wait(lambda: lab.head("pgrep", "-U", uid, check=False).code == 1, "zoe's processes to end", WITHIN_S)
    assert time.monotonic() - began < WITHIN_S
    assert "#DISABLED: 0 3" in lab.head("scrontab", "-l", "-u", "zoe").out
    session = ("systemctl", "is-active", "session")
    lab.wait(lambda: lab.head(*session, check=False).out.strip() == "inactive", "systemd to know the session's end")
    assert lab.head("squeue", "-h", "-u", "zoe", "-t", "PENDING,RUNNING").out == ""
    assert as_zoe(lab, "sbatch", "--chdir=/home/zoe", "--wrap=true") != 0
    assert as_zoe(lab, *SSH, "true") != 0
    assert lab.head("stat", "-c", "%U", "/home/zoe/.ssh/test").out == "zoe\n", "the files stay"
    # It is written when the last machine has answered.
    lab.wait(lambda: lab.cli("audit", "export", "--action", "user.lock").out, "the line in the audit trail", WITHIN_S)
    lines = [json.loads(line) for line in lab.cli("audit", "export", "--action", "user.lock").out.splitlines()]
    assert [(line["person"], line["target"], line["result"]) for line in lines] == [("scim", "leavers", "ok")]
    assert {running, pending} <= set(lines[0]["detail"]["job_ids"])

    set_active(idp, zoe, active=True)
    lab.wait(lambda: as_zoe(lab, *SSH, "true") == 0, "zoe to sign in again", WITHIN_S)
    again = lab.wait(
        lambda: lab.head(
            "sbatch", "--parsable", "--chdir=/home/zoe", "--wrap=true", user="zoe", check=False
        ).out.strip(),
        "zoe to submit again",
        WITHIN_S,
    )
    assert lab.wait_job(int(again)) == "COMPLETED"
    assert lab.head("squeue", "-h", "-u", "zoe").out == ""
    assert "nothing to change" in lab.cli("plan", str(lab.state / "leavers.yaml")).out


def test_group_gives_and_takes_a_team_within_a_minute_without_an_apply(lab: Lab, idp: httpx.Client) -> None:
    ids = {name: add_person(idp, name, "staff", "ml") for name in ("yan", "xia")}

    def submit(user: str, team: str) -> str:
        """Submits as the user past Headway, and returns the job's number; "" if Slurm refuses it."""
        words = ("sbatch", "--parsable", f"--chdir=/home/{user}", "-A", team, "--wrap=whoami")
        return lab.head("runuser", "-u", user, "--", *words, check=False).out.strip()

    for name in ids:  # yan is new on the cluster, xia is in another team of its file
        job = lab.wait(partial(submit, name, "vision"), f"{name} to submit for the team", WITHIN_S)
        assert lab.wait_job(int(job)) == "COMPLETED"
    assert "nothing to change" in lab.cli("plan", str(lab.state / "leavers.yaml")).out, "an apply would do the same"
    for user in ids.values():
        change_member(idp, "ml", user, "remove")
    lab.wait(lambda: submit("xia", "vision") == "", "Slurm to refuse xia's jobs for the team", WITHIN_S)
    assert submit("xia", "language"), "the team of the cluster file stays"
    lab.wait(lambda: submit("yan", "vision") == "", "Slurm to refuse yan's jobs", WITHIN_S)
    assert lab.head("sacctmgr", "-nP", "show", "assoc", "user=yan", "format=account").out == ""
    lines = [json.loads(line) for line in lab.cli("audit", "export", "--action", "user.teams").out.splitlines()]
    assert {line["detail"]["user"] for line in lines} >= {"yan", "xia"}  # zoe joined in the other test
    assert {(line["target"], line["result"]) for line in lines} == {("leavers", "ok")}
