"""Installs NVIDIA's driver on machines that the user owns, before Slurm counts their GPUs. The work on a machine is done by
node/programs/owned_machines/gpu_driver.sh; for a machine in a container, on its host."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping

from headway.cluster.context import ClusterContext
from headway.domain.machines.gpu_driver import GpuDriver
from headway.domain.machines.machine import Machine
from headway.domain.operation_progress import ReportProgress
from headway.domain.slurm.hostlist import compress
from headway.errors import CommandFailed, HeadwayError, Refused, Unreachable
from headway.paths import node_dir
from headway.store import StoreUnavailable
from headway.transport.connect import HostKeyChanged, SudoRefused

INSTALL_S = 3600.0
BOOT_S = 1800.0  # large machines take long to test their memory
_AT_ONCE = 16
_POLL_S = 2.0
_BOOT = ["sh", "-c", "cat /proc/sys/kernel/random/boot_id; cut -d ' ' -f 22 /proc/1/stat"]


async def install_drivers(
    context: ClusterContext, driver: GpuDriver, machines: Mapping[str, Machine], report: ReportProgress
) -> None:
    """Installs the driver on these machines, by their names in the cluster: on one machine first, then on the others.
    Reboots a machine whose kernel holds another driver, so none of them may be in service. Raises Refused naming the
    machines that have no working driver; if the first one has none, the others are not changed."""
    failures: dict[str, HeadwayError] = {}
    limit = asyncio.Semaphore(_AT_ONCE)

    async def install(name: str, machine: Machine) -> None:
        async with limit:
            try:
                await install_driver(context, driver, name, machine, report)
            except StoreUnavailable:
                raise  # the server's database is no part of a machine
            except HeadwayError as error:
                failures[name] = error
                await report(name, error.first_line, level="error", done=True)

    (first, machine), *others = machines.items()
    await install(first, machine)
    if failures and others:
        names = compress([name for name, _ in others])
        raise Refused(f"{failures[first].first_line}; {names} stay as they were", hint=failures[first].hint)
    ended = await asyncio.gather(*(install(name, machine) for name, machine in others), return_exceptions=True)
    for error in ended:  # after all have ended: who tries again must not install twice at the same time
        if isinstance(error, BaseException):
            raise error
    if failures:
        text = "\n".join(f"  {error.first_line}" for error in failures.values())
        raise Refused(
            f"NVIDIA's driver does not work on {compress(list(failures))}:\n{text}",
            hint="correct that or remove the machines from hosts, then apply again",
        )


async def install_driver(
    context: ClusterContext, driver: GpuDriver, name: str, machine: Machine, report: ReportProgress
) -> str:
    """Installs the driver on one machine and reboots it if needed. Returns the driver's version. Raises Refused with what
    is wrong, Unreachable if the machine does not come back."""
    began = time.monotonic()
    await report(name, f"NVIDIA's driver is being installed from {driver.source}")
    repository = driver.repository
    dcgm = "yes" if driver.dcgm else "no"
    argv = ["install", driver.branch, "open" if driver.open_modules else "proprietary", dcgm]
    argv += [repository.url, repository.suite, " ".join(repository.components)] if repository else ["", "", ""]
    key = "".join(f"{line}\n" for line in repository.key) if repository else ""
    state, rest = await _run(context, name, machine, argv, key)
    if state == "reboot":
        await report(name, f"{rest}: the machine is rebooted")
        await _reboot(context, name, machine)
        state, rest = await _run(context, name, machine, ["finish", dcgm], "")
        if state == "reboot":
            raise Refused(
                f"{name}: {rest}, also after a reboot",
                hint="look at /etc/modprobe.d and the kernel's command line: something loads the other driver at boot",
            )
    version, _, count = rest.partition(" ")
    words = f"NVIDIA driver {version} with {count} GPU{'s' * (count != '1')}"
    await report(name, words, done=True, seconds=time.monotonic() - began)
    return version


async def _run(context: ClusterContext, name: str, machine: Machine, argv: list[str], key: str) -> tuple[str, str]:
    """Runs the program and returns the state that it ends in, with its text."""
    program = (node_dir() / "programs" / "owned_machines" / "gpu_driver.sh").read_text()
    # The shell has to read the program from somewhere else than standard input, which is the key.
    command = ["sh", "-c", program, "gpu_driver.sh", *argv]
    try:
        ran = await context.connections.remote(machine, command, timeout_s=INSTALL_S, input=key.encode())
    except CommandFailed as error:
        lines = error.stderr.strip().splitlines()
        raise Refused(
            f"{name} ({machine.address}): {lines[-1] if lines else 'the installation of the driver was killed'}",
            hint="correct that and apply again; or install the driver yourself and leave gpu: {driver: install} out",
        ) from error
    lines = ran.stdout.strip().splitlines()
    state, _, rest = (lines[-1] if lines else "").partition(" ")
    if state not in ("ready", "reboot"):
        raise Refused(f"{name} ({machine.address}): the installation of the driver did not say how it ended")
    return state, rest


async def _reboot(context: ClusterContext, name: str, machine: Machine) -> None:
    """Reboots a machine and waits until it has started again. Raises Unreachable."""
    before = (await context.connections.remote(machine, _BOOT, timeout_s=30)).stdout
    with contextlib.suppress(Unreachable):  # the connection may end before the command's exit code arrives
        ran = await context.connections.remote(machine, ["systemctl", "reboot"], timeout_s=30, check=False)
        if 0 < ran.code < 128:  # 128 or more: the command was killed by the shutdown
            raise Refused(f"{name} does not reboot: {(ran.stderr or ran.stdout).strip()[-200:]}")
    ends = time.monotonic() + BOOT_S
    fault = "it did not restart when asked to"
    while time.monotonic() < ends:
        await asyncio.sleep(_POLL_S)
        await context.connections.drop(machine.name)
        try:
            if (await context.connections.remote(machine, _BOOT, timeout_s=10)).stdout != before:
                return
            fault = "it did not restart when asked to"
        except (HostKeyChanged, SudoRefused):  # another try would fail too, and wrong passwords lock accounts
            raise
        except HeadwayError as error:
            fault = error.first_line
    raise Unreachable(
        f"{name} ({machine.address}) did not come back within {BOOT_S / 60:.0f} minutes: {fault}",
        hint="look at its console; then apply again",
    )
