"""Each GPU error in the kernel log becomes exactly one line for the server, and none is lost by a restart."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.checks import kernel_log
from agent.jobs import orphans
from agent.roles import head as relay
from agent.roles import server_stream
from tests.support.paths import NODE

XID = "4,{number},{usec},-;NVRM: Xid (PCI:0000:3b:00): {code}, pid={pid}, GPU has fallen off the bus."


def line(code: int = 79, number: int = 5, usec: int = 9_000_000, pid: str = "77") -> str:
    return XID.format(code=code, number=number, usec=usec, pid=pid)


def faults(**others: Any) -> Any:
    known: dict[str, Any] = {"gpus": lambda: {":3b:00": 2}, "job_of_pid": {77: 12}.get}
    return kernel_log.GpuErrors("lab-1-1", "b00t", **{**known, **others})


def test_xid_line_is_parsed_with_gpu_job_and_time() -> None:
    node = faults()
    assert node.record_line(line(), 1000.0, 10.0)
    (fault,) = node.pending_message()["faults"]
    assert fault == {
        "id": "lab-1-1-b00t-5-9000000",
        "at": 999.0,
        "code": 79,
        "gpu": 2,
        "job": 12,
        "text": "pid=77, GPU has fallen off the bus.",
    }


def test_other_kernel_lines_are_ignored() -> None:
    node = faults()
    for record in (
        "6,1,2,-;usb 1-1: new device",
        "nonsense",
        ";NVRM: Xid (PCI:0000:3b:00): 79, x",
        "4,1,2,-;NVRM: Xid",
        "",
    ):
        assert not node.record_line(record, 1000.0, 10.0)
    assert node.record_line("4,1,2,-;NVRM: Xid (PCI:0000:99:00): 31, pid='<unknown>', name=<unknown>", 1000.0, 10.0)
    (fault,) = node.pending_message()["faults"]
    assert (fault["gpu"], fault["job"]) == (None, None)


def test_fault_is_sent_with_every_heartbeat_until_acknowledged() -> None:
    node = faults()
    node.record_line(line(), 1000.0, 10.0)
    first, second = node.pending_message(), node.pending_message()
    assert first == second
    node.acknowledge(None)
    node.acknowledge([{"x": 1}])
    assert node.pending_message() == first
    node.acknowledge([first["faults"][0]["id"]])
    assert node.pending_message() == {"node": "lab-1-1", "faults": []}


def test_pci_addresses_are_normalised_for_comparison() -> None:
    assert kernel_log.bus_of("00000000:3B:00.0") == kernel_log.bus_of("0000:3b:00") == ":3b:00"
    assert kernel_log.bus_of("0001:3b:00") != kernel_log.bus_of("0000:3b:00")


def test_kernel_log_reads_whole_lines_and_follows_a_replaced_file(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    log = kernel_log.KernelLog(str(path))
    assert log.new_records() == []
    path.write_text("one\ntw")
    assert log.new_records() == ["one"]
    with path.open("a") as file:
        file.write("o\n")
    assert log.new_records() == ["two"]
    path.unlink()
    path.write_text("three\n")
    assert [*log.new_records(), *log.new_records()] == ["three"]


def test_relay_stores_each_fault_once_and_acknowledges_it(tmp_path: Path) -> None:
    spool = tmp_path / "faults.jsonl"
    node = faults()
    node.record_line(line(), 1000.0, 10.0)
    data = json.dumps(node.pending_message()).encode()
    head = relay.NodeMessages(str(tmp_path / "reports"), str(spool))
    answer = head.receive(data, 1000.5)
    assert answer == {"got": ["lab-1-1-b00t-5-9000000"], "now": 1000.5, "leads": True, "controller": 0, "others": []}
    again = relay.NodeMessages(str(tmp_path / "reports"), str(spool))  # started again; the answer was lost
    assert again.receive(data, 1001.5) == {**answer, "now": 1001.5}
    rows = [json.loads(row) for row in spool.read_text().splitlines()]
    assert [(row["node"], row["code"]) for row in rows] == [("lab-1-1", 79)]
    assert again.beats == {"lab-1-1": 1001.5}
    assert head.receive(b'{"node": "../x", "faults": [{"id": "1"}]}', 1.0) is None


def test_fault_spool_is_bounded(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(relay, "MOST_FAULTS", 10)
    head = relay.NodeMessages(str(tmp_path / "reports"), str(tmp_path / "f"))
    for number in range(100):
        head.receive(json.dumps({"node": "n1", "faults": [{"id": str(number)}]}).encode(), 1.0)
    kept = [json.loads(row)["id"] for row in (tmp_path / "f").read_text().splitlines()]
    assert len(kept) <= 10
    assert kept[-1] == "99"


def test_heartbeat_ages_distinguish_silent_nodes_from_a_dead_relay(tmp_path: Path) -> None:
    path = str(tmp_path / "beats.json")
    assert server_stream.heartbeat_ages(path, 100.0) == {"relay": -1}
    head = relay.NodeMessages(str(tmp_path / "reports"), str(tmp_path / "f"))
    head.beats = {"n1": 100.0, "n2": 91.0}
    head.write_heartbeats(path)
    os.utime(path, (100.0, 100.0))
    assert server_stream.heartbeat_ages(path, 101.0) == {"alive": 1, "silent": {"n2": 10.0}}
    assert server_stream.heartbeat_ages(path, 150.0) == {"relay": 50.0}


def test_server_stream_sends_existing_and_new_faults(tmp_path: Path) -> None:
    spool = tmp_path / "f"
    spool.write_text('{"id": "a"}\n{"id": "b')
    code = f"from agent.roles.server_stream import stream_events; stream_events({str(spool)!r}, {str(tmp_path / 'none')!r})"
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, cwd=NODE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            told = (json.loads(row) for row in process.stdout)
            assert next(told) == {"fault": {"id": "a"}}
            assert next(told) == {"relay": -1}
            with spool.open("a") as file:
                file.write('"}\n')
            assert next(row for row in told if "fault" in row) == {"fault": {"id": "b"}}
        finally:
            process.kill()


def test_nvml_event_is_a_fault_unless_the_kernel_log_had_it() -> None:
    node = faults()
    assert node.record_driver_event("00000000:3B:00.0", 62, 1000.0)
    assert [(row["code"], row["gpu"]) for row in node.pending_message()["faults"]] == [(62, 2)]
    node.record_line(line(79), 2000.0, 10.0)
    assert not node.record_driver_event("00000000:3B:00.0", 79, 2001.0), "the log was there first"
    assert node.record_driver_event("00000000:3B:00.0", 79, 3000.0), "another one, later"
    assert node.last == {2: 79}
    assert node.seen[2, 79][0] == 2


def test_job_without_batch_stepd_but_with_extern_stepd_is_orphaned(tmp_path: Path) -> None:
    def said(pid: int, what: str) -> None:
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        (tmp_path / str(pid) / "cmdline").write_bytes(what.encode() + b"\0")

    said(1, "slurmstepd: [7.extern]")
    said(2, "slurmstepd: [7.batch]")
    said(3, "slurmstepd: [8.extern]")  # a part of a job whose batch script runs on another node
    said(4, "slurmstepd: [9.extern]")
    said(5, "slurmstepd: [9.batch]")
    said(6, "/usr/sbin/slurmstepd infinity")
    one = orphans.OrphanedJobs(str(tmp_path))
    assert one.find_new([1, 2, 3, 4, 5, 6]) == []
    assert one.find_new([1, 3]) == [], "job 9 has ended, job 7 perhaps is ending"
    assert one.find_new([1, 3]) == [7]
    assert one.find_new([1, 3]) == [], "once"
    said(7, "slurmstepd: [7.batch]")
    assert one.find_new([1, 7, 3]) == []
    assert one.find_new([1, 3]) + one.find_new([1, 7, 3]) + one.find_new([1, 3]) == [], "twice in a row"


def test_relay_accepts_heartbeats_while_its_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = relay.NodeMessages(str(tmp_path / "reports"), str(tmp_path / "faults"), str(tmp_path / "turns"))
    beat = {"node": "lab-1-1", "jobs": {"7": {"n": "1", "step": 5}}, "faults": [{"id": "a"}]}

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(relay, "_append", full)
        answer = kept.receive(json.dumps(beat).encode(), 1000.0)
    assert answer is not None
    assert (answer["got"], kept.beats) == ([], {"lab-1-1": 1000.0}), "the node says its fault again"
    answer = kept.receive(json.dumps(beat).encode(), 1001.0)
    assert answer is not None
    assert answer["got"] == ["a"]


def test_append_leaves_no_partial_line_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "faults"
    relay._append(str(path), "whole", sync=True)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            relay._append(str(path), "half", sync=True)
    relay._append(str(path), "next", sync=True)
    assert path.read_text() == "whole\nnext\n"
