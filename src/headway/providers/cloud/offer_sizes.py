"""Whether the machines of an offer are large enough for a plan. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headway.domain.cluster import Plan
from headway.domain.machines.offer import Offer
from headway.errors import Refused


def check_sizes(plan: Plan, offers: Sequence[Offer]) -> None:
    """Raises Refused if an offer has less than the plan: Slurm knows a node that is not there by its plan, and starts no job
    on a smaller machine."""
    for offer in offers:
        for what, has, wants in (
            ("vCPUs", offer.cpus, plan.cpus),
            ("MiB of memory", offer.memory_mib, plan.memory_mib),
            ("GPUs", offer.gpus, plan.gpus),
        ):
            if has < wants:
                raise Refused(
                    f"{offer.instance_type} has {has} {what}, and plan {plan.name} of a group with idle {wants}",
                    hint=f"name larger types in cloud.types.{plan.name}, or a plan of that size",
                )
