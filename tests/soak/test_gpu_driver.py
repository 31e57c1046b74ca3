"""`gpu: {driver: install}`: an apply installs NVIDIA's driver on owned machines from a signed repository, then counts their
GPUs. The machines' GPUs are entries on a made-up PCI bus; apt, dpkg, keys, Slurm and reboots are real."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.lab import Lab
from tests.cluster.providers.bare_machines import Bare, run
from tests.soak.driver_repository import GPUS, Repository

pytestmark = pytest.mark.soak
HEAD, ONE, TWO = 10, 11, 12
HARDWARE = f"""
mount -t tmpfs none /sys/bus/pci/devices && mount -t tmpfs none /sys/module
for n in $(seq 0 {GPUS - 1}); do
    device=/sys/bus/pci/devices/0000:0$n:00.0
    mkdir $device
    echo 0x10de >$device/vendor; echo 0x27b8 >$device/device; echo 0x030200 >$device/class
    echo 0 >$device/numa_node; echo 0-1 >$device/local_cpulist
done
"""
HEADERS = 'mkdir -p "/lib/modules/$(uname -r)/build" && touch "/lib/modules/$(uname -r)/build/Makefile"'
OURS = (
    "/etc/apt/sources.list.d/headway-gpu.sources",
    "/etc/apt/keyrings/headway-gpu.asc",
    "/etc/apt/preferences.d/headway-gpu",
)


class GpuMachines:
    """A head and two machines with GPUs, a repository, and their server."""

    def __init__(self, folder: Path) -> None:
        self.bare = Bare(folder / "bare", "debian13")
        self.lab = Lab(folder / "state", name="gpu")
        self.bare.up(HEAD, ONE, TWO)
        for number in (ONE, TWO):
            self.plug_in(number)
        gateway = self.bare.subnet.rsplit(".", 1)[0] + ".1"
        self.repository = Repository(folder / "repository", gateway)
        self.repository.publish("570.124.06", "580.95.05")

    def plug_in(self, number: int) -> None:
        """Puts GPUs on the machine's PCI bus."""
        self.bare.inside(number, "sh", "-ec", HARDWARE)

    def spec(self, branch: str = "580", url: str = "", *, debian: bool = False) -> Path:
        repository = f", repository: {{url: '{url or self.repository.url}', key: {self.repository.key}}}"
        gpu = f"gpu: {{driver: install, branch: '{branch}'{'' if debian else repository}}}\n"
        # No GPU answers on these machines, so each node becomes an incident; act: false keeps it from being rebooted.
        more = f"teams: {{vision: {{users: [ann]}}}}\nhealth: {{act: false}}\n{gpu}"
        return self.bare.spec("gpu", (HEAD, ONE, TWO), more)

    def apply(self, file: Path) -> str:
        done = self.lab.cli("apply", str(file), "--yes", check=False, timeout_s=1800)
        return done.out + done.err

    def ours(self, number: int) -> str:
        return self.bare.inside(number, "ls", *OURS, check=False)

    def loaded(self, number: int) -> str:
        """Returns the version of the driver in the machine's kernel."""
        return self.bare.inside(number, "cat", "/sys/module/nvidia/version").strip()

    def power_on_after_shutdown(self, number: int) -> None:
        """Waits until the machine shuts down and starts it, as a reboot does. A container can't start itself."""
        run("podman", "wait", self.bare.container(number), timeout_s=600)
        self.bare.power_on(number)
        self.plug_in(number)

    def close(self) -> None:
        self.lab.cli("down", "gpu", "--yes", "--delete-data", check=False, timeout_s=300)
        self.lab.cli("server", "stop", check=False)
        self.repository.close()
        self.bare.down()


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuMachines]:
    if os.geteuid() != 0 or shutil.which("podman") is None:
        pytest.fail("this test makes real machines: run it as root after `make setup`")
    made = GpuMachines(tmp_path_factory.mktemp("gpu"))
    try:
        yield made
    finally:
        made.close()


