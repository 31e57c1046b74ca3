"""A node whose link is slow is named by a fabric test, and nothing else; no job waits for a test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.cluster.faults.fault_cluster import NODES, in_service
from tests.cluster.lab import Lab

SLOW = NODES[2]
MARK = "/run/headway/gives-way"  # has the process id of the test's program on a node
RATE = "50mbit"  # gloo reaches 0.006 GB/s, of 0.1 or more on a loaded machine


def measured(lab: Lab) -> dict[str, Any]:
    """Runs a fabric test of all idle nodes, spares included, and returns its result."""
    ran = lab.cli("test", "fabric", "flt", "-o", "json", check=False, timeout_s=600)
    assert ran.code in (0, 1), ran.err
    found: dict[str, Any] = ran.json()
    assert ran.code == bool(found["findings"])
    return found


@contextmanager
def slow_link(lab: Lab, node: str) -> Iterator[None]:
    """Limits what the node sends, in the network namespace of its machine. A restart of the machine ends it."""
    pid = lab.podman("inspect", "--format", "{{.State.Pid}}", lab.container(node)).strip()
    tc = ["nsenter", "-t", pid, "-n", "tc", "qdisc"]
    limit = ["root", "tbf", "rate", RATE, "burst", "64kb", "latency", "200ms"]
    subprocess.run([*tc, "add", "dev", "eth0", *limit], check=True, timeout=30)
    try:
        yield
    finally:
        subprocess.run([*tc, "del", "dev", "eth0", "root"], check=False, capture_output=True, timeout=30)


def test_sound_fabric_names_nothing_although_the_machine_is_loaded(lab: Lab) -> None:
    found = measured(lab)
    assert (found["findings"], found["mismatches"]) == ([], [])
    assert set(found["leaves"]) == set(NODES)
    assert found["simulated"] is True


def test_setting_of_nccl_that_fits_no_interface_is_named_with_its_node(lab: Lab) -> None:
    node = lab.container(NODES[1])
    lab.podman("exec", node, "sh", "-c", "echo NCCL_SOCKET_IFNAME=ens1f0 >/etc/nccl.conf")
    try:
        found = measured(lab)
    finally:
        lab.podman("exec", node, "rm", "/etc/nccl.conf")
    assert [one["what"] for one in found["mismatches"]] == [
        f"NCCL_SOCKET_IFNAME=ens1f0 in /etc/nccl.conf of {NODES[1]} matches no interface (eth0)"
    ]


def test_slow_node_alone_is_named_repaired_and_returns_once_it_is_fast(lab: Lab) -> None:
    with slow_link(lab, SLOW):
        found = measured(lab)
        assert [finding["name"] for finding in found["findings"]] == [SLOW]
        number = found["findings"][0]["incident"]

        def closed() -> dict[str, Any]:
            incident = lab.client.incidents.get("flt", number).model_dump()
            assert incident["state"] != "out of service", incident["steps"]
            return incident if incident["state"] == "returned" else {}

        incident = lab.wait(closed, "the slow node to return", patience_s=400)
    texts = [step["text"] for step in incident["steps"]]
    assert any("measured again" in text for text in texts)
    assert "its machine is restarted" in texts
    assert incident["node"] == SLOW


def test_job_does_not_wait_for_a_test_and_finds_its_node_free_of_it(lab: Lab) -> None:
    node = in_service(lab)[0]
    operation = lab.client.nodes.test_fabric("flt")
    next(event for event in lab.client.operations.events(operation.id) if event.step == "round 1")
    # Its round does not end before the job begins, however long that takes.
    lab.podman("exec", lab.container(node), "sh", "-c", f"kill -STOP $(cat {MARK})")
    wrap = 'if pgrep -f "agent.pyz tes[t]"; then echo the test still runs; exit 1; fi'
    job = lab.sbatch("admin", "-w", node, "--gpus-per-node=8", "-o", "/dev/null", wrap=wrap)
    lab.wait_job(job, "COMPLETED")
    lab.client.operations.wait(operation.id)
    found = lab.client.nodes.fabric_test("flt")
    assert [(one.node, one.why) for one in found.skipped] == [(node, "a job started on it")]
    assert found.findings == []
