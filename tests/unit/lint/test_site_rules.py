"""Findings that need a cluster: partitions, caps, memory, environments and folders."""

from __future__ import annotations

from dataclasses import replace

from headway.lint.site_rules import Site
from tests.support.batch_scripts import finding_of, fixed, found, script

LAB = Site("lab", ("train", "debug"), ("/home", "/scratch", "/data"), ("pytorch",), {"vision": "100 GPU-hours a month"},
           node_memory_mib=2_048_000)  # fmt: skip


def test_partition_of_another_cluster() -> None:
    text = script("#SBATCH -p trains", "hostname")
    assert finding_of("no-partition", text, LAB).level == "error"
    assert fixed("no-partition", text, LAB) == script("#SBATCH -p train", "hostname")
    assert "no-partition" not in found(script("#SBATCH -p train,debug"), LAB)


def test_no_time_limit_under_a_cap() -> None:
    text = "#!/bin/bash\n#SBATCH --gpus=8\nsrun hostname\n"
    assert found(text, LAB)["no-time-under-cap"] == 2
    assert "no-time-under-cap" not in found(text, replace(LAB, capped_teams={}))
    assert "no-time-under-cap" not in found(text.replace("gpus=8", "gpus=8 -A nlp"), LAB)


def test_more_memory_than_any_node_has() -> None:
    text = script("#SBATCH --gpus-per-node=8", "#SBATCH --mem-per-gpu=512G")
    assert finding_of("too-much-memory", text, LAB).message == "--mem-per-gpu=512G on 8 GPUs is 4096 GiB on one node."
    assert "too-much-memory" not in found(script("#SBATCH --mem=1900G"), LAB)
    assert "too-much-memory" not in found(text, replace(LAB, node_memory_mib=0))


def test_modules_are_environments() -> None:
    assert found(script("module load cuda/12.4"), LAB)["no-module"] == 3
    assert "no-module" not in found(script("module load pytorch", "module purge"), LAB)
    assert "no-module" not in found(script("module use ~/modules", "module load mine"), LAB)


def test_folders_that_the_nodes_do_not_share() -> None:
    text = script("#SBATCH --output=/lustre/me/%j.out", "cd /data/me", "python /opt/x/train.py --data=/mnt/set/a")
    lines = [one.line for one in (finding_of("no-folder", text, LAB),)]
    assert lines == [3]
    assert found(text.replace("/lustre", "/scratch"), LAB)["no-folder"] == 5
    assert "no-folder" not in found(script("curl https://example.com/a/b", "cat a/b/c | sed s/x/y/ > /tmp/x"), LAB)
