"""Makes the MIG instances of this node: before slurmd at each boot, because they are gone after one, and on a drained node
when the cluster file changes."""

from __future__ import annotations

import sys

from agent.config import Config
from agent.gpu.gpu_source_choice import open_mig
from agent.gpu.job_gpus import GPU_OF_PART, JOBS, jobs_on_node
from agent.gpu.mig import MigError, gpu_of_each, make_instances


def make_gpu_parts(config: Config, *, none: bool = False, jobs: str = JOBS) -> None:
    """Makes the instances that the configuration names; `none`: switches MIG off. Exits with a message if that fails, or
    if jobs are on the node and something would have to change."""
    wanted = () if none else config.mig
    if not config.gpus:
        return
    try:
        driver = open_mig(config)
        for line in make_instances(driver, wanted, in_use=bool(jobs_on_node(jobs))):
            print(line, flush=True)
        with open(GPU_OF_PART, "w") as file:
            file.write(",".join(map(str, gpu_of_each(driver.gpus(), wanted))))
    except (MigError, OSError) as error:
        sys.exit(f"headway: the MIG instances are not as the cluster file says: {error}")
