"""The outcome of a node test, and the exceptions with which a test ends early."""

from __future__ import annotations

from dataclasses import dataclass

from agent.node_tests.cuda_driver import CudaError

_MOST_REASON = 500  # characters


class NodeTestFailed(Exception):
    """A test failed; the message says what it found."""


class NodeTestSkipped(Exception):
    """A test can't run on this machine; the message says what is missing. A skipped test fails no node."""


@dataclass
class NodeTestResult:
    """The outcome of one test."""

    test: str
    ok: bool
    simulated: bool = False
    figure: float | None = None
    unit: str = ""
    expected: float | None = None  # the least that the plan expects, in `unit`
    reason: str = ""  # why it failed, or why it was skipped
    skipped: bool = False

    def line(self) -> str:
        """Returns the result as one line of text."""
        parts = [f"{self.test:<10} {'skipped' if self.skipped else 'ok' if self.ok else 'FAILED'}"]
        if self.figure is not None:
            least = f" (at least {self.expected:g} expected)" if self.expected else ""
            parts.append(f"{self.figure:g} {self.unit}{least}")
        parts += [self.reason] if self.reason else []
        return "  ".join([*parts, *(["SIMULATED"] if self.simulated else [])])

    def compare(self) -> NodeTestResult:
        """Returns the result, failed if its figure is less than the plan expects."""
        if self.ok and self.expected and self.figure is not None and self.figure < self.expected:
            self.ok, self.reason = False, "less than the plan expects"
        return self


def result_of_error(test: str, simulated: bool, error: Exception) -> NodeTestResult:
    """Returns the skipped or failed result of a test that ended with this exception."""
    if isinstance(error, NodeTestSkipped):
        return NodeTestResult(test, True, simulated, reason=str(error), skipped=True)
    known = isinstance(error, (NodeTestFailed, CudaError))
    reason = str(error) if known else f"{type(error).__name__}: {error}"
    return NodeTestResult(test, False, simulated, reason=reason[:_MOST_REASON])
