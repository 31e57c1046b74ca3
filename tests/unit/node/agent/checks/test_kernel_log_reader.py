"""The kernel's log is read whole, and only the kernel's own lines count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.checks import kernel_log_reader, xid_errors


def test_records_of_user_programs_in_the_kernel_log_are_ignored() -> None:
    for word, ours in (("0", True), ("4", True), ("188", True), ("12", False), ("30", False), ("x", False)):
        record = f"{word},5,9000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=7, x"
        assert xid_errors.GpuErrors("n", "b", dict).record_line(record, 10.0, 10.0) is ours, word
        assert bool(kernel_log_reader.kernel_line(record)) is ours, word


def test_records_before_an_unreadable_one_count(monkeypatch: Any) -> None:
    answers: list[Any] = [b"6,1,2,-;one", OSError(22, "Invalid argument"), b"6,3,4,-;three", BlockingIOError()]

    def read(*_: Any) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return bytes(answer)

    log = kernel_log_reader.KernelLog("/dev/null")
    monkeypatch.setattr(kernel_log_reader.os, "read", read)
    assert log.new_records() == ["6,1,2,-;one"]
    assert log.new_records() == ["6,3,4,-;three"]


def test_kernel_log_reads_whole_lines_and_follows_a_replaced_file(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    log = kernel_log_reader.KernelLog(str(path))
    assert log.new_records() == []
    path.write_text("one\ntw")
    assert log.new_records() == ["one"]
    with path.open("a") as file:
        file.write("o\n")
    assert log.new_records() == ["two"]
    path.unlink()
    path.write_text("three\n")
    assert [*log.new_records(), *log.new_records()] == ["three"]
