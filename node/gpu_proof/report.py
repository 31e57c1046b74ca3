"""The report of `make gpu-proof`: printed line by line, and written as a page of the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class ReportLine:
    """One line of the report. `state`: "ok", "FAILED" or "not run"."""

    what: str
    state: str
    text: str = ""


@dataclass
class Report:
    """All results with the description of the machine."""

    machine: Mapping[str, str]
    simulated: bool
    results: list[tuple[str, ReportLine]] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether any step failed."""
        return any(result.state == "FAILED" for _, result in self.results)

    def add(self, step: str, result: ReportLine) -> None:
        """Adds a result and prints it."""
        self.results.append((step, result))
        print(f"{step:<10} {result.what:<28} {result.state:<8} {result.text}", flush=True)

    def write(self, path: Path) -> None:
        """Writes the report as Markdown."""
        path.write_text("\n".join(self._lines()) + "\n", encoding="utf-8")

    def _lines(self) -> list[str]:
        day = datetime.now(UTC).date().isoformat()
        lines = ["# Checks on real GPUs", "", f"`make gpu-proof` wrote this page on {day}.", ""]
        if self.simulated:
            lines += ["**SIMULATED: no GPU was used.** The steps ran against the stand-in for the CUDA driver.", ""]
        lines += ["| Machine | |", "|---|---|", *(f"| {name} | {_cell(text)} |" for name, text in self.machine.items())]
        lines += ["", "| Step | Check | Result | |", "|---|---|---|---|"]
        lines += [f"| {step} | {_cell(one.what)} | {one.state} | {_cell(one.text)} |" for step, one in self.results]
        return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
