"""A real libnccl, of the wheel that PyTorch for CUDA 13 installs, answers the calls of the all-reduce test. No GPU is needed: the
calls that use one end with NCCL's own error."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from agent.node_tests.nccl import Nccl
from agent.node_tests.results import NodeTestFailed

pytestmark = pytest.mark.soak
OLDEST = 21800  # 2.18, of CUDA 12.1


class NoGpu:
    """Stands in for a CUDA device: NCCL finds no driver on this machine."""

    stream = ctypes.c_void_p()

    def activate(self) -> None:
        pass


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("nccl")
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*fetch, "--dest", str(folder), "nvidia-nccl-cu13"], check=True, timeout=1200)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        extracted = Path(archive.extract("nvidia/nccl/lib/libnccl.so.2", folder))
    wheel.unlink()
    yield extracted
    extracted.unlink()  # 300 MB


def test_version_is_read_and_each_group_gets_an_id_of_its_own(library: Path) -> None:
    nccl, version = Nccl(str(library)), ctypes.c_int()
    nccl._call("ncclGetVersion", ctypes.byref(version))
    assert version.value >= OLDEST
    ids = [nccl.unique_id() for _ in range(2)]
    assert [len(one) for one in ids] == [128, 128]
    assert ids[0] != ids[1]


def test_error_is_nccls_and_the_group_is_ended(library: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver")
    nccl = Nccl(str(library))
    for _ in range(2):  # a group that stayed open would let the second call succeed: its work would never be done
        with (
            pytest.raises(NodeTestFailed, match=r"^nccl\w+: .*(cuda|system) error"),
            nccl.communicators(cast(Any, [NoGpu()]), nccl.unique_id(), 1, 0),
        ):
            pass
