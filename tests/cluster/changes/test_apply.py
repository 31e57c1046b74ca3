"""Changing a running cluster works: without differences, with some, after a kill half-way, with two applies at once,
and when people leave."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.lab import Lab

from headway.errors import HeadwayError

SPEC = """\
name: change
plan: h100-8
nodes: 2
spares: 1
teams:
  vision: {{users: [{users}], share: 60}}
{more}
"""
TREE = """\
name: change
plan: h100-8
nodes: 2
spares: 1
teams:
  science: {share: 60, limits: {gpus: 8}}
  vision: {parent: science, users: [ann, ben], limits: {users: {ben: {running_jobs: 1}}}}
  speech: {parent: science, users: [eve]}
  it: {users: [ida]}
qos:
  high: {teams: [it], priority: 100, preempts: [standby]}
  standby: {grace_time: 0, usage_factor: 0.25}
  long: {users: [ben]}
"""
DAEMONS = ["systemctl", "show", "-p", "MainPID", "slurmctld", "slurmdbd", "mariadb", "munge", "slurmrestd"]


def write(lab: Lab, users: str = "ann, ben", more: str = "") -> str:
    file = lab.state / "change.yaml"
    file.write_text(SPEC.format(users=users, more=more))
    return str(file)


@pytest.fixture(scope="module")
def lab(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("change") / "state", name="change")
    try:
        made.cli("apply", write(made), "--yes", timeout_s=600)
        yield made
    finally:
        made.down()


@pytest.mark.core
def test_apply_without_changes_restarts_nothing(lab: Lab) -> None:
    before = lab.head(*DAEMONS).out
    output = lab.cli("apply", write(lab)).out
    assert "nothing to change" in output.lower()
    assert lab.head(*DAEMONS).out == before
    assert json.loads(lab.cli("plan", write(lab), "-o", "json").out)["changes"] == []


def test_file_changed_by_hand_is_reported_and_set_back(lab: Lab) -> None:
    """The comparison is due each minute here; slurm.conf belongs to Headway, so an edit on the head is drift."""
    lab.cli("apply", write(lab, more="drift: {check: 1}"), "--yes")
    lab.head("sh", "-c", "echo 'MaxArraySize=77' >>/etc/slurm/slurm.conf")
    lab.wait(
        lambda: "differs from its file: /etc/slurm/slurm.conf on change-head" in lab.cli("status").out, "the report"
    )
    lab.cli("apply", write(lab, more="drift: {check: 1, repair: true}"), "--yes")
    assert "differs" not in lab.cli("status").out
    lab.head("sh", "-c", "echo 'MaxArraySize=77' >>/etc/slurm/slurm.conf")
    lab.wait(lambda: "MaxArraySize=77" not in lab.head("cat", "/etc/slurm/slurm.conf").out, "the repair")
    (latest, *_) = [row for row in lab.client.operations.list("change") if row.kind == "apply"]
    assert latest.person == "headway"


def test_changed_setting_reaches_slurm_under_a_running_job(lab: Lab) -> None:
    job = lab.sbatch("ann", wrap="while [ ! -e go ]; do sleep 0.1; done")
    lab.wait_job(job, "RUNNING")
    file = write(lab, more="slurm: {PriorityWeightAge: 4321}")
    planned = lab.cli("plan", file).out
    assert "slurm.conf" in planned
    try:  # at once: slurmdbd does not know the job yet
        lab.cli("apply", file, "--yes")
        assert "4321" in lab.head("scontrol", "show", "config").out
        assert lab.state_of(job) == "RUNNING"
    finally:
        lab.head("touch", "/home/ann/go", user="ann")
    assert lab.wait_job(job) == "COMPLETED"


def test_limit_of_a_partition_is_added_to_a_running_cluster_and_removed(lab: Lab) -> None:
    qos = ["scontrol", "show", "partition", "train", "--oneliner"]
    limited = write(lab, more="partitions: {train: {per_user: {submitted_jobs: 1}}}")
    assert "partition.train" in lab.cli("plan", limited).out
    lab.cli("apply", limited, "--yes")
    assert "QoS=partition.train" in lab.head(*qos).out
    assert "nothing to change" in lab.cli("apply", limited).out.lower()
    refused = lab.head("sbatch", "--array=1-2", "--wrap=true", user="ann", check=False)
    assert "QOSMaxSubmitJobPerUserLimit" in refused.err
    lab.cli("apply", write(lab), "--yes")
    assert "QoS=N/A" in lab.head(*qos).out
    assert "partition." not in lab.head("sacctmgr", "-nP", "show", "qos", "format=name").out


def test_limits_of_teams_below_each_other_qos_and_one_person_hold(lab: Lab) -> None:
    """Jobs of ann and eve count for their teams' parent, ben may run one job, and ida's QOS preempts ann's."""
    file = lab.state / "change.yaml"
    file.write_text(TREE)
    lab.cli("apply", str(file), "--yes")
    try:
        with pytest.raises(HeadwayError, match="standby"):  # the refusal names the QOS that ann may choose
            lab.submit("#!/bin/sh\n", "--qos=high", user="ann")
        wrap = "[ ${SLURM_RESTART_COUNT:-0} -ge 1 ] && exit 0; sleep 600"
        scavenger = lab.sbatch("ann", "--qos=standby", "--gpus-per-node=8", "--requeue", wrap=wrap)
        first = lab.sbatch("ben", wrap="sleep 600")
        lab.wait_job(scavenger, "RUNNING")
        lab.wait_job(first, "RUNNING")
        sibling = lab.sbatch("eve", "--gpus=1", wrap="true")
        second = lab.sbatch("ben", "--qos=long", wrap="true")  # the limit of ben counts jobs of all QOS
        lab.wait(lambda: lab.field(sibling, "Reason") == "AssocGrpGRES", "science to have all its GPUs")
        lab.wait(lambda: lab.field(second, "Reason") == "AssocGrpJobsLimit", "ben to have all his jobs")
        urgent = lab.sbatch("ida", "--qos=high", "-N2", "--gpus-per-node=8", wrap="true")
        lab.head("scancel", str(first))
        assert lab.wait_job(urgent) == "COMPLETED"
        assert int(lab.field(scavenger, "Restarts")) == 1
        assert [lab.wait_job(job) for job in (scavenger, sibling, second)] == ["COMPLETED"] * 3
        assert "nothing to change" in lab.cli("plan", str(file)).out.lower()
        # ben's own list lacks the new default of the team until it is changed too.
        default = TREE.replace("users: [ann, ben]", "default_qos: burst, users: [ann, ben]")
        file.write_text(default.replace("long: {users: [ben]}", "long: {users: [ann]}\n  burst: {teams: [vision]}"))
        lab.cli("apply", str(file), "--yes")
        assert "nothing to change" in lab.cli("plan", str(file)).out.lower()
        with pytest.raises(HeadwayError, match="burst, standby"):
            lab.submit("#!/bin/sh\n", "--qos=long", user="ben")
        assert lab.wait_job(lab.sbatch("ann", "--qos=long", wrap="true")) == "COMPLETED"
    finally:
        lab.head("bash", "-c", "scancel $(squeue -h -o %A) 2>/dev/null; true")
        lab.wait(lambda: not lab.head("squeue", "-h").out.strip(), "the queue to be empty")
        lab.cli("apply", write(lab), "--yes")


