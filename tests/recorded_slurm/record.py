"""Records what a real Slurm answers, for the tests in tests/unit/slurm/.

    python -m tests.recorded_slurm.record --version 24.11 --address 10.87.3.10 --key KEYFILE --host-key "ssh-ed25519 AAAA..." \
        --jwt-key KEYFILE

The cluster needs two idle nodes named lab-1-1 and lab-1-2 with eight GPUs each, teams vision (alice) and speech (carol),
and nothing running. Everything is recorded as it came, apart from the list of cores of each job (hundreds of lines that
no test reads) and the kernel's name, which are left out. Accounts are recorded by record_accounts.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

from headway.domain.machines.machine import Machine, MachineState
from headway.domain.slurm.nodes_and_jobs import SPARES
from headway.errors import HeadwayError
from headway.jobs.submission.submit import run_sbatch
from headway.schemas.submission.submit_request import SubmitIn
from headway.slurm import node_commands, node_reservations
from headway.slurm.accounting import sacct_jobs, sacct_usage
from headway.slurm.adapters import adapter_for
from headway.slurm.reader import SlurmReader
from headway.slurm.rest import SlurmRestClient, SlurmToken
from headway.transport.ssh import Connections

HERE = Path(__file__).parent
_SHORT = {
    "sockets": lambda value: type(value)() if isinstance(value, list | dict) else value,
    "operating_system": lambda _: "Linux",
}
SLEEP = "#!/bin/bash\nsleep 600\n"


def slim(value: Any) -> Any:
    """Leaves out what differs between machines or is as long as the machine is wide."""
    if isinstance(value, dict):
        return {k: _SHORT[k](v) if k in _SHORT else slim(v) for k, v in value.items()}
    return [slim(item) for item in value] if isinstance(value, list) else value


async def record(links: Connections, head: Machine, jwt_key: bytes, version: str) -> None:
    folder = HERE / version
    folder.mkdir(exist_ok=True)
    rest = SlurmRestClient(links, head, SlurmToken(jwt_key))
    known = adapter_for(version)

    def keep(name: str, text: str) -> None:
        (folder / name).write_text(text)
        print(f"{version}/{name}: {len(text)} bytes")  # noqa: T201

    async def keep_rest(name: str, path: str, params: Any = None) -> None:
        try:
            body = await rest.get(path, params)
        except HeadwayError as error:
            body = {"raised": type(error).__name__, "message": error.message}
        keep(f"{name}.json", json.dumps(slim(body), indent=1, sort_keys=True) + "\n")

    async def keep_command(name: str, argv: list[str]) -> str:
        ran = await links.remote(head, argv, timeout_s=30, check=False)
        keep(f"{name}.txt", ran.stdout)
        return ran.stdout

    async def start(user: str, *args: str, script: str = SLEEP, name: str = "train.sbatch") -> int:
        return (await run_sbatch(links, head, SubmitIn(args=list(args), script=script, script_name=name), user)).job_id

    quick = await start("alice", "-t1", script="#!/bin/bash\nexit 3\n", name="fails.sbatch")
    running = await start("alice", "-N2", "--gres=gpu:3", "-t30", "-o", "logs/%x-%j.out", "-e", "logs/%x-%j.err")
    await start("alice", "--array=1-2", "--gres=gpu:1", "-t30")
    await start("carol", "-N2", "--gres=gpu:8", "-t30", name="waits.sbatch")
    await running_now(SlurmReader(links, head, jwt_key, version), running)
    await start("carol", "--array=1-1000%4", "--gres=gpu:8", "--exclusive", "-t30", name="sweep.sbatch")
    await node_reservations.set_reserved_nodes(links, head, ["lab-1-2"])
    await node_commands.drain_node(links, head, "lab-1-1", "checked by hand")
    await settled(SlurmReader(links, head, jwt_key, version), running, quick)
    await keep_rest("nodes", known.nodes)
    await keep_rest("jobs_plain", known.jobs, known.plain)
    await keep_rest("jobs_detailed", known.jobs, known.detailed)
    await keep_rest("job", known.job.format(id=running), known.detailed)
    await keep_rest("job_unknown", known.job.format(id=4711), known.detailed)
    await keep_rest("reservations", known.reservations)
    await keep_rest("ping", known.ping)
    await keep_command("reservation", ["scontrol", "--oneliner", "show", "reservation", SPARES])
    await node_reservations.set_reserved_nodes(links, head, [])
    await node_commands.resume_node(links, head, "lab-1-1")
    for user in ("alice", "carol"):
        await links.remote(head, ["scancel", f"--user={user}"], timeout_s=30)
    await accounted(links, head, sacct_jobs.sacct_argv(running, version), "train.sbatch", "CANCELLED")
    await keep_command("usage_runs", sacct_usage.runs_argv(int(time.time()) - 3600, int(time.time())))
    await keep_command("usage_events", sacct_usage.node_events_argv(int(time.time()) - 3600))
    ids = ",".join(str(job) for job in (quick, running, running + 1))
    await keep_command("sacct", [*sacct_jobs.sacct_argv(running, version)[:-1], ids])
    await rest.close()


async def running_now(reader: SlurmReader, job: int) -> None:
    async with asyncio.timeout(60):
        while (await reader.job(job)).state != "RUNNING":
            await asyncio.sleep(0.5)
    await reader.close()


async def accounted(links: Connections, head: Machine, argv: list[str], *words: str) -> None:
    """Waits until the output of `argv` contains all words, because slurmctld sends records to the database late and
    in parts."""
    async with asyncio.timeout(60):
        while True:
            said = (await links.remote(head, argv, timeout_s=30)).stdout
            if all(word in said for word in words):
                return
            await asyncio.sleep(0.5)


async def settled(reader: SlurmReader, running: int, ended: int) -> None:
    """Waits until the first job runs, the second has failed, and the nodes show the reservation, which slurmctld
    reports later."""
    async with asyncio.timeout(60):
        while (
            (await reader.job(running)).state != "RUNNING"
            or (await reader.job(ended)).state != "FAILED"
            or not any(node.reservation for node in await reader.nodes())
        ):
            await asyncio.sleep(0.5)
    await reader.close()


async def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("version", "address", "key", "host-key", "jwt-key"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    head = Machine("lab-head", "lab", arguments.address, MachineState.RUNNING, arguments.host_key)
    async with Connections(Path(arguments.key).read_text()) as links:
        await record(links, head, Path(arguments.jwt_key).read_bytes(), arguments.version)


if __name__ == "__main__":
    asyncio.run(main())
