"""NVIDIA's own diagnostic of the GPUs, by `dcgmi diag` where DCGM is installed.

Its JSON has no published schema. DCGM 3 names GPUs by "gpu_ids" and gives a warning as text, DCGM 4 names entities and gives a
list of warnings with severities (https://github.com/NVIDIA/DCGM, nvvs/include/NvvsJsonStrings.h and dcgmi/Diag.cpp). Whatever
can't be read skips the test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent.node_tests.programs import Ended, find_program, run_program
from agent.node_tests.results import NodeTestFailed, NodeTestSkipped

PROGRAM, PACKAGE = "dcgmi", "datacenter-gpu-manager"
# Level 1: software, some seconds, so that the tests of a node take 90 s at most. Level 2: PCIe and memory too, about two minutes.
LEVEL, LONG_LEVEL = 1, 2
_LIMIT_S = {LEVEL: 45.0, LONG_LEVEL: 240.0}
_NAMES = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_SETTINGS = "deployment"  # the category of tests of drivers and settings
_HARMLESS = {1, 3, 5}  # dcgmErrorSeverity: MONITOR, UNKNOWN, CONFIG
# dcgmError of memory and InfoROM, which tests of settings report too: retired pages, corrupt InfoROM, remapped rows
_HARDWARE_ERRORS = {6, 7, 8, 9, 80, 83, 84, 85}
_MOST_FAULTS = 4


@dataclass(frozen=True)
class DcgmFault:
    """A result of the diagnostic other than passed or skipped. `hardware`: it counts against the node."""

    test: str
    where: str
    text: str
    hardware: bool

    def words(self) -> str:
        """Returns the fault for a sentence."""
        return " ".join(part for part in (self.test, self.where) if part) + (f": {self.text}" if self.text else "")


def run_dcgm_test(level: int = LEVEL, *, limit_s: float = 0.0) -> tuple[int, str]:
    """Runs the diagnostic, for at most `limit_s` seconds (0: the level's limit). Returns the number of its tests that passed,
    and what it says about settings ("" if nothing). Raises NodeTestFailed for a fault of hardware, and NodeTestSkipped where
    it can't run."""
    program = find_program(PROGRAM, PACKAGE)
    passed, faults = read_report(
        run_program([program, "diag", "--run", str(level), "--json"], limit_s or _LIMIT_S[level])
    )
    bad = [fault.words() for fault in faults if fault.hardware]
    if bad:
        more = f" and {len(bad) - _MOST_FAULTS} more" if len(bad) > _MOST_FAULTS else ""
        raise NodeTestFailed("; ".join(bad[:_MOST_FAULTS]) + more)
    if not passed and not faults:
        raise NodeTestSkipped("dcgmi diag ran no test")
    return passed, "; ".join(fault.words() for fault in faults)


def read_report(ended: Ended) -> tuple[int, list[DcgmFault]]:
    """Returns the number of tests that passed, and the faults. Raises NodeTestSkipped if the diagnostic did not run."""
    try:
        report = json.loads(ended.out[max(ended.out.find("{"), 0) :])
    except ValueError:
        raise NodeTestSkipped(f"dcgmi diag can't run: {ended.last_line}") from None
    body = next((report[name] for name in _NAMES if isinstance(report.get(name), dict)), {})
    if error := body.get("runtime_error"):
        raise NodeTestSkipped(f"dcgmi diag can't run: {' '.join(str(error).split())}")
    if not isinstance(body.get("test_categories"), list):
        raise NodeTestSkipped("dcgmi diag wrote a report that Headway can't read")
    passed, faults = 0, []
    for category in body["test_categories"]:
        for test in category.get("tests") or ():
            found = list(_faults(test, str(category.get("category") or "").lower()))
            faults += found
            passed += not found and any(row.get("status") == "Pass" for row in _results(test))
    return passed, faults


def _results(test: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the results of a test by GPU; its summary if it has none."""
    found = [row for row in test.get("results") or () if isinstance(row, dict)]
    summary = test.get("test_summary")
    return found or ([summary] if isinstance(summary, dict) else [])


def _faults(test: dict[str, Any], category: str) -> Iterator[DcgmFault]:
    for row in _results(test):
        if row.get("status") not in ("Fail", "Warn"):
            continue
        where = str(row.get("gpu_ids", row.get("entity_id", "")))
        kind = str(row.get("entity_group") or "GPU")
        warnings = row.get("warnings") or ()
        listed = [one for one in warnings if isinstance(one, dict)] if isinstance(warnings, list) else []
        text = "; ".join(str(one.get("warning") or "") for one in listed) or str(warnings or "")
        settings = category == _SETTINGS
        harmless = all(_is_harmless(one, settings=settings) for one in listed) if listed else settings
        place = f"on {kind} {where}" if where else ""
        yield DcgmFault(
            str(test.get("name")), place, " ".join(text.split()), hardware=row["status"] == "Fail" and not harmless
        )


def _is_harmless(warning: dict[str, Any], *, settings: bool) -> bool:
    """Returns whether a warning of DCGM 4 says nothing against the hardware. `settings`: it is of a test of settings, which
    gives a setting such as disabled persistence mode the severity of broken hardware."""
    exempt = settings and warning.get("error_id") not in _HARDWARE_ERRORS
    return exempt or warning.get("error_severity") in _HARMLESS
