"""The node image's nvidia-smi prints the simulated GPUs."""

from __future__ import annotations

import errno
import importlib.machinery
import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[4] / "node" / "image" / "rootfs" / "usr" / "bin" / "nvidia-smi"

Smi = Callable[..., tuple[int, str]]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool with 8 GPUs of which the job may open 2 and 5; opening answers as the kernel does."""
    loader = importlib.machinery.SourceFileLoader("nvidia_smi", str(SCRIPT))
    spec = importlib.util.spec_from_loader("nvidia_smi", loader)
    assert spec is not None
    loaded = importlib.util.module_from_spec(spec)
    loader.exec_module(loaded)
    devices = tmp_path / "dev"
    devices.mkdir()
    for number in range(8):
        (devices / f"nvidia{number}").touch()
    (devices / "nvidiactl").touch()
    settings = tmp_path / "gpus.json"
    settings.write_text(json.dumps({"product": "NVIDIA H100 80GB HBM3", "memory_mib": 81559, "count": 8}))
    loaded.DEVICES, loaded.SETTINGS = str(devices), str(settings)  # type: ignore[attr-defined]
    loaded.allowed = {2, 5}  # type: ignore[attr-defined]

    def kernel(path: str, flags: int) -> int:
        number = int(path.rpartition("nvidia")[2])
        code = errno.ENXIO if number in loaded.allowed else errno.EPERM  # type: ignore[attr-defined]
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(loaded.os, "open", kernel)  # type: ignore[attr-defined]
    return loaded


@pytest.fixture
def smi(module: ModuleType, capsys: pytest.CaptureFixture[str]) -> Smi:
    def call(*argv: str) -> tuple[int, str]:
        code = module.main(list(argv))
        return code, capsys.readouterr().out

    return call


def test_lists_only_the_jobs_gpus_numbered_from_zero(smi: Smi) -> None:
    code, text = smi("-L")
    lines = text.splitlines()
    assert code == 0
    assert [line.split(" (UUID")[0] for line in lines] == [
        "GPU 0: NVIDIA H100 80GB HBM3 (simulated)",
        "GPU 1: NVIDIA H100 80GB HBM3 (simulated)",
    ]
    assert lines[0] != lines[1].replace("GPU 1", "GPU 0")


def test_uuid_belongs_to_the_device_not_to_its_index(module: ModuleType, smi: Smi) -> None:
    _, both = smi("--query-gpu=uuid", "--format=csv,noheader")
    module.allowed = {5}  # type: ignore[attr-defined]
    _, one = smi("--query-gpu=uuid", "--format=csv,noheader")
    assert one.strip() == both.splitlines()[1]


def test_query_gpu_prints_csv_with_and_without_units(smi: Smi) -> None:
    fields = "index,name,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw"
    code, text = smi(f"--query-gpu={fields}", "--format=csv")
    header, first, _ = text.splitlines()
    assert code == 0
    assert (
        header
        == "index, name, memory.total [MiB], memory.used [MiB], utilization.gpu [%], temperature.gpu, power.draw [W]"
    )
    assert first == "0, NVIDIA H100 80GB HBM3 (simulated), 81559 MiB, 0 MiB, 0 %, 30, 70.00 W"
    _, text = smi("--query-gpu=memory.total,power.draw", "--format=csv,noheader,nounits")
    assert text == "81559, 70.00\n81559, 70.00\n"


def test_id_option_selects_one_gpu_by_index_or_uuid(smi: Smi) -> None:
    _, uuids = smi("--query-gpu=uuid", "--format=csv,noheader")
    second = uuids.splitlines()[1]
    for wanted in ("1", second):
        assert smi("-i", wanted, "--query-gpu=uuid", "--format=csv,noheader") == (0, f"{second}\n")
    assert smi("--id=7", "-L") == (6, "No devices were found\n")


def test_unknown_query_field_fails_like_the_real_tool(smi: Smi) -> None:
    assert smi("--query-gpu=name,nonsense", "--format=csv") == (
        2,
        'Field "nonsense" is not a valid field to query.\n\n',
    )


def test_table_is_labelled_simulated_and_aligned(smi: Smi) -> None:
    code, text = smi()
    lines = text.splitlines()
    assert code == 0
    assert lines[0] == "SIMULATED GPUs (Headway local machine): no CUDA device is present"
    assert {len(line) for line in lines[2:] if line} == {91}
    assert sum("NVIDIA H100 80GB HBM3" in line for line in lines) == 2
    assert "81559MiB" in text


def test_machine_without_gpus_reports_no_devices(module: ModuleType, smi: Smi) -> None:
    for path in Path(module.DEVICES).glob("nvidia[0-9]"):  # type: ignore[attr-defined]
        path.unlink()
    assert smi() == (6, "No devices were found\n")
    assert smi("-L") == (6, "No devices were found\n")


def test_job_without_gpus_gets_a_hint_on_stderr(
    module: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module.allowed = set()  # type: ignore[attr-defined]
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert module.main([]) == 6
    captured = capsys.readouterr()
    assert (captured.out, "on the nodes: srun --gpus 1 nvidia-smi" in captured.err) == ("No devices were found\n", True)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert module.main(["-L"]) == 6
    assert "this job has no GPU" in capsys.readouterr().err


def test_gpus_are_labelled_simulated_without_settings_file(module: ModuleType, smi: Smi) -> None:
    module.SETTINGS = "/nonexistent"  # type: ignore[attr-defined]
    assert "SIMULATED GPU" in smi("-L")[1]


def test_unsupported_options_exit_with_1(smi: Smi) -> None:
    assert smi("topo", "-m")[0] == 1
    assert smi("--frobnicate")[0] == 1
    assert smi("--query-gpu=name")[0] == 1


def test_query_without_gpu_name_prints_simulated_notice_on_stderr(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(fields: str) -> tuple[str, str]:
        module.say_so.cache_clear()
        assert module.main([fields, "--format=csv,noheader"]) == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    out, beside = ask("--query-gpu=index,memory.total")
    assert (out.splitlines(), beside) == (["0, 81559 MiB", "1, 81559 MiB"], f"({module.HEAD})\n")
    assert ask("--query-compute-apps=pid") == ("", f"({module.HEAD})\n")
    out, beside = ask("--query-gpu=index,gpu_name")
    assert ("(simulated)" in out, beside) == (True, "")


def test_every_listed_query_field_can_be_queried(smi: Smi) -> None:
    fields = smi("--help-query-gpu")[1].split()
    code, text = smi(f"--query-gpu={','.join(fields)}", "--format=csv,noheader")
    assert code == 0
    assert len(text.splitlines()[0].split(", ")) == len(fields)


def test_gpu_reset_recreates_the_device_and_clears_its_faults(
    module: ModuleType, smi: Smi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(module.os, "mknod", lambda path, *_: made.append(path))
    monkeypatch.setattr(module.os, "chmod", lambda *_: None)
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    faults = tmp_path / "faults"
    faults.mkdir()
    for name in ("gpu3-ecc", "gpu4-ecc", "disk-full"):
        (faults / name).write_text("")
    module.FAULTS = str(faults)  # type: ignore[attr-defined]
    Path(module.DEVICES, "nvidia3").unlink()
    code, text = smi("--gpu-reset", "-i", "3")
    assert code == 0
    assert "successfully reset" in text
    assert made == [f"{module.DEVICES}/nvidia3"]
    assert sorted(one.name for one in faults.iterdir()) == ["disk-full", "gpu4-ecc"]
    assert smi("--gpu-reset", "-i", "9")[0] == 6
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)
    assert smi("-r")[0] == 4


def test_lists_the_jobs_mig_instances(module: ModuleType, smi: Smi, tmp_path: Path) -> None:
    """The job may open GPU 2 and the device files of its second half, which has the GPU instance 2."""
    halves = [
        {"profile": "3g.40gb", "start": start, "size": 4, "compute": 3, "number": number, "memory_mib": 40_779}
        for start, number in ((0, 1), (4, 2))
    ]
    state = tmp_path / "mig.json"
    state.write_text(json.dumps({"2": halves, "5": halves}))
    module.MIG = str(state)  # type: ignore[attr-defined]
    second = 3 + 15 * 9 * 2 + 9 * 2
    module.may_open = {  # type: ignore[attr-defined]
        f"{module.DEVICES}/{name}": True  # type: ignore[attr-defined]
        for name in ("nvidia2", f"nvidia-caps/nvidia-cap{second}", f"nvidia-caps/nvidia-cap{second + 1}")
    }.get
    code, text = smi("-L")
    first, part = text.splitlines()
    assert code == 0
    assert first.startswith("GPU 0: NVIDIA H100 80GB HBM3 (simulated)")
    assert part.startswith("  MIG 3g.40gb      Device  0: (UUID: MIG-")
    assert "Enabled" in smi("--query-gpu=name,mig.mode.current", "--format=csv,noheader")[1]
    assert "3g.40gb       40779MiB" in smi()[1]
