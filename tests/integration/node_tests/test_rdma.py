"""RDMA ports are measured between two nodes by ib_write_bw where it is installed; a missing program fails no node."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.config import Config
from agent.node_tests import command, nccl, rdma
from agent.node_tests.rdma import Port
from agent.node_tests.results import NodeTestFailed, NodeTestSkipped
from tests.support.machines.stand_in_programs import StandInPrograms, stand_in_programs

PEERS = ["127.0.0.1", "127.0.0.2"]
PORTS = {name: Port(name, 400, "3" if name == "mlx5_1:1" else "") for name in ("mlx5_0:1", "mlx5_1:1")}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInPrograms:
    monkeypatch.setattr(rdma, "_MEET_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as free:  # another test of this machine may use the usual port
        monkeypatch.setattr(nccl, "PORT", free.getsockname()[1])
    # Both nodes are this machine: the second one's address can't be told from the first one's.
    monkeypatch.setattr(nccl, "_accept", _accept_any(nccl._accept))
    return stand_in_programs(tmp_path / "bin", monkeypatch)


def _accept_any(accept: Callable[..., object]) -> Callable[..., object]:
    return lambda peers, stack: accept([peers[0], peers[0]], stack)


def options(device: str, *more: str) -> list[str]:
    words = f"--ib-dev {device} --ib-port 1 --port {rdma.PORT} --qp 4 --CPU-freq".split()
    return [*words, *more, "--duration", "60", "--report_gbits", "--output=bandwidth"]


def both(ports: list[dict[str, Port]]) -> list[object]:
    """Runs the test on the two nodes, and returns their results or the messages of their exceptions."""

    def run(rank: int) -> object:
        try:
            return rdma.run_rdma_test(PEERS, rank, 60.0, ports[rank])
        except (NodeTestFailed, NodeTestSkipped, rdma.NoRdmaPorts) as error:
            return f"{type(error).__name__}: {error}"

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, (0, 1)))


def test_each_port_is_measured_with_its_own_address(programs: StandInPrograms) -> None:
    for device, figure, more in (("mlx5_0", "391.2", []), ("mlx5_1", "388.75", ["--gid-index", "3"])):
        programs.accept("ib_write_bw", *options(device, *more), seconds=600)  # the server waits for its client
        programs.accept("ib_write_bw", *options(device, *more), PEERS[0], out=f"{figure}00\n")
    assert both([PORTS, PORTS]) == [(388.75, 2, ""), (388.75, 2, "")]
    # A server is ended when its client is done, on a busy machine before it recorded its start.
    assert sum(PEERS[0] in call for call in programs.called) == 2


def test_port_without_a_figure_is_skipped_and_named(programs: StandInPrograms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdma, "_MEET_S", 3.0)  # the server ends before its client gives up, also on a busy machine
    programs.accept("ib_write_bw", *options("mlx5_0"), seconds=600)
    programs.accept("ib_write_bw", *options("mlx5_0"), PEERS[0], out="391.2\n")
    programs.accept("ib_write_bw", *options("mlx5_1", "--gid-index", "3"), err="Couldn't allocate MR\n", code=1)
    programs.accept(
        "ib_write_bw", *options("mlx5_1", "--gid-index", "3"), PEERS[0], err="Couldn't connect to it\n", code=1
    )
    assert both([PORTS, PORTS]) == [
        (391.2, 1, "skipped mlx5_1:1: Couldn't allocate MR"),
        (391.2, 1, "skipped mlx5_1:1: Couldn't connect to it"),
    ]


def test_program_that_can_measure_no_port_is_skipped(programs: StandInPrograms) -> None:
    programs.accept("ib_write_bw", "--version")
    found = both([PORTS, PORTS])
    assert all(str(one).startswith("NodeTestSkipped: ib_write_bw can't measure any port; mlx5_0:1: ") for one in found)
    assert "refused" in str(found[1])


def test_missing_program_is_skipped_on_both_nodes(programs: StandInPrograms) -> None:
    assert both([PORTS, PORTS]) == ["NodeTestSkipped: ib_write_bw is not installed (package perftest)"] * 2


def test_nodes_without_a_common_port_are_skipped(programs: StandInPrograms) -> None:
    programs.accept("ib_write_bw", "--version")
    other = {"mlx5_9:1": Port("mlx5_9:1", 400)}
    assert both([PORTS, other]) == ["NodeTestSkipped: no active RDMA port has the same name on both nodes"] * 2


def test_node_without_ports_meets_the_other_one_at_once(programs: StandInPrograms) -> None:
    for ports in ([PORTS, {}], [{}, PORTS]):
        assert both(ports) == ["NodeTestSkipped: no active RDMA port has the same name on both nodes"] * 2
    assert both([{}, {}]) == ["NoRdmaPorts: "] * 2


def test_node_without_ports_passes_when_the_other_one_does_not_come(
    programs: StandInPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl, "MEET_S", 0.2)
    with pytest.raises(NodeTestSkipped, match="this node has no active RDMA port"):
        rdma.run_rdma_test(PEERS, 0, 2.0, {})
    with pytest.raises(NodeTestFailed, match="the nodes of the test did not meet"):
        rdma.run_rdma_test(PEERS, 0, 2.0, PORTS)


def test_command_runs_on_a_node_without_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "active_ports", dict)
    monkeypatch.setattr(command, "gives_way_to_jobs", contextlib.nullcontext)
    arguments = argparse.Namespace(name="rdma", peers=PEERS, rank=0, seconds=2.0)
    monkeypatch.setattr(command, "run_rdma_test", lambda *_: (390.0, 7, "skipped mlx5_7:1: no route"))
    (result,) = command.run_tests(Config(head="h"), arguments)
    line = "rdma       ok  390 Gbit/s by RDMA, the slowest of 7 ports  skipped mlx5_7:1: no route"
    assert result.line() == line

    def none(*_: object) -> object:
        raise rdma.NoRdmaPorts

    monkeypatch.setattr(command, "run_rdma_test", none)
    assert list(command.run_tests(Config(head="h"), arguments)) == []


def test_port_much_slower_than_those_of_its_speed_is_named() -> None:
    ports = {f"mlx5_{n}:1": Port(f"mlx5_{n}:1", 100 if n == 4 else 400) for n in range(5)}
    figures = {"mlx5_0:1": 390.0, "mlx5_1:1": 180.0, "mlx5_2:1": 388.0, "mlx5_3:1": 391.0, "mlx5_4:1": 98.0}
    with pytest.raises(NodeTestFailed, match=r"^mlx5_1:1 reaches 180 Gbit/s, the ports of its speed 389 Gbit/s$"):
        rdma.judge_bandwidth(figures, {}, ports)
    assert rdma.judge_bandwidth(figures | {"mlx5_1:1": 300.0}, {}, ports) == (98.0, 5, "")


def test_active_ports_of_perftest_and_their_routable_address(tmp_path: Path) -> None:
    base = tmp_path / "class/infiniband"
    found = (
        ("mlx5_0", "4: ACTIVE", "mlx5_core", "Ethernet"),
        ("mlx5_1", "1: DOWN", "mlx5_core", "InfiniBand"),
        ("mlx5_2", "4: ACTIVE", "mlx5_core", "InfiniBand"),
        ("mlx5_3", "4: ACTIVE", "mlx5_core", "Ethernet"),  # without an address
        ("rdmap0", "4: ACTIVE", "efa", "Unspecified"),
    )
    for device, state, driver, layer in found:
        port = base / device / "ports/1"
        (port / "gids").mkdir(parents=True)
        (port / "gid_attrs/types").mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "link_layer").write_text(f"{layer}\n")
        (port / "rate").write_text("200 Gb/sec (2X NDR)\n")
        (tmp_path / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (base / device / "device").mkdir()
        (base / device / "device/driver").symlink_to(tmp_path / "drivers" / driver)
    gids = base / "mlx5_0/ports/1"
    for number, kind, gid in (
        ("0", "IB/RoCE v1", "fe80::1"),
        ("3", "RoCE v2", "0000:0000:0000:0000:0000:ffff:0a00:0001"),
    ):
        (gids / f"gids/{number}").write_text(f"{gid}\n")
        (gids / f"gid_attrs/types/{number}").write_text(f"{kind}\n")
    assert rdma.active_ports(str(tmp_path)) == {
        "mlx5_0:1": Port("mlx5_0:1", 200, "3"),
        "mlx5_2:1": Port("mlx5_2:1", 200, ""),
    }
