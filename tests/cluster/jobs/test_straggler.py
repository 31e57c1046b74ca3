"""A training of four nodes in which one rank sleeps in its data loader: its owner reads which rank it is, and on which node; the
incident counts towards a flaky node."""

from __future__ import annotations

import re

from tests.cluster.lab import Lab

from headway.schemas.nodes.incidents import IncidentOut

USER, SLOW = "victor", 2
HOME = f"/home/{USER}"
AFTER_S = 20  # without report and output; a job sets its own time
TRAIN = f"""\
import time

import torch
import torch.distributed as dist


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        if index == 3 and dist.get_rank() == {SLOW}:
            read_from_storage()
        return torch.tensor([float(index)])


def read_from_storage():
    time.sleep(3600)


def main():
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    for batch in torch.utils.data.DataLoader(Numbers()):
        model(batch).sum().backward()


main()
"""
JOB = f"""\
#!/bin/bash
#SBATCH --nodes=4 --gpus-per-node=1 --mem=2G --time=30 --comment=stall={AFTER_S} --output={HOME}/straggler.out
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)) WORLD_SIZE=4 LOCAL_RANK=0
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
srun bash -c 'exec env RANK=$SLURM_PROCID python3 {HOME}/straggler.py'
"""


def test_rank_that_sleeps_in_its_data_loader_is_named_and_counts_against_its_node(lab: Lab) -> None:
    lab.head("tee", f"{HOME}/straggler.py", user=USER, stdin=TRAIN)
    job = lab.sbatch(USER, script=JOB)
    lab.wait_job(job, "RUNNING")
    node = lab.head("scontrol", "show", "hostnames", lab.field(job, "NodeList")).out.split()[SLOW]
    before = lab.client.nodes.history(lab.name, node).score

    def told() -> list[IncidentOut]:
        found = lab.client.incidents.list(lab.name)
        return [one for one in found if f"job {job} " in one.what]

    (incident,) = lab.wait(told, "an incident of the training")
    where = (
        rf"rank {SLOW} is in read_from_storage \(straggler.py:\d+\) on {node}, and 3 ranks wait in \w+ \(.*\.py:\d+\)"
    )
    assert (incident.node, incident.what) == (node, f"job {job} waits for rank {SLOW}")
    (step,) = [one.text for one in lab.client.incidents.get(lab.name, incident.number).steps if "stalls" in one.text]
    assert re.search(rf"job {job} stalls: .*{where}", step), step
    assert step.endswith("the node stays in service, and this counts 1 against it")
    assert lab.client.nodes.history(lab.name, node).score == before + 1
    message = f"headway: no report and no output for {AFTER_S} s, and its GPUs did nothing; {where}"
    lab.wait(lambda: re.search(message, lab.output(f"{HOME}/straggler.out")), "the message in the job's output")
    assert lab.state_of(job) == "RUNNING", "by default the owner is told and nothing else happens"
    lab.head("scancel", str(job))
    assert f"{node}: score {before + 1} of " in lab.cli("node", "history", node).out
