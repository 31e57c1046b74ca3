"""GPU errors are read from XID lines and NVML and sent until the head has them."""

from __future__ import annotations

from typing import Any

from agent.checks import xid_errors

XID = "4,{number},{usec},-;NVRM: Xid (PCI:0000:3b:00): {code}, pid={pid}, GPU has fallen off the bus."


def line(code: int = 79, number: int = 5, usec: int = 9_000_000, pid: str = "77") -> str:
    return XID.format(code=code, number=number, usec=usec, pid=pid)


def faults(**others: Any) -> Any:
    known: dict[str, Any] = {"gpus": lambda: {":3b:00": 2}, "job_of_pid": {77: 12}.get}
    return xid_errors.GpuErrors("lab-1-1", "b00t", **{**known, **others})


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


def test_errors_beyond_one_message_follow_at_once() -> None:
    node = faults()
    for number in range(xid_errors.MOST_IN_A_BEAT + 1):
        node.record_line(line(code=31, number=number), 1000.0, 10.0)
    first = [fault["id"] for fault in node.pending_message()["faults"]]
    assert node.acknowledge(first), "one more waits"
    assert not node.acknowledge(first), "the second head says the same"
    assert not node.acknowledge([fault["id"] for fault in node.pending_message()["faults"]])


def test_pci_addresses_are_normalised_for_comparison() -> None:
    assert xid_errors.bus_of("00000000:3B:00.0") == xid_errors.bus_of("0000:3b:00") == ":3b:00"
    assert xid_errors.bus_of("0001:3b:00") != xid_errors.bus_of("0000:3b:00")


def test_nvml_event_is_a_fault_unless_the_kernel_log_had_it() -> None:
    node = faults()
    assert node.record_driver_event("00000000:3B:00.0", 62, 1000.0)
    assert [(row["code"], row["gpu"]) for row in node.pending_message()["faults"]] == [(62, 2)]
    node.record_line(line(79), 2000.0, 10.0)
    assert not node.record_driver_event("00000000:3B:00.0", 79, 2001.0), "the log was there first"
    assert node.record_driver_event("00000000:3B:00.0", 79, 3000.0), "another one, later"
    assert node.last == {2: 79}
    assert node.seen[2, 79][0] == 2
