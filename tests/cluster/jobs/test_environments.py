"""A software environment is built from a package index by a real job, used by jobs, and removed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.lab import Done, Lab
from tests.support.machines.package_index import make_wheel, serve_index

from headway.errors import Conflict
from headway.schemas.submission.reruns import RetryIn
from headway.schemas.submission.run_request import RunIn

USER = "viola"
SCRIPT = """\
#!/bin/bash
#SBATCH --output=/home/viola/module.out
module load vision
python -c 'import models; print(models.__file__)'
tool
touch /environments/vision/1/more
module load pytorch
python -c 'import torch, headway_train, sys; print(sys.prefix)'
"""
PROJECT = """
[project]
name = "ours"
version = "0.1"
requires-python = ">=3.11"
dependencies = ["models"]
[dependency-groups]
dev = ["clash"]
[[tool.uv.index]]
url = "{url}"
default = true
"""


def gateway(lab: Lab) -> str:
    """Returns this host's address on the network of the cluster."""
    return lab.head("ip", "-4", "route", "show", "default").out.split()[2]


def test_environment_is_built_used_and_removed(lab: Lab, tmp_path: Path) -> None:
    folder, requirements = tmp_path / "index", tmp_path / "requirements.txt"
    tool = {"steady/tool.py": "def main():\n    print('steady')\n"}
    make_wheel(folder, "steady", "1.0", files=tool, commands={"tool": "steady.tool:main"})
    make_wheel(folder, "models", "2.1", needs=["steady>=1"])
    with serve_index(folder, gateway(lab)) as url:
        requirements.write_text(f"--index-url {url}\nmodels\n")
        ask = ("env", "add", "lab", "vision", "--requirements", str(requirements), "--as", USER)
        assert lab.cli(*ask).out.splitlines()[-1] == "/environments/vision/1"
        assert lab.cli(*ask).out.splitlines()[-1] == "/environments/vision/1"
        requirements.write_text(f"--index-url {url}\nmodels==9\n")
        refused = lab.cli(*ask, check=False)
        assert refused.code == 1
        assert "no version of models==9" in refused.err
    shown = lab.cli("env", "show", "lab", "vision")
    assert "models==2.1" in shown.out
    assert "--hash=sha256:" in shown.out
    assert lab.head("stat", "-c", "%U %a", "/environments/vision/1").out.split() == ["root", "555"]

    job = lab.submit(SCRIPT, user=USER)
    lab.wait_job(job, "COMPLETED")
    told = lab.output("/home/viola/module.out")
    assert "/environments/vision/1/lib/python3.13/site-packages/models/__init__.py\nsteady\n" in told
    assert "Read-only file system" in told
    assert told.splitlines()[-1] == "/environments/pytorch/1"
    ask_run = RunIn(argv=["python", "-c", "import models"], environment="vision", user=USER)
    ran = lab.client.jobs.create_run("lab", ask_run).job_id
    lab.wait_job(ran, "COMPLETED")
    again = lab.client.jobs.rerun("lab", ran, RetryIn()).job_id
    lab.wait_job(again, "COMPLETED")
    assert [one["version"] for one in lab.client.jobs.lineage("lab", again).environments] == ["1"]
    kept = lab.cli("env", "rm", "lab", "vision@1", "--yes", check=False)
    assert kept.code == 6
    assert "lineage of job" in kept.err
    lab.cli("env", "rm", "lab", "vision@1", "--yes", "--force")
    lab.cli("env", "rm", "lab", "vision@1", "--yes", "--force", check=False)
    assert lab.head("ls", "-A", "/environments").out.split() == [".modules", ".tools", "pytorch"]


