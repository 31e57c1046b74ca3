"""A software environment is built from a package index by a real job, used by jobs, and removed."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.lab import Lab
from tests.support.machines.package_index import make_wheel, serve_index

from headway.schemas.submission.reruns import RetryIn
from headway.schemas.submission.run_flags import RunIn

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


def test_environment_is_built_used_and_removed(lab: Lab, tmp_path: Path) -> None:
    folder, requirements = tmp_path / "index", tmp_path / "requirements.txt"
    tool = {"steady/tool.py": "def main():\n    print('steady')\n"}
    make_wheel(folder, "steady", "1.0", files=tool, commands={"tool": "steady.tool:main"})
    make_wheel(folder, "models", "2.1", needs=["steady>=1"])
    gateway = lab.head("ip", "-4", "route", "show", "default").out.split()[2]
    with serve_index(folder, gateway) as url:
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
