"""A venv and an environment of uv on /scratch, made as docs/howto/python-packages.md says, have their programs in jobs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from urllib.parse import urlsplit

import pytest
from tests.cluster.lab import Lab
from tests.support.machines.package_index import list_wheels, make_wheel, serve_index
from tests.support.paths import ROOT

from headway.schemas.submission.run_request import RunIn

USER = "stan"
PAGE = ROOT / "docs/howto/python-packages.md"
SCRATCH = f"/scratch/{USER}"
VENV, UV_VENV = f"{SCRATCH}/venv", f"{SCRATCH}/train"
# The page's commands; {url} is the index of the test instead of PyPI.
MAKE_VENV = """\
python3 -m venv --system-site-packages /scratch/$USER/venv
source /scratch/$USER/venv/bin/activate
"""
MAKE_UV = """\
export UV_CACHE_DIR=/scratch/$USER/.uv-cache
uv venv /scratch/$USER/train
uv pip install --python /scratch/$USER/train -r requirements.txt
"""
# A launcher of ranks such as accelerate, which prints whose it is.
LAUNCHER = {"launcher/main.py": "import sys\n\ndef main():\n    print('launcher of', sys.prefix)\n"}
TRAIN = "import sys, torch\nprint('torchrun of', sys.prefix, torch.__file__)\n"
TORCH = "/usr/lib/python3/dist-packages/torch/__init__.py"
JOB = f"""\
#!/bin/bash
#SBATCH --nodes=2 --output={SCRATCH}/packages.out
source /scratch/$USER/venv/bin/activate
srun torchrun --standalone {SCRATCH}/train.py
srun launch
{UV_VENV}/bin/launch
source {UV_VENV}/bin/activate
torchrun {SCRATCH}/train.py
"""


@pytest.fixture(scope="module")
def environments(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The two environments of the user, made in a login."""
    assert MAKE_VENV in PAGE.read_text()
    assert MAKE_UV in PAGE.read_text()
    folder = tmp_path_factory.mktemp("index")
    make_wheel(folder, "launcher", "1.0", files=LAUNCHER, commands={"launch": "launcher.main:main"})
    uv = folder / "simple" / "uv"
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*fetch, "--dest", str(uv), f"uv=={version('uv')}"], check=True, timeout=600)
    list_wheels(uv)
    lab.head("rm", "-rf", VENV, UV_VENV, user=USER)
    lab.head("tee", f"{SCRATCH}/train.py", user=USER, stdin=TRAIN)
    lab.head("tee", f"/home/{USER}/requirements.txt", user=USER, stdin="launcher\n")
    gateway = lab.head("ip", "-4", "route", "show", "default").out.split()[2]
    with serve_index(folder, gateway) as url:
        index = f"pip config set global.index-url {url}; pip config set global.trusted-host {urlsplit(url).hostname}"
        steps = ("set -e", index, MAKE_VENV, "pip install launcher uv", f"export UV_DEFAULT_INDEX={url}", MAKE_UV)
        lab.head("bash", "-lc", "\n".join(steps), user=USER)
    yield
    lab.head("rm", "-rf", VENV, UV_VENV, f"/home/{USER}/.config/pip", user=USER)


def test_batch_job_gets_the_programs_of_the_active_environment(lab: Lab, environments: None) -> None:
    job = lab.sbatch(USER, script=JOB)
    lab.wait_job(job, "FAILED")  # by its last command
    *ran, last = lab.output(f"{SCRATCH}/packages.out").splitlines()
    assert [line for line in ran if " of " in line] == [
        *[f"torchrun of {VENV} {TORCH}"] * 2,
        *[f"launcher of {VENV}"] * 2,
        f"launcher of {UV_VENV}",
    ]
    assert last.startswith(f"torchrun: {UV_VENV}/bin/python3 has no torch: install it there (pip install torch)")


@pytest.mark.parametrize(
    ("argv", "printed"),
    [
        ([f"{VENV}/bin/torchrun", f"{SCRATCH}/train.py"], f"torchrun of {VENV} {TORCH}"),
        ([f"{VENV}/bin/launch"], f"launcher of {VENV}"),
        ([f"{UV_VENV}/bin/launch"], f"launcher of {UV_VENV}"),
    ],
)
def test_run_takes_a_program_with_its_folder(lab: Lab, environments: None, argv: list[str], printed: str) -> None:
    ran = lab.client.jobs.create_run("lab", RunIn(argv=argv, user=USER, gpus=1))
    lab.wait_job(ran.job_id, "COMPLETED")
    assert printed in lab.cli("logs", "lab", str(ran.job_id)).out.splitlines()


def test_uv_links_files_from_a_cache_on_scratch(lab: Lab, environments: None) -> None:
    count = lab.head("sh", "-c", f"stat -c %h {UV_VENV}/lib/python3*/site-packages/launcher/main.py", user=USER).out
    assert int(count) > 1
