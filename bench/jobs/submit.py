"""Measures submitting through Headway compared with plain sbatch, each over a connection that is already open.

Both are called from Python, alternately, so that neither side pays for the start of a program here:

plain    an SSH connection by the server's library, logged in as the user and kept open; each time a command on it:
         `sbatch --parsable` with the script on its standard input. sshd starts it through the user's shell, as for
         `ssh LOGIN sbatch`.
headway  Client.sbatch of a client that is kept open: HTTP, authentication, the server, its SSH connection, the user's
limits
         and login environment, the real sbatch, and the job's lineage and audit line written to disk before the answer.

Two more are printed for comparison. openssh: the same command through OpenSSH's multiplexed client, which users have
and which starts a program here. bare: sbatch on the server's own connection, started by root directly as the user,
without a shell and without a login's environment or limits. That is the least it can cost, and not a way that users
have."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable

import asyncssh

from bench_cluster import BenchCluster, bench_cluster
from headway.domain.machines.machine import Machine
from headway.providers.registry import open_provider
from headway.schemas.submission.submit_request import SubmitIn
from headway.sdk.client import connect
from headway.store import open_store
from headway.transport.ssh import Connections

RUNS = 60
# pause after each, so that its remaining work (Slurm's bookkeeping, the server's next poll) does not slow the next
PAUSE_S = 0.2
SCRIPT = "#!/bin/bash\n#SBATCH --hold --output=/dev/null\ntrue\n"
ADMIN = "admin"  # the Linux user of the administrator who runs this
Once = Callable[[], Awaitable[object]]


def option(config: str, name: str) -> str:
    """Returns the value of an option in an ssh configuration."""
    return next(line.split()[1] for line in config.splitlines() if line.split()[:1] == [name])


def openssh(at: BenchCluster, config: str) -> Once:
    """Returns a call of `ssh bench sbatch`, over one shared connection."""
    file = at.folder / "ssh_config"
    file.write_text(config)
    shared = ["-o", "ControlMaster=auto", "-o", f"ControlPath={at.folder}/mux", "-o", "ControlPersist=600"]
    argv = ["ssh", "-F", str(file), *shared, "bench", "sbatch", "--parsable"]

    def once() -> None:
        subprocess.run(argv, input=SCRIPT, text=True, capture_output=True, timeout=60, check=True)

    return lambda: asyncio.to_thread(once)


def command(links: Connections, machine: Machine, *argv: str) -> Once:
    """Returns a call of the command over this connection, as root."""
    return lambda: links.remote(machine, argv, timeout_s=60, input=SCRIPT.encode())


async def plain(machine: Machine, user: str, key: str) -> tuple[Once, asyncssh.SSHClientConnection]:
    """Returns a call of sbatch over an open connection of the user's own, without sudo, and the connection."""
    known = asyncssh.import_known_hosts(f"{machine.address} {machine.host_key}\n")
    own = await asyncssh.connect(
        machine.address, machine.port, username=user, client_keys=[key], known_hosts=known, config=None
    )
    return lambda: own.run("sbatch --parsable", input=SCRIPT, check=True, timeout=60), own


def through(at: BenchCluster) -> Once:
    """Returns a call of Client.jobs.sbatch."""
    client = connect(at.state)
    request = SubmitIn(script=SCRIPT, script_name="held.sbatch")
    return lambda: asyncio.to_thread(client.jobs.sbatch, "bench", request)


async def head(at: BenchCluster) -> tuple[Machine, str]:
    """Returns the head, and the key with which the server logs in."""
    machines = await open_provider("local", at.state, ()).list("bench")
    store = await open_store(at.state)
    try:
        key = (await store.secrets.of_cluster("bench"))["bootstrap_key"]
    finally:
        await store.close()
    return next(machine for machine in machines if machine.name == "bench-head"), key


async def measure(at: BenchCluster) -> dict[str, list[float]]:
    """Returns the seconds of each submission by way."""
    config = at.headway("ssh-config", "bench")
    machine, key = await head(at)
    submit, own = await plain(machine, option(config, "User"), option(config, "IdentityFile"))
    async with own, Connections(key) as server:
        as_person = ["setpriv", f"--reuid={ADMIN}", f"--regid={ADMIN}", "--init-groups", "--"]
        works = {
            "plain": submit,
            "headway": through(at),
            "openssh": openssh(at, config),
            "bare": command(server, machine, *as_person, "sbatch", "--parsable"),
        }
        took: dict[str, list[float]] = {name: [] for name in works}
        for work in list(works.values()) * 3:  # warms connections, the login environment and the controller
            await work()
        for _ in range(RUNS):  # alternately, so that other load on this machine affects all
            for name, work in works.items():
                began = time.perf_counter()
                await work()
                took[name].append(time.perf_counter() - began)
                await asyncio.sleep(PAUSE_S)
    return took


def main() -> None:
    with bench_cluster() as at:
        at.headway("image", "build", "debian13", timeout_s=3600)
        at.headway("apply", str(at.spec), "--yes")
        took = asyncio.run(measure(at))
    middle = {name: statistics.median(times) * 1000 for name, times in took.items()}
    print(f"plain: sbatch on an open SSH connection of the person's: {middle['plain']:.0f} ms (median of {RUNS})")
    print(f"headway submit (SDK, open connection):                   {middle['headway']:.0f} ms")
    print(f"ratio: {middle['headway'] / middle['plain']:.2f}")
    print(f"compared with `ssh LOGIN sbatch`, multiplexed: {middle['openssh']:.0f} ms")
    print(f"           bare sbatch, no shell, no login, as root does: {middle['bare']:.0f} ms")


if __name__ == "__main__":
    main()
