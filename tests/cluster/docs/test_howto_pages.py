"""How-to guides do what they say on a real cluster: that of the first tutorial."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.lab import Lab
from tests.support.documented_blocks import blocks, run_blocks
from tests.support.paths import ROOT

HOWTO = ROOT / "docs" / "howto"
FILES = {
    "train.sbatch": "#!/bin/bash\n#SBATCH --output=train-%j.log\necho begun with $*\n",
    "batch_embed.sbatch": "#!/bin/bash\n#SBATCH --array=16-18 --gres=gpu:1 --output=part-%a.log\n"
    "echo part $SLURM_ARRAY_TASK_ID\ntest $SLURM_ARRAY_TASK_ID != 18\n",
    "rlhf.yaml": "name: rlhf\nsteps:\n  sft: {run: echo tuned}\n  compare: {needs: [sft], run: echo compared}\n",
    "evaluate.py": "print('evaluated')\n",
    "ranks.py": "import os\nprint('rank', os.environ['RANK'])\n",
}


@pytest.fixture(scope="module")
def lab(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("howto") / "state")
    page = ROOT / "docs" / "tutorials" / "first-cluster.md"
    spec = next(block.text for block in blocks(page) if block.how == "file cluster.yaml")
    with made.applied(spec):
        yield made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the programs that the pages name, which end at once."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_jobs_are_run_followed_and_repeated(lab: Lab, folder: Path) -> None:
    user = lab.head("ls", "/home").out.split()[0]
    lab.head("mkdir", "project", user=user)
    array = lab.cli("submit", "lab", "--parsable", "--with-files", "batch_embed.sbatch").out.strip()
    lab.wait_array(int(array))
    values = {"12_17": f"{array}_17", "12": array}
    shown = run_blocks(HOWTO / "jobs.md", "cluster", folder, lab.env, values=values)
    assert "part 17" in shown
    assert "[16] part 16" in shown  # a followed log of all tasks
    assert "failed: 18" in shown


def test_storage_has_datasets_that_jobs_copy(lab: Lab, folder: Path) -> None:
    (folder / "tiny").mkdir()
    (folder / "tiny" / "part-0").write_bytes(b"x" * 4096)
    shown = run_blocks(
        HOWTO / "storage.md", "cluster", folder, lab.env, values={"/srv/data/tiny": str(folder / "tiny")}
    )
    assert "tiny@1" in shown
    assert "MiB/s" in shown


def test_rest_api_submits_and_follows_a_job(lab: Lab, folder: Path) -> None:
    last = lab.sbatch("root", "--output=/dev/null", wrap="true")
    values = {"jobs/1": f"jobs/{last + 1}", "job=1": f"job={last + 1}"}
    shown = run_blocks(HOWTO / "rest-api.md", "cluster", folder, lab.env, values=values)
    assert f'"job_id":{last + 1}' in shown
    assert "begun" in shown
    assert '"status":4' not in shown
    assert '"status":5' not in shown


def test_faults_are_read_made_and_repaired_by_hand(lab: Lab, folder: Path) -> None:
    lab.cli("fault", "lab", "xid", "79", "lab-1-2", "--gpu", "3")
    lab.wait(lambda: [i.state for i in lab.client.incidents.list("lab")][:1] == ["returned"], "the node to be returned")
    shown = run_blocks(HOWTO / "faults.md", "cluster", folder, lab.env)
    assert "disk swap" in shown
    # The page's reboot may open an incident too, of the silent node.
    lab.wait(
        lambda: [i.what[:6] for i in lab.client.incidents.list("lab")].count("XID 79") == 2,
        "the incident of the page's fault",
        seen=lambda lab: str([(i.number, i.what, i.state) for i in lab.client.incidents.list("lab")]),
    )
