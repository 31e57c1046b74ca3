"""What steps of incidents that run learn of an apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from headway.cluster.context import ClusterContext
from headway.health.incidents.engine import IncidentEngine
from tests.support.clusters import builders


def test_running_steps_see_the_changed_cluster_file() -> None:
    nothing = cast(Any, None)
    engine = IncidentEngine(builders.cluster(2), ClusterContext(nothing, nothing, nothing, Path("/nowhere")))
    of_a_running_step, changed = engine.context, builders.cluster(3)
    engine.use_cluster(changed)
    assert engine.cluster is of_a_running_step.cluster is changed
