"""Reads traces in the Standard Workload Format (SWF): 18 numbers a line, `;` begins a comment. Pure.

Source of the format: Feitelson et al., https://www.cs.huji.ac.il/labs/parallel/workload/swf.html."""

from __future__ import annotations

import re
from collections import Counter

from headway.domain.cluster import Cluster
from headway.whatif.trace import TraceJob

_FIELDS = 18
_START = re.compile(r";\s*UnixStartTime:\s*([0-9]+)")
_CANCELLED = 5  # of the field "status"


def read_swf(text: str, cluster: Cluster) -> tuple[list[TraceJob], Counter[str]]:
    """Returns the jobs, and why lines are left out -> their number. A processor of the trace is a GPU, or a CPU in a cluster
    without GPUs; its users and groups have only numbers and become the cluster's users, in turn."""
    match = _START.search(text)
    began = float(match[1]) if match else 1_700_000_000.0
    largest = max(cluster.groups, key=lambda group: (group.plan.gpus, group.plan.cpus)).plan
    each = largest.gpus or largest.cpus
    members = [(user, team.name) for team in cluster.teams for user in team.users]
    found, left_out = [], Counter[str]()
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith(";"):
            continue
        try:
            row = [int(float(word)) for word in words]
        except ValueError:
            row = []
        if len(row) < _FIELDS - 3 or row[1] < 0:
            left_out["its line is not of the Standard Workload Format"] += 1
            continue
        number, submit, wait, run_s, used, asked, limit_s, user = (row[i] for i in (0, 1, 2, 3, 4, 7, 8, 11))
        processors = max(asked, used)
        if processors <= 0 or (run_s <= 0 and row[10] != _CANCELLED) or not members:
            left_out["it has no processors or ran for no time"] += 1
            continue
        nodes = -(-processors // each)
        name, team = members[max(0, user) % len(members)]
        per_node = -(-processors // nodes)
        start = began + submit + wait if wait >= 0 and run_s > 0 else 0.0
        found.append(
            TraceJob(
                job_id=str(number),
                user=name,
                account=team,
                submit=began + submit,
                start=start,
                end=start + run_s if start else 0,
                run_s=max(1, run_s),
                limit_min=-(-limit_s // 60) if limit_s > 0 else 0,
                nodes=nodes,
                cpus=per_node if not largest.gpus else max(1, largest.cpus * per_node // largest.gpus),
                gpus=per_node if largest.gpus else 0,
                cancelled_at=began + submit + max(0, wait) if run_s <= 0 else 0,
            )
        )
    return found, left_out
