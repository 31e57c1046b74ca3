"""Only lines that the kernel itself wrote count: names of user programs in them cannot fake an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.checks import kernel_log, system_checks

SAYS = (  # each begins with a program's name, or soon has one; x86 ends it with that of the file, which is as long as people like
    "{comm}[1132]: segfault at 0 ip 0000000000401136 sp 00007ffc error 6 in {file}[1132,401000+1000] likely on CPU 0 (core 0)",
    "{comm}[1132] bad frame in rt_sigreturn frame:00007ffc ip:401136 sp:7ffc orax:f in {file}[401000+1000]",
    "traps: {comm}[1132] general protection fault ip:401136 sp:7ffc error:0 in {file}[401000+1000]",
    "{comm}[1132]: unhandled exception: DABT (lower EL), ESR 0x92000006, level 2 translation fault in {file}[401000+1000]",
    "{comm}/1132: potentially unexpected fatal signal 11.",
    "{comm}: page allocation failure: order:0, mode:0xcc0(GFP_KERNEL), nodemask=(null),cpuset={file},mems_allowed=0",
    "{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/{file},task={comm},pid=1132,uid=1000",
    "process '/home/{file}' started with executable stack",
)
TROUBLE = (
    "BUG: unable to handle page fault for address: ffff",
    "Oops: 0002 [#1] SMP PTI",
    "Internal error: Oops: 0000000096000004 [#1] PREEMPT SMP",
    "kernel BUG at mm:305!",
    "watchdog: BUG: soft lockup - CPU#3 stuck for 26s!",
    "rcu: INFO: rcu_sched detected stalls on CPUs",
    "[Hardware Error]: Uncorrected",
    "{1}[Hardware Error]: event severity: fatal",
    "EXT4-fs error (device sda1): x",
    "XFS (sda1): Corruption of in-memory data",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, x",
)


@pytest.mark.parametrize("says", SAYS)
@pytest.mark.parametrize("words", TROUBLE)
def test_program_and_file_names_cannot_fake_kernel_errors(says: str, words: str) -> None:
    """Also not where the kernel's line is one with a name's beginning and a file's rest."""
    for cut in range(16):
        for name in (words[:cut], f"{words[:cut]}\\x01"):
            for file in (words, words[cut:], words.rpartition(" ")[2], f": {words}"):
                text = says.format(comm=name, file=file)
                assert not system_checks.is_kernel_error(text), text
                assert not kernel_log.GpuErrors("n", "b", dict).record_line(f"4,5,9000000,-;{text}", 10.0, 10.0), text


def test_records_of_user_programs_in_the_kernel_log_are_ignored() -> None:
    for word, ours in (("0", True), ("4", True), ("188", True), ("12", False), ("30", False), ("x", False)):
        record = f"{word},5,9000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=7, x"
        assert kernel_log.GpuErrors("n", "b", dict).record_line(record, 10.0, 10.0) is ours, word
        assert bool(kernel_log.kernel_line(record)) is ours, word


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


def test_errors_beyond_one_message_follow_at_once() -> None:
    node = faults()
    for number in range(kernel_log.MOST_IN_A_BEAT + 1):
        node.record_line(line(code=31, number=number), 1000.0, 10.0)
    first = [fault["id"] for fault in node.pending_message()["faults"]]
    assert node.acknowledge(first), "one more waits"
    assert not node.acknowledge(first), "the second head says the same"
    assert not node.acknowledge([fault["id"] for fault in node.pending_message()["faults"]])


def test_records_before_an_unreadable_one_count(monkeypatch: Any) -> None:
    answers: list[Any] = [b"6,1,2,-;one", OSError(22, "Invalid argument"), b"6,3,4,-;three", BlockingIOError()]

    def read(*_: Any) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return bytes(answer)

    log = kernel_log.KernelLog("/dev/null")
    monkeypatch.setattr(kernel_log.os, "read", read)
    assert log.new_records() == ["6,1,2,-;one"]
    assert log.new_records() == ["6,3,4,-;three"]


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


def test_nvml_event_is_a_fault_unless_the_kernel_log_had_it() -> None:
    node = faults()
    assert node.record_driver_event("00000000:3B:00.0", 62, 1000.0)
    assert [(row["code"], row["gpu"]) for row in node.pending_message()["faults"]] == [(62, 2)]
    node.record_line(line(79), 2000.0, 10.0)
    assert not node.record_driver_event("00000000:3B:00.0", 79, 2001.0), "the log was there first"
    assert node.record_driver_event("00000000:3B:00.0", 79, 3000.0), "another one, later"
    assert node.last == {2: 79}
    assert node.seen[2, 79][0] == 2