def test_quotas_limit_folders_or_the_plan_says_what_the_file_system_lacks(lab: Lab) -> None:
    file = write(lab, more="storage: {home: {quota: 1 GiB}}")
    planned = lab.cli("plan", file)
    lab.cli("apply", file, "--yes")
    again = lab.cli("plan", file)
    if "quota.set" in planned.out:
        assert "nothing to change" in again.out.lower()
    else:
        told = planned.out + planned.err
        assert "storage.home.quota: no use of /home is limited: it is on" in told
        assert "prjquota" in told or "Set them on its server" in told
    lab.cli("apply", write(lab), "--yes")


def test_disruptive_apply_requires_a_terminal_or_yes(lab: Lab) -> None:
    file = lab.state / "smaller.yaml"
    file.write_text(SPEC.format(users="ann, ben", more="").replace("spares: 1", "spares: 0"))
    done = lab.cli("apply", str(file), check=False)
    assert done.code == 3
    assert "--yes" in done.err
    assert len(lab.head("sinfo", "-h", "-N", "-o", "%N").out.split()) >= 3


@pytest.mark.core
def test_interrupted_apply_is_completed_by_the_next_one(lab: Lab) -> None:
    """kill -9 of client and server, at several moments of the same change."""
    for number in range(3):
        users = ", ".join(["ann", "ben", *(f"new{i}" for i in range(number + 1))])
        file = write(lab, users=users, more=f"slurm: {{PriorityWeightAge: {5000 + number}}}")
        lab.podman("rm", "-f", "-t", "0", lab.container("change-1-2"))
        client = subprocess.Popen(
            [sys.executable, "-m", "headway", "apply", file, "--yes"],
            env=lab.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert client.stdout is not None
        for _, line in zip(range(2 + 3 * number), client.stdout, strict=False):
            assert "Traceback" not in line
        server = lab.cli("server", "status", "-o", "json").json()["pid"]
        client.kill()
        os.kill(server, signal.SIGKILL)
        client.wait()
        lab.forget_client()
        lab.cli("apply", file, "--yes")
        assert str(5000 + number) in lab.head("scontrol", "show", "config").out
        assert lab.head("srun", "-N2", "--exclusive", "hostname", user=f"new{number}").out.count("change-1-") == 2
        assert "nothing to change" in lab.cli("apply", file).out.lower()


def test_concurrent_applies_run_one_after_another(lab: Lab) -> None:
    files = []
    for number in range(2):
        file = Path(lab.state / f"both{number}.yaml")
        file.write_text(SPEC.format(users="ann, ben", more=f"slurm: {{PriorityWeightAge: {6000 + number}}}"))
        files.append(file)
    argv = [sys.executable, "-m", "headway", "apply"]
    both = [
        subprocess.Popen([*argv, str(f), "--yes"], env=lab.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for f in files
    ]
    for client in both:
        client.communicate(timeout=240)
    rows = [op for op in lab.client.operations.list("change") if op.kind == "apply" and op.state in ("done", "failed")]
    spans = sorted((op.started_at or 0.0, op.finished_at or 0.0) for op in rows)
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(spans))
    output = lab.head("scontrol", "show", "config").out
    assert "6000" in output or "6001" in output


def test_removed_user_is_locked_out_and_keeps_accounting_history(lab: Lab) -> None:
    lab.cli("apply", write(lab, users="ann, ben, leaver"), "--yes")
    uid = lab.head("id", "-u", "leaver").out.strip()
    done = lab.sbatch("leaver", wrap="true")
    lab.wait_job(done)
    job = lab.sbatch("leaver", wrap="sleep 600")
    lab.wait_job(job, "RUNNING")
    lab.head("systemd-run", "--uid=leaver", "--collect", "sleep", "600")
    lab.cli("apply", write(lab), "--yes")
    assert lab.wait_job(job) == "CANCELLED"
    assert lab.head("pgrep", "-u", uid, check=False).out.strip() == ""
    assert lab.head("runuser", "-u", "leaver", "--", "sbatch", "--wrap=true", check=False).code != 0
    assert (
        str(done)
        in lab.head("sacct", "-X", "-n", "-S", "now-1days", "-u", uid, "-o", "JobID").out
        + lab.head("sacct", "-X", "-n", "-S", "now-1days", "-a", "-o", "JobID").out
    )
    lab.cli("apply", write(lab, users="ann, ben, fresh"), "--yes")
    assert lab.head("id", "-u", "fresh").out.strip() != uid


def test_jobs_of_a_removed_user_finish_with_departures_finish(lab: Lab) -> None:
    lab.cli("apply", write(lab, users="ann, ben, going"), "--yes")
    job = lab.sbatch("going", wrap="while [ ! -e done ]; do sleep 0.1; done")
    lab.wait_job(job, "RUNNING")
    lab.head("systemd-run", "--uid=going", "--collect", "sleep", "600")
    uid = lab.head("id", "-u", "going").out.strip()
    lab.cli("apply", write(lab, more="departures: {jobs: finish}"), "--yes")
    assert lab.head("pgrep", "-u", uid, check=False).out.strip() == ""
    assert lab.state_of(job) == "RUNNING"
    lab.head("touch", "/home/going/done")
    assert lab.wait_job(job) == "COMPLETED"
    lab.cli("apply", write(lab), "--yes")


def test_configuration_refused_by_slurm_is_not_installed(lab: Lab) -> None:
    done = lab.cli("apply", write(lab, more='slurm: {PriorityDecayHalfLife: "nonsense"}'), "--yes", check=False)
    assert done.code != 0
    assert "UP" in lab.head("scontrol", "ping").out


def test_down_keeps_homes_and_accounting_for_the_next_apply(lab: Lab) -> None:
    lab.head("bash", "-c", "echo kept > ~/kept.txt", user="ann")
    job = lab.sbatch("ann", wrap="true")
    lab.wait_job(job)
    output = lab.cli("down", "change", "--yes")
    assert "home" in output.out + output.err
    assert lab.podman("ps", "-aq", "--filter", f"name=change-head-{lab.state.name}-none").strip() == ""
    lab.cli("apply", write(lab), "--yes")
    assert lab.output("/home/ann/kept.txt") == "kept\n"
    assert str(job) in lab.head("sacct", "-X", "-n", "-a", "-o", "JobID", "-S", "now-1days").out
