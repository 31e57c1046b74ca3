"""Each software environment has a kernel in notebooks: that of its latest version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.transport.remote_program import program_source


def test_kernels_are_those_of_the_latest_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program: dict[str, Any] = {"__name__": "notebook_kernels"}
    exec(program_source("notebook_kernels"), program)
    root, system, folder = tmp_path / "environments", tmp_path / "system", tmp_path / "notebook"
    for place in ("demo/2", "demo/10", ".modules/demo", "empty"):
        (root / place).mkdir(parents=True)
    (system / "ipykernel").mkdir(parents=True)
    (system / "torch").mkdir()
    monkeypatch.setitem(program, "ENVIRONMENTS", str(root))
    monkeypatch.setitem(program, "SYSTEM", str(system))
    monkeypatch.setattr("sys.argv", ["notebook_kernels.py", str(folder)])
    for _ in range(2):  # a requeued notebook begins again in the same folder
        assert program["main"]() == 0
    (spec,) = (folder / "jupyter" / "kernels").iterdir()
    told = json.loads((spec / "kernel.json").read_text())
    assert (told["display_name"], told["argv"][0]) == ("demo@10", f"{root}/demo/10/bin/python")
    assert told["env"]["VIRTUAL_ENV"] == f"{root}/demo/10"
    assert [one.name for one in (folder / "kernel-libraries").iterdir()] == ["ipykernel"]
