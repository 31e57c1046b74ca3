"""Faults under running jobs: the node is isolated, repaired and tested, and the jobs continue elsewhere, on one
cluster for all tests."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from tests.cluster.faults.fault_cluster import NODES, in_service, nodes, spec, train
from tests.cluster.jobs.training_run import log, losses
from tests.cluster.lab import Lab

from headway.domain.injected_fault import FaultKind
from headway.schemas.nodes.incidents import FaultIn

WRITES = "while true; do echo ${SLURM_RESTART_COUNT:-0} $(date +%s.%N) >> /scratch/admin/$SLURM_JOB_ID; sleep 0.2; done"
FLAPS = NODES[2]
ERRED: set[str] = set()  # nodes with errors of applications, which count for a day


def cut_networks(lab: Lab, *, heal: bool = False) -> None:
    """Cuts the networks of all nodes at the same moment: programs that start on a busy machine would take seconds, in which the
    first node counts as dead."""
    cuts = [FaultIn(kind=FaultKind.CUT_NETWORK, node=name, heal=heal) for name in NODES]
    with ThreadPoolExecutor(len(cuts)) as pool:
        list(pool.map(partial(lab.client.nodes.inject_fault, "flt"), cuts))


def node_of(lab: Lab, name: str) -> dict[str, Any]:
    return next(node for node in nodes(lab) if node["name"] == name)


def incidents(lab: Lab) -> list[dict[str, Any]]:
    return [one.model_dump() for one in lab.client.incidents.list("flt")]


def incident(lab: Lab, number: int) -> dict[str, Any]:
    return lab.client.incidents.get("flt", number).model_dump()


def ended(lab: Lab, count: int, state: str = "returned") -> dict[str, Any]:
    """Waits until there are `count` incidents and the newest is in this state, and returns it."""

    def there() -> dict[str, Any]:
        found = incidents(lab)
        return incident(lab, found[0]["number"]) if len(found) == count and found[0]["state"] == state else {}

    return lab.wait(there, f"incident {count} to be {state}", patience_s=240)


def states(found: dict[str, Any]) -> list[str]:
    """Returns the states of an incident in order, each once."""
    return list(dict.fromkeys(step["state"] for step in found["steps"]))


def runs_on(lab: Lab, job: int) -> list[str]:
    return lab.head("scontrol", "show", "hostnames", lab.field(job, "NodeList")).out.split()


def writes(lab: Lab, job: int) -> list[str]:
    """Returns the run (0, 1, ...) that wrote each line of the job's file."""
    text = lab.head("cat", f"/scratch/admin/{job}", check=False).out
    return [line.split()[0] for line in text.splitlines() if line]


@pytest.mark.core
def test_xid79_under_a_training_costs_one_restart_and_repairs_the_node(lab: Lab, whole: dict[int, set[str]]) -> None:
    before = len(incidents(lab))
    job = train(lab)
    children = [lab.sbatch("admin", f"--dependency={kind}:{job}", wrap="true") for kind in ("afterok", "afternotok")]
    lab.wait(lambda: max(losses(log(lab, job)), default=0) >= 5, "step 5", patience_s=240)
    victim = runs_on(lab, job)[-1]
    for code in (79, 45):  # the second error is a consequence of the first: it belongs to the same incident
        lab.client.nodes.inject_fault("flt", FaultIn(kind=FaultKind.XID, node=victim, code=code, gpu=3))
    found = ended(lab, before + 1)
    assert states(found) == ["seen", "draining", "jobs moved", "repairing", "testing", "returned"]
    assert found["node"] == victim
    assert any(step["text"].startswith("XID 45") for step in found["steps"])
    assert found["steps"][-1]["evidence"]["passed"]
    assert lab.wait_job(job, "COMPLETED", patience_s=240) == "COMPLETED", log(lab, job)
    assert lab.field(job, "Restarts") == "1"
    assert losses(log(lab, job)) == whole, "every step of every run has the loss of the undisturbed training"
    assert lab.wait_job(children[0], "COMPLETED") == "COMPLETED"
    lab.wait(lambda: lab.state_of(children[1]) in {"CANCELLED", "PENDING"}, "the other child never to run")
    lab.wait(
        lambda: all(one["step_at"] for one in incident(lab, found["number"])["jobs"]), "its first step to be known"
    )
    (moved,) = incident(lab, found["number"])["jobs"]
    assert moved["job"] == job
    assert moved["requeued_at"] <= moved["running_at"] <= moved["step_at"]
    shown = lab.cli("incident", "show", str(found["number"])).out
    assert re.search(r"seen [\d.]+ s, drained [\d.]+ s, requeued [\d.]+ s, running again [\d.]+ s, first step", shown)
    assert victim in lab.cli("node", "history", victim).out