def test_plan_says_what_is_installed_and_changes_nothing(machines: GpuMachines) -> None:
    machines.lab.cli("server", "start")
    done = machines.lab.cli("plan", str(machines.spec()), check=False)
    words = f"gpu-1-[1-2]: no NVIDIA driver becomes branch 580, from {machines.repository.url}"
    assert words in done.out + done.err
    assert machines.ours(ONE) == ""


@pytest.mark.parametrize(
    ("branch", "port", "why"),
    [
        ("580", ":9", "could not be read"),
        ("999", "", "has driver 580.95.05, not branch 999"),
        ("580", "", "there are no headers of the running kernel"),
    ],
)
def test_first_machine_fails_with_one_sentence_and_keeps_nothing(
    machines: GpuMachines, branch: str, port: str, why: str
) -> None:
    url = machines.repository.url.rpartition(":")[0] + port if port else ""
    said = machines.apply(machines.spec(branch, url))
    assert why in said
    assert "gpu-1-2 stay as they were" in said
    assert machines.ours(ONE) == machines.ours(TWO) == ""


def test_debian_gets_its_non_free_packages(machines: GpuMachines) -> None:
    """The packages are found; without headers of the running kernel they are not installed."""
    said = machines.apply(machines.spec("550", debian=True))
    assert "there are no headers of the running kernel" in said
    assert "the distribution has driver 550" in machines.apply(machines.spec("580", debian=True))
    assert machines.ours(ONE) == ""


def test_apply_installs_the_driver_and_slurm_gets_the_gpus(machines: GpuMachines) -> None:
    lab, bare = machines.lab, machines.bare
    for number in (ONE, TWO):
        bare.inside(number, "sh", "-c", HEADERS)
    said = machines.apply(machines.spec())
    assert "NVIDIA driver 580.95.05 with 2 GPUs" in said
    assert "gpu is ready" in said
    assert lab.head("sinfo", "-h", "-N", "-o", "%G").out.split() == ["gpu:l4:2"] * 2
    assert bare.inside(ONE, "systemctl", "is-active", "nvidia-persistenced").strip() == "active"
    assert "nvidia-driver-cuda" in bare.inside(ONE, "apt-mark", "showhold").split()
    again = lab.cli("apply", str(machines.spec()), "--yes").out
    assert "nothing to change" in again


def test_another_branch_waits_for_a_roll_which_stops_at_a_node_that_fails(machines: GpuMachines) -> None:
    """The stand-in's libcuda is empty, so the node tests that follow the driver fail."""
    lab, file = machines.lab, machines.spec("570")
    said = machines.apply(file)
    assert "gpu-1-[1-2]: NVIDIA driver 580.95.05 becomes branch 570" in said
    assert "headway roll gpu replaces it node by node" in said
    assert machines.loaded(ONE) == machines.loaded(TWO) == "580.95.05"
    done = lab.cli("roll", "gpu", "--yes", check=False, timeout_s=900)
    assert "NVIDIA driver 570.124.06 with 2 GPUs" in done.out
    assert "gpu-1-1 stays drained, no other node is changed" in done.out + done.err
    assert (machines.loaded(ONE), machines.loaded(TWO)) == ("570.124.06", "580.95.05")


def test_driver_in_use_is_replaced_by_a_reboot(machines: GpuMachines) -> None:
    lab, bare = machines.lab, machines.bare
    machines.apply(machines.spec("580"))
    bare.inside(ONE, "touch", "/run/held")
    with ThreadPoolExecutor(1) as pool:
        back = pool.submit(machines.power_on_after_shutdown, ONE)
        done = lab.cli("roll", "gpu", "--yes", check=False, timeout_s=900)
        back.result()
    assert "the kernel holds driver 570.124.06: the machine is rebooted" in done.out
    assert "NVIDIA driver 580.95.05 with 2 GPUs" in done.out
    assert machines.loaded(ONE) == "580.95.05"


def test_down_removes_the_repository_and_keeps_the_driver(machines: GpuMachines) -> None:
    machines.lab.cli("down", "gpu", "--yes", "--delete-data", timeout_s=300)
    assert machines.ours(ONE) == ""
    assert machines.bare.inside(ONE, "apt-mark", "showhold") == ""
    assert "580.95.05" in machines.bare.inside(ONE, "dpkg-query", "-W", "nvidia-driver-cuda")
