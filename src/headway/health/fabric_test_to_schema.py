"""The result of a fabric test for the API."""

from __future__ import annotations

from collections.abc import Iterator

from headway.domain.fabric.fabric_results import FabricFinding, FabricGroup
from headway.health.policy.fabric_plan import FabricPlan
from headway.schemas.nodes.fabric_tests import FabricFindingOut, FabricMeasurementOut


def finding_out(finding: FabricFinding, incident: int | None) -> FabricFindingOut:
    """Returns a finding for the API. `incident`: its number, None without one."""
    return FabricFindingOut(
        kind=finding.suspect.kind.value,
        name=finding.suspect.name,
        what=finding.what,
        how=list(how_found(finding)),
        incident=incident,
    )


def how_found(finding: FabricFinding) -> Iterator[str]:
    """Yields the measurements behind a finding as sentences."""
    for one in finding.slow:
        again = ", measured again" if one.again else ""
        yield f"{one.group.label}: {one.fault or f'{one.gb_s:.3g} GB/s'}{again}"
    clear: dict[FabricGroup, float] = {}
    for one in finding.sound:
        clear[one.group] = max(one.gb_s, clear.get(one.group, 0.0))
    for group, gb_s in sorted(clear.items(), key=lambda item: len(item[0].nodes))[:6]:
        yield f"without it, {group.label}: {gb_s:.3g} GB/s"


def measurements_out(plan: FabricPlan) -> Iterator[FabricMeasurementOut]:
    """Yields the measurements of a plan for the API."""
    evidence = plan.evidence
    for one in evidence.measured:
        yield FabricMeasurementOut(
            kind=one.group.kind.value,
            nodes=list(one.group.nodes),
            gb_s=one.gb_s,
            expected_gb_s=evidence.expected(one.group),
            slow=evidence.is_slow(one.group),
            again=one.again,
            fault=one.fault,
        )