def test_job_chain_continues_after_its_retry_was_requeued_by_a_fault(lab: Lab) -> None:
    """Jobs try (fails by itself) -> retry (afternotok) -> report (afterok): the fault hits the retry."""
    hold = 'echo ${SLURM_RESTART_COUNT:-0} >> /scratch/admin/chain-$SLURM_JOB_ID; [ -n "$SLURM_RESTART_COUNT" ] || sleep 300'
    gpu = "--gpus-per-node=1"
    first = lab.sbatch("admin", gpu, "-o", "/dev/null", wrap="exit 1")
    retry = lab.sbatch("admin", gpu, "--requeue", "-o", "/dev/null", f"--dependency=afternotok:{first}", wrap=hold)
    report = lab.sbatch("admin", "-o", "/dev/null", f"--dependency=afterok:{retry}", wrap="true")
    failed = lab.sbatch("admin", "-o", "/dev/null", f"--dependency=afternotok:{retry}", wrap="true")
    lab.wait_job(retry, "RUNNING")
    (node,) = runs_on(lab, retry)
    before = len(incidents(lab))
    lab.wait(lambda: [job for job in node_of(lab, node)["gpus"] if job["job_id"] == retry], "its GPU to be known")
    index = next(gpu["index"] for gpu in node_of(lab, node)["gpus"] if gpu["job_id"] == retry)
    lab.cli("fault", "xid", "46", node, "--gpu", str(index))
    assert lab.wait_job(report, "COMPLETED") == "COMPLETED"
    assert lab.output(f"/scratch/admin/chain-{retry}").split() == ["0", "1"]
    assert lab.field(retry, "Restarts") == "1"
    assert lab.state_of(failed) != "COMPLETED", "no failure of the retry was ever told"
    ended(lab, before + 1)


def test_only_the_array_task_on_the_faulty_node_restarts(lab: Lab) -> None:
    """The last task has the array's own number, which Slurm's commands apply to all tasks."""
    before = len(incidents(lab))
    array = lab.sbatch("admin", "--array=0-1", "--gpus-per-node=8", "--requeue", "-o", "/dev/null", wrap="sleep 600")

    def tasks() -> list[list[str]]:
        """Returns number, restarts, job id and node of each running task."""
        columns = "ArrayTaskID:9,RestartCnt:9,JobID:9,NodeList:20"
        output = lab.head("squeue", "-h", "-r", "-j", str(array), "-t", "RUNNING", "-O", columns).out
        return sorted(line.split() for line in output.splitlines())

    lab.wait(lambda: len(tasks()) == 2, "both tasks to run")
    *told, victim = tasks()[1]
    assert told == ["1", "0", str(array)]
    lab.cli("fault", "xid", "46", victim, "--gpu", "0")
    lab.wait(lambda: [task[:2] for task in tasks()] == [["0", "0"], ["1", "1"]], "the task to run again")
    lab.cli("cancel", "flt", f"{array}_1")
    lab.wait(lambda: [task[:2] for task in tasks()] == [["0", "0"]], "one task to go on alone")
    lab.cli("cancel", "flt", str(array))
    ended(lab, before + 1)


