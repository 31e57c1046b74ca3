"""Restarts the first head while the second head is active. A head that runs but does not answer is switched off first,
because it would schedule jobs too if it resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headway.cluster.active_head import answers_ssh, second_head_leads, second_head_took_over
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.errors import HeadwayError

RETRY_S = 120.0  # seconds that a start has to bring the daemons up before the next try
MAX_STARTS = 3
SILENT_CHECKS = 2
TAKEOVER_LIMIT_S = 30.0  # seconds that the second head may take to become active


@dataclass
class HeadRecovery:
    """Recovers one cluster's first head. After MAX_STARTS starts a person has to act."""

    clock: Callable[[], float] = time.monotonic
    silent_checks: int = 0  # passes in a row in which the first head ran and did not answer
    tries: int = 0
    tried_at: float = 0.0
    off_since: float | None = None

    async def recover_first_head(
        self, cluster: Cluster, context: ClusterContext, machines: Mapping[str, Machine]
    ) -> list[tuple[str, str]]:
        """Runs one pass. Returns messages as (machine, text)."""
        if cluster.controllers == 1:
            return []
        first = machines.get(cluster.head)
        if first is None or (self.tries and self.clock() - self.tried_at < RETRY_S):
            return []
        running = first.state is MachineState.RUNNING
        if running and await answers_ssh(context, first):
            self.tries = self.silent_checks = 0
            self.off_since = None
            return []
        self.silent_checks += running
        if running and self.silent_checks < SILENT_CHECKS:
            return []
        second = await second_head_leads(cluster, context, machines)
        if second is None or self.tries >= MAX_STARTS:
            return []
        if not running and await self._is_taking_over(cluster, context, second):
            return []
        self.off_since = None
        self.tries, self.tried_at = self.tries + 1, self.clock()
        try:
            if running:
                if not context.provider.traits.powers_off_machines:
                    return [
                        (
                            first.name,
                            f"does not answer; {second.name} is the active head. Switch the machine off, then start it",
                        )
                    ]
                await context.provider.fence(first)
            await context.connections.drop(first.name)
            await context.provider.start(first)
        except HeadwayError as error:
            return [(first.name, f"does not come back: {error.message}; {second.name} is the active head")]
        if self.tries == MAX_STARTS:
            return [
                (
                    first.name,
                    f"started for the last time; {second.name} is the active head. If it does not come back, run headway apply",
                )
            ]
        return [(first.name, f"started again; {second.name} is the active head until it is back")]

    async def _is_taking_over(self, cluster: Cluster, context: ClusterContext, second: Machine) -> bool:
        """Returns whether the second head is still taking over. If the first head starts during the takeover, it stops
        the takeover, and no head is active until both have noticed."""
        self.off_since = self.clock() if self.off_since is None else self.off_since
        return self.clock() - self.off_since < TAKEOVER_LIMIT_S and not await second_head_took_over(
            cluster, context, second
        )
