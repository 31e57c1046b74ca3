"""The step of an incident that tests the repaired node, and what follows its result: the return to service, the next repair,
or nothing more."""

from __future__ import annotations

import contextlib

from headway.domain.incident import FaultAction, Incident, IncidentState, IncidentStep
from headway.errors import HeadwayError
from headway.health import node_tests
from headway.health.context import HealthContext
from headway.health.incidents import repair
from headway.health.incidents.return_to_service import return_to_service
from headway.health.incidents.slow_fabric import LEAST_GB_S


async def run_tests(context: HealthContext, incident: Incident) -> node_tests.NodeTestReport:
    """Runs the node's tests. If a person requested them, a stopped machine is started first."""
    with contextlib.suppress(HeadwayError):  # the tests report what is wrong
        if _tests_begun(incident)[0].evidence.get("asked"):
            await repair.start_machine(context, incident.node)
        await repair.wait_until_booted(context, incident.node)
    least = (await context.cluster_context.store.incidents.get(incident.number)).found(LEAST_GB_S)
    return await node_tests.run_node_tests(
        context,
        incident.node,
        thorough=needs_thorough_tests(incident),
        least_allreduce_gb_s=float(least) if isinstance(least, int | float) else 0.0,
    )


def needs_thorough_tests(incident: Incident) -> bool:
    """Returns whether the incident's action requires load tests."""
    return incident.action in {FaultAction.DRAIN, FaultAction.RMA, FaultAction.HANDS_ON}


async def finish_tests(context: HealthContext, incident: Incident, report: node_tests.NodeTestReport) -> Incident:
    """Records the result of the tests. A node that passed returns to service. After a failure it gets the next
    repair, or is taken out of service if a person had requested the tests."""
    begun, since = _tests_begun(incident)
    person = str(begun.evidence.get("asked", ""))
    if not report.fault and not any(step.evidence.get("drains") for step in since):
        state = IncidentState.FALSE_ALARM if begun.evidence.get("false_alarm") else IncidentState.RETURNED
        if person:
            await context.cluster_context.store.incidents.reset_score(context.cluster.name, incident.node)
        return await return_to_service(context, incident, report, state, person or "headway")
    words = f"a test failed: {report.fault or 'the error occurred again'}"
    state = IncidentState.OUT if person else IncidentState.JOBS_MOVED
    return await context.add_step(incident, state, words)


def _tests_begun(incident: Incident) -> tuple[IncidentStep, tuple[IncidentStep, ...]]:
    """Returns the step that began the tests and the steps after it."""
    steps = incident.current
    begun = max(i for i, step in enumerate(steps) if "tests" in step.evidence)
    return steps[begun], steps[begun + 1 :]