@pytest.mark.parametrize("kind", ["freeze-node", pytest.param("cut-network", marks=pytest.mark.soak)])
def test_dead_node_is_fenced_before_its_job_runs_elsewhere(lab: Lab, kind: str) -> None:
    """The old run may write again once the node is healed: it must never write after the new run's first line."""
    before = len(incidents(lab))
    job = lab.sbatch("admin", "--requeue", "-o", "/dev/null", wrap=WRITES)
    lab.wait_job(job, "RUNNING")
    (victim,) = runs_on(lab, job)
    lab.wait(lambda: writes(lab, job), "the job to write")
    lab.cli("fault", kind, victim)
    lab.wait(lambda: "1" in writes(lab, job), "the new run to write", patience_s=240)
    lab.cli("fault", kind, victim, "--heal", check=False)
    found = ended(lab, before + 1)
    lab.wait(lambda: writes(lab, job).count("1") > 20, "the new run to go on")
    runs = writes(lab, job)
    assert runs == sorted(runs), "no write of the old run follows the first of the new"
    assert states(found) == ["seen", "draining", "jobs moved", "repairing", "testing", "returned"]
    assert any("fenced" in step["text"] for step in found["steps"])


def test_relay_handles_a_fault_once_while_the_server_is_stopped(lab: Lab) -> None:
    before = len(incidents(lab))
    job = lab.sbatch("admin", "--gpus-per-node=1", "--requeue", "-o", "/dev/null", wrap="srun sleep 600")
    lab.wait_job(job, "RUNNING")
    (victim,) = runs_on(lab, job)
    node, head = lab.container(victim), lab.container("flt-head")
    lab.cli("server", "stop")
    lab.forget_client()
    time.sleep(1.1)  # the fault follows the last report that the server received
    record = f"4,0,{int(time.monotonic() * 1e6)},-;NVRM: Xid (PCI:0000:19:00): 46, pid=1, GPU stopped processing."
    lab.podman("exec", node, "sh", "-c", f"echo '{record}' >> /run/headway/kmsg")
    reason = lambda: lab.podman("exec", head, "sinfo", "-h", "-R", "-o", "%E %N")  # noqa: E731
    lab.wait(lambda: f"headway: relay: XID 46 {victim}" in reason(), "the head's agent to drain the node")
    lab.cli("server", "start")
    found = ended(lab, before + 1)
    assert [step["actor"] for step in found["steps"] if step["actor"] != "headway"] == ["relay"]
    lab.wait_job(job, "RUNNING")
    lab.cli("server", "stop")
    lab.forget_client()
    lab.cli("server", "start")
    lab.wait(lambda: len(incidents(lab)) == before + 1, "the server")
    assert lab.field(job, "Restarts") == "1", "never twice"
    assert runs_on(lab, job) != [victim] or found["state"] == "returned"


@pytest.mark.soak
def test_dead_node_is_handled_while_the_server_is_stopped(lab: Lab) -> None:
    """No server can fence it: the node has killed its jobs by itself before the relay reports it down."""
    before = len(incidents(lab))
    job = lab.sbatch("admin", "--requeue", "-o", "/dev/null", wrap=WRITES)
    lab.wait_job(job, "RUNNING")
    (victim,) = runs_on(lab, job)
    head = lab.container("flt-head")
    lab.cli("fault", "cut-network", victim)
    lab.cli("server", "stop")
    lab.forget_client()
    text = lambda: lab.podman("exec", head, "cat", f"/scratch/admin/{job}")  # noqa: E731
    lab.wait(lambda: "\n1 " in text(), "the job to run elsewhere", patience_s=240)
    lab.cli("server", "start")
    lab.cli("fault", "cut-network", victim, "--heal", check=False)
    lab.wait(lambda: writes(lab, job).count("1") > 20, "the new run to go on")
    runs = writes(lab, job)
    assert runs == sorted(runs), "no write of the old run follows the first of the new"
    lab.wait(lambda: len(incidents(lab)) > before, "the incident")


