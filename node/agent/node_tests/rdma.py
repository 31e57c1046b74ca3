"""The bandwidth of each RDMA port between two nodes, by ib_write_bw of the package perftest.

The two nodes agree over the connection of the all-reduce (nccl.py). For each port that both have, the first node runs the
server and the second one the client, one port after the other."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.node_tests.nccl import Control, connected
from agent.node_tests.network_report import list_folder, read_text, report_network
from agent.node_tests.programs import Ended, end_program, find_program, run_program, start_program
from agent.node_tests.results import NodeTestFailed, NodeTestSkipped

PROGRAM, PACKAGE = "ib_write_bw", "perftest"
PORT = 29656  # TCP, where the two programs exchange the addresses of their ports
_PAIRS = 4  # queue pairs: one does not fill the fastest ports
_LEAST_SHARE = 0.7  # of the median of the ports with the same speed
_FEW = 3  # ports whose median says something, at least
_MEET_S = 10.0  # seconds in which the client finds the server
_EFA = "efa"  # the driver of AWS's adapters, which perftest measures in another way


class NoRdmaPorts(Exception):
    """Neither node has an active RDMA port: there is nothing to measure."""


@dataclass(frozen=True)
class Port:
    """An active RDMA port. `gid`: the number of its RoCE v2 address; "" for InfiniBand."""

    name: str  # "mlx5_0:1"
    gbit_s: int
    gid: str = ""


def active_ports(sys: str = "/sys") -> dict[str, Port]:
    """Returns the active RDMA ports that perftest can measure, by name. An Ethernet port without a RoCE v2 address over
    IPv4 is left out: it reaches no other node."""
    found = {}
    for row in report_network(sys)["rdma_ports"]:
        device = f"{sys}/class/infiniband/{row['device']}"
        port = f"{device}/ports/{row['port']}"
        if not row["active"] or os.path.basename(os.path.realpath(f"{device}/device/driver")) == _EFA:
            continue
        address = _roce_address(port)
        if address or read_text(f"{port}/link_layer") != "Ethernet":
            name = f"{row['device']}:{row['port']}"
            found[name] = Port(name, row["gbit_s"], address)
    return found


def _roce_address(port: str) -> str:
    """Returns the number of the port's RoCE v2 address over IPv4, which crosses routers; "" without one."""
    for number in sorted(list_folder(f"{port}/gids"), key=lambda name: (len(name), name)):
        if read_text(f"{port}/gid_attrs/types/{number}") == "RoCE v2" and ":0000:ffff:" in read_text(
            f"{port}/gids/{number}"
        ):
            return number
    return ""


def run_rdma_test(peers: Sequence[str], rank: int, seconds: float, ports: Mapping[str, Port]) -> tuple[float, int, str]:
    """Returns the lowest figure in Gbit/s of the ports `ports` (as of active_ports), the number of figures, and the ports
    without a figure with their reasons ("" if none). `peers`: the addresses of the two nodes; `rank`: this one's place. A
    node without ports takes part too, because the other one waits for it. Raises NodeTestFailed for a port that is much
    slower than the others of its speed, NodeTestSkipped where no port can be measured, and NoRdmaPorts."""
    if len(peers) != 2:
        raise NodeTestSkipped("RDMA ports are measured between two nodes")
    with contextlib.ExitStack() as stack:
        try:
            control = stack.enter_context(connected(peers, rank))
        except NodeTestFailed:
            if ports:
                raise
            raise NodeTestSkipped("this node has no active RDMA port, and the other one did not answer") from None
        try:
            program, missing = find_program(PROGRAM, PACKAGE), ""
        except NodeTestSkipped as skipped:
            program, missing = "", str(skipped)
        answers = control.gather({"ports": list(ports), "missing": missing})
        if not any(answer["ports"] for answer in answers):
            raise NoRdmaPorts
        common = sorted(set(answers[0]["ports"]) & set(answers[1]["ports"]))
        if not common:
            raise NodeTestSkipped("no active RDMA port has the same name on both nodes")
        for answer in answers:
            if answer["missing"]:
                raise NodeTestSkipped(answer["missing"])
        figures, errors = {}, {}
        for port in common:
            found = _measure(control, [program, *_options(ports[port], seconds)], peers[0], rank, seconds)
            if found["error"]:
                errors[port] = str(found["error"])
            else:
                figures[port] = float(found["gbit_s"])
    return judge_bandwidth(figures, errors, ports)


def judge_bandwidth(
    figures: Mapping[str, float], errors: Mapping[str, str], ports: Mapping[str, Port]
) -> tuple[float, int, str]:
    """Returns what run_rdma_test returns, and raises as it does. An error fails no node: a port may be on a network that
    does not reach the other node."""
    if not figures:
        port, why = min(errors.items())
        raise NodeTestSkipped(f"{PROGRAM} can't measure any port; {port}: {why}")
    for port, figure in sorted(figures.items(), key=lambda item: item[1]):
        equal = [figures[other] for other in figures if ports[other].gbit_s == ports[port].gbit_s]
        usual = statistics.median(equal)
        if len(equal) >= _FEW and figure < _LEAST_SHARE * usual:
            raise NodeTestFailed(f"{port} reaches {figure:.4g} Gbit/s, the ports of its speed {usual:.4g} Gbit/s")
    skipped = "; ".join(f"{port}: {why}" for port, why in sorted(errors.items()))
    return min(figures.values()), len(figures), f"skipped {skipped}" if skipped else ""


def _options(port: Port, seconds: float) -> list[str]:
    """Returns the options of a port. `--output=bandwidth` prints the figure and nothing else."""
    device, _, number = port.name.partition(":")
    words = ["--ib-dev", device, "--ib-port", number, "--port", str(PORT), "--qp", str(_PAIRS), "--CPU-freq"]
    words += ["--gid-index", port.gid] if port.gid else []
    return [*words, "--duration", str(max(1, round(seconds))), "--report_gbits", "--output=bandwidth"]


def _measure(control: Control, argv: Sequence[str], server: str, rank: int, seconds: float) -> dict[str, Any]:
    """Returns {"gbit_s": figure, "error": text} of one port, on both nodes."""
    limit_s = seconds + 2 * _MEET_S
    if rank:
        control.gather("")  # the server was started
        return dict(control.gather(_client([*argv, server], limit_s))[1])
    process = start_program(argv)
    try:
        control.gather("")
        found = dict(control.gather("")[1])
        if found["error"] and process.poll() is not None:  # the reason is on this node
            out, err = process.communicate()
            found["error"] = Ended(process.returncode, out, err).last_line
        return found
    finally:
        end_program(process)


def _client(argv: Sequence[str], limit_s: float) -> dict[str, Any]:
    """Runs the client, again while the server does not listen yet."""
    ends = time.monotonic() + _MEET_S
    while True:
        try:
            ended = run_program(argv, limit_s)
        except NodeTestSkipped as late:
            return {"gbit_s": 0.0, "error": str(late)}
        figure = _figure(ended.out)
        if ended.code == 0 and figure:
            return {"gbit_s": figure, "error": ""}
        if time.monotonic() > ends or "connect" not in (ended.out + ended.err).lower():
            return {"gbit_s": 0.0, "error": ended.last_line}
        time.sleep(0.2)


def _figure(text: str) -> float:
    """Returns the figure in the output; 0 without one."""
    for line in reversed(text.splitlines()):
        try:
            return float(line)
        except ValueError:
            continue
    return 0.0
