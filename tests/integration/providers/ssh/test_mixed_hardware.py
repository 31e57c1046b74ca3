"""An owned machine whose hardware differs from the plan is compared with what the survey found on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import config
from agent.checks import gpu_checks, runner
from agent.gpu import gpu_metrics, gpu_source
from headway.domain.cluster import Host
from headway.domain.incident import IncidentState
from headway.domain.machines.survey import DetectedGpu, DetectedHardware, DetectedNic
from headway.providers.ssh.machine_records import ClaimedHost
from headway.providers.ssh.provider import SshProvider
from headway.render.system import agent_config
from tests.support.clusters.incident_cluster import NODE, Ward, symptom
from tests.support.clusters.render_cases import H100, group, own_gpu_cluster, own_site

A100S = tuple(DetectedGpu("NVIDIA A100-SXM4-80GB", 81920, f"0000:{n}b:00.0", (), n) for n in range(4))
H100S = tuple(DetectedGpu(H100.gpu_product, 81559, f"0000:{n}b:00.0", (), n) for n in range(8))
DRIVERLESS = tuple(replace(gpu, product="", memory_mib=0, minor=-1) for gpu in H100S)
FULL = DetectedHardware(128, 2, 64, 1, 2_040_000, 900_000, H100S)
PORTS = (DetectedNic("mlx5_0", "InfiniBand", 400, True), DetectedNic("mlx5_1", "InfiniBand", 10, False))


def config_of(folder: Path, name: str, other: DetectedHardware, **plan: Any) -> Any:
    """What the agent of this node goes by, in a cluster of whose two nodes the second one is another machine."""
    cluster = own_gpu_cluster()
    first, second = cluster.slot_names
    expects = {"nvlinks": 18.0, "burn_tflops": 500.0}
    cluster = replace(cluster, groups=(group(replace(H100, expects=expects, **plan), cluster.slot_names),))
    place = folder / "agent.json"
    place.write_text(
        agent_config.config(cluster, own_site(cluster, found={first: FULL, second: other}), cluster.groups[0])
    )
    return config.load_config(str(place), name)


def gpus(count: int, links: int) -> list[Any]:
    return [gpu_source.Gpu(n, f"u{n}", "x", f"b{n}", {gpu_metrics.NVLINKS: links}) for n in range(count)]


def test_node_checks_use_the_hardware_found_on_each_node(tmp_path: Path) -> None:
    a100 = replace(FULL, gpus=A100S, memory_mib=500_000, nics=PORTS)
    sound = config_of(tmp_path, "lab-1-2", a100)
    assert (sound.gpus, sound.gpu_type, sound.memory_mib, sound.fabric) == (4, "a100", 500_000, {"mlx5_0"})
    now = runner.MachineReading(sound, gpus=gpus(4, 12), gpus_at=1.0)
    assert gpu_checks.gpu_count(now) is None
    assert gpu_checks.gpu_nvlink(now) is None, "an A100 has no 18 links"
    other = config_of(tmp_path, "lab-1-1", a100)
    assert (other.gpus, other.memory_mib, other.expects["burn_tflops"]) == (8, 2_040_000, 500.0)
    now = runner.MachineReading(other, gpus=gpus(4, 12), gpus_at=1.0)
    assert "4 GPUs found, 8 expected" in gpu_checks.gpu_count(now).reason
    assert "12 of 18 NVLinks" in gpu_checks.gpu_nvlink(now).reason


def test_node_without_a_gpu_driver_expects_no_gpus(tmp_path: Path) -> None:
    bare = replace(FULL, gpus=DRIVERLESS)
    assert config_of(tmp_path, "lab-1-2", bare).gpus == 0
    assert config_of(tmp_path, "lab-1-1", bare).gpus == 8


@pytest.mark.parametrize("product", ["NVIDIA H100 PCIe", "NVIDIA H100 NVL"])
def test_plan_performance_figures_apply_only_to_the_same_gpu_product(tmp_path: Path, product: str) -> None:
    pcie = replace(FULL, gpus=tuple(replace(gpu, product=product) for gpu in H100S))
    found = config_of(tmp_path, "lab-1-2", pcie)
    assert (found.gpu_type, found.expects) == ("h100", {})
    assert config_of(tmp_path, "lab-1-2", pcie, gpu_product="").expects != {}, "a plan that names only the type"


async def test_repaired_node_must_show_the_gpus_it_had_before(lab: Ward) -> None:
    lab.world.machine = replace(lab.world.machine, found=replace(FULL, gpus=A100S))  # type: ignore[type-var]
    lab.world.gpus, lab.world.gpus_after_reset = 4, 4
    await lab.responder.handle_symptom(symptom(46), [])
    assert (await lab.settle()).state is IncidentState.RETURNED


async def test_ssh_provider_lists_the_hardware_found_on_a_machine(tmp_path: Path) -> None:
    host = Host(NODE, "127.0.0.1", "root", 22, "", "", None, "")
    provider = SshProvider(tmp_path, (host,))
    provider._kept.pin_host_key("lab", NODE, ClaimedHost(host, "ssh-ed25519 AAAA"))
    await provider.note("lab", {NODE: FULL}, ())
    (machine,) = await provider.list("lab")
    assert machine.found == FULL