def test_killed_daemons_restart_without_affecting_jobs(lab: Lab) -> None:
    before = len(incidents(lab))
    job = lab.sbatch("admin", "-N2", "--open-mode=append", "-o", "/dev/null", wrap="srun sleep 25")
    lab.wait_job(job, "RUNNING")
    node = runs_on(lab, job)[0]
    began = time.time()

    def on_disk() -> bool:
        """Returns whether slurmctld has saved its state since the job began. It saves at most every five seconds,
        and a kill loses what came after."""
        seen = lab.head("stat", "-c", "%Y", "/srv/headway-state/slurmctld/job_state", check=False).out
        return float(seen or 0) > began

    lab.wait(on_disk, "the job to be in slurmctld's saved state")
    for daemon in ("slurmctld", "slurmdbd", "mariadb", "relay"):
        lab.cli("fault", "kill", daemon)
    for daemon in ("slurmd", "agent"):
        lab.cli("fault", "kill", daemon, node)
    head, there = lab.container("flt-head"), lab.container(node)
    lab.podman("exec", head, "systemctl", "kill", "--signal=KILL", "--kill-whom=main", "slurmrestd", "munge")
    units = {head: ("slurmctld", "slurmdbd", "mariadb", "slurmrestd", "munge", "headway-agent"), there: ("slurmd",)}

    def all_back() -> bool:
        for where, names in units.items():
            told = lab.podman("exec", where, "sh", "-c", f"systemctl is-active {' '.join(names)} || true").split()
            if told != ["active"] * len(names):
                return False
        return True

    lab.wait(all_back, "all daemons to be back")

    def over() -> str:
        document = json.loads(lab.cli("job", str(job), "-o", "json", check=False).out or "{}")
        return str(document.get("state", "")) if document.get("state") not in {None, "RUNNING", "COMPLETING"} else ""

    assert lab.wait(over, "the job to end", patience_s=240) == "COMPLETED"
    assert lab.field(job, "Restarts") == "0"
    lab.wait(lambda: lab.head("sacct", "-X", "-n", "-o", "State", "-j", str(job), check=False).out.split() == ["COMPLETED"],
             "accounting to know")  # fmt: skip
    assert len(incidents(lab)) == before


def test_many_silent_nodes_are_treated_as_a_network_fault(lab: Lab) -> None:
    before = len(incidents(lab))
    cut_networks(lab)
    held = "are silent at once: probably a network fault"
    lab.wait(lambda: held in (lab.state / "server.log").read_text(), "the server to see what it is")
    cut_networks(lab, heal=True)
    lab.wait(lambda: all(node["usable"] for node in nodes(lab)), "the nodes to be heard again")
    assert len(incidents(lab)) == before


def test_job_with_signal_option_is_warned_before_requeue(lab: Lab) -> None:
    script = (
        "#!/bin/bash\n#SBATCH --requeue --gpus-per-node=1 --signal=B:USR1@30 --open-mode=append -o /scratch/admin/warned-%j\n"
        'echo run ${SLURM_RESTART_COUNT:-0}\n[ -n "$SLURM_RESTART_COUNT" ] && exit 0\n'
        "trap 'echo saved; exit 0' USR1\nfor n in $(seq 3000); do sleep 0.1; done\n"
    )
    job = lab.sbatch("admin", script=script)
    after = lab.sbatch("admin", "-o", "/dev/null", f"--dependency=afterok:{job}", wrap="true")
    lab.wait(lambda: "run 0" in lab.head("cat", f"/scratch/admin/warned-{job}", check=False).out, "the job to begin")
    (node,) = runs_on(lab, job)
    lab.wait(lambda: [gpu for gpu in node_of(lab, node)["gpus"] if gpu["job_id"] == job], "its GPU to be known")
    other = next(gpu["index"] for gpu in node_of(lab, node)["gpus"] if gpu["job_id"] != job)
    before = len(incidents(lab))
    lab.cli("fault", "xid", "48", node, "--gpu", str(other))
    assert lab.wait_job(after, "COMPLETED") == "COMPLETED"
    assert lab.output(f"/scratch/admin/warned-{job}").splitlines() == ["run 0", "saved", "run 1"]
    assert any("warned" in step["evidence"] for step in ended(lab, before + 1)["steps"])


