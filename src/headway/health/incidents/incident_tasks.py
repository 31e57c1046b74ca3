"""Repairs and tests of incidents as tasks. They take minutes and write nothing to the store: a new server starts them again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from headway.domain.incident import Incident, IncidentState
from headway.health.context import HealthContext
from headway.health.incidents import repair
from headway.health.incidents.tests_after_repair import finish_tests, run_tests


@dataclass
class IncidentTasks:
    """The running repairs and tests of one cluster, by the number of their incident."""

    running: dict[int, asyncio.Task[Any]] = field(default_factory=dict)

    async def advance(self, context: HealthContext, incident: Incident) -> Incident:
        """Starts the repair or the tests, or takes their result. Returns the incident."""
        task = self.running.get(incident.number)
        repairs = incident.state is IncidentState.REPAIRING
        if task is None:
            work: Any = repair.run_repair(context, incident) if repairs else run_tests(context, incident)
            self.running[incident.number] = asyncio.create_task(work, name=f"incident {incident.number}")
            return incident
        if not task.done():
            return incident
        del self.running[incident.number]
        if repairs:
            return await repair.finish_repair(context, incident, task.result())
        return await finish_tests(context, incident, task.result())

    async def cancel(self, incident: Incident) -> None:
        """Cancels the incident's task, if it has one, and waits until it has ended."""
        task = self.running.pop(incident.number, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def has_finished(self) -> bool:
        """Returns whether a repair or test has ended whose result is not recorded yet."""
        return any(task.done() for task in self.running.values())

    async def close(self) -> None:
        """Cancels running repairs and tests and waits until they have ended."""
        tasks = list(self.running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