def test_project_and_its_lock_become_environments(lab: Lab, tmp_path: Path) -> None:
    folder, project = tmp_path / "index", tmp_path / "project"
    make_wheel(folder, "steady", "1.0")
    make_wheel(folder, "models", "2.1", needs=["steady>=1"])
    make_wheel(folder, "clash", "1.0")
    make_wheel(folder, "wishes", "1.0", needs=["steady>=2"])
    project.mkdir()
    file, lock = project / "pyproject.toml", project / "uv.lock"

    def add(name: str, source: Path, check: bool = True) -> Done:
        return lab.cli("env", "add", "lab", name, "-r", str(source), "--as", "sonia", check=check)

    with serve_index(folder, gateway(lab)) as url:
        written = PROJECT.format(url=url)
        file.write_text(written)
        uv = [str(Path(sys.executable).with_name("uv")), "lock", "--quiet", "--no-cache"]
        subprocess.run(uv, cwd=project, check=True, timeout=120)
        made = [add(name, source).out.splitlines()[-1] for name, source in (("project", file), ("locked", lock))]

        file.write_text(written.replace('"models"', '"models", "wishes"'))
        unsatisfiable, stale = add("wishes", file, check=False), add("stale", lock, check=False)
        file.write_text(written.replace(">=3.11", ">=3.11,<3.13"))
        other_python = add("other", file, check=False)
        file.write_text(written)
        lock.write_text(re.sub("sha256:[0-9a-f]{64}", f"sha256:{'0' * 64}", lock.read_text()))
        forged = add("forged", lock, check=False)
    assert "all versions of wishes depend on steady>=2 and only steady==1.0 is available" in one_line(unsatisfiable.err)
    assert "error: uv.lock does not fit pyproject.toml: only pyproject.toml has wishes" in stale.err
    assert "Hash mismatch for `" in forged.err
    assert "is incompatible with the project's Python requirement: `>=3.11, <3.13`" in one_line(other_python.err)
    assert {unsatisfiable.code, stale.code, forged.code, other_python.code} == {1}

    shown = [lab.cli("env", "show", "lab", name).out for name in ("project", "locked")]
    assert shown[0] == shown[1]
    assert re.findall(r"^(\S+==\S+) \\\n +--hash=sha256:[0-9a-f]{64}$", shown[0], re.MULTILINE) == [
        "models==2.1",
        "steady==1.0",
    ]
    names = {one.name for one in lab.client.environments.list("lab")}
    assert {"project", "locked"} <= names
    assert not {"wishes", "stale", "forged", "other"} & names
    use = "module load {0}; python -c 'import models; print(models.__file__)'"
    lines = ["#!/bin/bash", "#SBATCH --output=/home/sonia/envs.out", use.format("project"), use.format("locked")]
    job = lab.sbatch("sonia", script="\n".join(lines))
    lab.wait_job(job, "COMPLETED")
    read = [line for line in lab.output("/home/sonia/envs.out").splitlines() if line.startswith("/")]
    assert read == [f"{path}/lib/python3.13/site-packages/models/__init__.py" for path in made]
    for path in made:
        name, number = path.split("/")[-2:]
        lab.cli("env", "rm", "lab", f"{name}@{number}", "--yes", "--force")


def test_two_builds_at_once_are_of_two_environments(lab: Lab, tmp_path: Path) -> None:
    folder, requirements = tmp_path / "index", tmp_path / "requirements.txt"
    make_wheel(folder, "steady", "1.0")
    with serve_index(folder, gateway(lab)) as url:
        requirements.write_text(f"--index-url {url}\nsteady\n")
        begun = [lab.client.environments.add("lab", name, requirements, user="sonia") for name in ("one", "two")]
        with pytest.raises(Conflict, match="a version of environment one is being built, by root"):
            lab.client.environments.add("lab", "one", requirements, user="sonia")
        for name, operation in zip(("one", "two"), begun, strict=True):
            (path,) = lab.client.operations.wait(operation.id).kept
            assert path.startswith(f"/environments/{name}/")
            lab.cli("env", "rm", "lab", f"{name}@{path.rpartition('/')[2]}", "--yes")


def one_line(text: str) -> str:
    return " ".join(text.split())