@pytest.mark.parametrize("jobs", [2, pytest.param(3, marks=pytest.mark.soak)])
def test_third_application_error_of_a_day_drains_the_node(lab: Lab, jobs: int) -> None:
    before = len(incidents(lab))
    node = next(name for name in in_service(lab)[1:] if name not in ERRED)
    ERRED.add(node)

    def app_error() -> None:
        job = lab.sbatch("admin", f"--nodelist={node}", "--gpus-per-node=1", "-o", "/dev/null", wrap="srun sleep 300")
        lab.wait_job(job, "RUNNING")
        held = lambda: [gpu["index"] for gpu in node_of(lab, node)["gpus"] if gpu["job_id"] == job]  # noqa: E731
        lab.cli("fault", "xid", "31", node, "--gpu", str(lab.wait(held, "its GPU to be known")[0]))
        lab.wait_job(job, "FAILED", "PENDING")
        lab.head("scancel", str(job), check=False)

    for _ in range(2):
        app_error()
    assert len(incidents(lab)) == before
    assert node_of(lab, node)["usable"]
    if jobs == 3:
        app_error()
        found = ended(lab, before + 1)
        assert found["node"] == node
        assert "3 different jobs" in found["what"]


def test_admin_drain_is_kept_through_fault_and_return(lab: Lab) -> None:
    before = len(incidents(lab))
    lab.head("scontrol", "update", "NodeName=flt-1-2", "State=DRAIN", "Reason=replacing the NIC")
    lab.wait(lambda: "DRAIN" in node_of(lab, "flt-1-2")["states"], "the drain")
    lab.cli("fault", "xid", "79", "flt-1-2", "--gpu", "0")
    found = ended(lab, before + 1, "out of service")
    assert "repairing" not in states(found), "nobody reboots a machine under their hands"
    refused = lab.cli("incident", "return", str(found["number"]), check=False)
    assert "nvidia-smi lists 7 GPUs, not 8" in refused.err, "it is not returned untested"
    lab.cli("fault", "xid", "flt-1-2", "--heal")
    lab.cli("incident", "return", str(found["number"]))
    node = node_of(lab, "flt-1-2")
    assert node["reason"] == "replacing the NIC"
    assert "DRAIN" in node["states"]
    lab.head("scontrol", "update", "NodeName=flt-1-2", "State=RESUME")


def test_repeatedly_failing_node_stays_out_with_a_reason(lab: Lab) -> None:
    lab.cli("apply", spec(lab, flaky_score=5), "--yes")
    for _ in range(5):
        lab.wait(lambda: node_of(lab, FLAPS)["usable"], "the node to be back")
        count = len(incidents(lab)) + 1
        lab.cli("fault", "xid", "79", FLAPS, "--gpu", "3")
        last = lab.wait(partial(over, lab, count), "the incident to end", patience_s=240)
        if last["state"] == "out of service":
            break
    assert last["state"] == "out of service"
    assert "fails too often" in incident(lab, last["number"])["steps"][-1]["text"]
    history = lab.cli("node", "history", FLAPS).out
    assert "fails too often" in history
    assert "headway: incident" in node_of(lab, FLAPS)["reason"]
    lab.cli("fault", "xid", FLAPS, "--heal")
    lab.cli("incident", "return", str(last["number"]))
    assert "score 0 of 5" in lab.cli("node", "history", FLAPS).out
    lab.cli("apply", spec(lab), "--yes")


def over(lab: Lab, count: int) -> dict[str, Any]:
    """Returns the newest incident if there are `count` and it has ended in either way, else {}."""
    found = incidents(lab)
    return found[0] if len(found) == count and found[0]["state"] in {"returned", "out of service"} else {}
