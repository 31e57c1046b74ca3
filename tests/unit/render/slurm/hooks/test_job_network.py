"""The script that adds jobs to the network policy runs correctly under bash in a temporary folder, with an nft that keeps what
it is given."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from headway.domain.network_policy import Network, NetworkPolicy
from headway.render.machine_paths import JOB_TMP
from headway.render.slurm.hooks.job_network import RULES, SCRIPT, files
from headway.render.system.job_network import node_rules
from tests.support.clusters.render_cases import gpu_cluster, site_of

ALICE, CAROL = 20000, 20001
SLURMS = "system.slice/slurmstepd.scope"
# Keeps what it is given last, and all of it; refuses changes while there are no rules.
NFT = """\
cat >$0.new
if [ -e $0.broken ] || { [ ! -e $0.rules ] && ! grep -q '^table' $0.new; }; then
    echo "Error: no such thing" >&2
    exit 1
fi
touch $0.rules
cat $0.new >>$0.all
mv $0.new $0.loaded
"""


class Node:
    """A node whose jobs have the policies user (vision), team with a list (speech), and all (every other account)."""

    def __init__(self, folder: Path, *, v2: bool) -> None:
        self.folder, self.cgroups, self.jobs = folder, folder / "cgroup", folder / "jobs"
        for made in ("bin", "jobs", "cgroup" if v2 else "cgroup/unified"):
            (folder / made).mkdir(parents=True)
        (self.cgroups / ("" if v2 else "unified") / "cgroup.controllers").touch()
        (self.cgroups / ("cpuset" if v2 else "pids")).mkdir()
        for name, text in {"nft": NFT, "readlink": "echo net:[77]", "flock": ""}.items():
            (folder / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
            (folder / "bin" / name).chmod(0o755)
        self.cluster = replace(
            gpu_cluster(),
            network=Network(),
            teams=tuple(
                replace(team, network=policy)
                for team, policy in zip(
                    gpu_cluster().teams,
                    (NetworkPolicy("user"), NetworkPolicy("team", ("10.0.0.0/8",))),
                    strict=True,
                )
            ),
        )
        (folder / "own").write_text("0::/machine/init.scope\n")
        (folder / "rules").write_text(node_rules(self.cluster, site_of(self.cluster)))
        text = files(self.cluster)[SCRIPT].text
        places = {
            "cgroups=/sys/fs/cgroup": f"cgroups={self.cgroups}",
            "/run/headway-job-network.lock": f"{folder}/lock",
            "/proc/1/cgroup": f"{folder}/own",
            JOB_TMP: str(self.jobs),
            RULES: f"{folder}/rules",
        }
        for here, there in places.items():
            assert here in text
            text = text.replace(here, there)
        self.script = text

    def run(self, word: str, job: int, user: int = ALICE, account: str = "vision") -> str:
        """Returns why it failed, or ""."""
        env = {"SLURM_JOB_ID": str(job), "SLURM_JOB_UID": str(user), "SLURM_JOB_ACCOUNT": account}
        env |= {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "own": str(self.jobs / str(job))}
        argv = ["bash", "-c", self.script, "job-network", word]
        done = subprocess.run(argv, env=env, check=False, timeout=30, capture_output=True, text=True)
        assert (done.returncode == 0) == (not done.stderr), done.stderr
        return done.stderr

    def start(self, job: int, user: int = ALICE, account: str = "vision") -> str:
        (self.jobs / str(job)).mkdir()
        return self.run("start", job, user, account)

    @property
    def loaded(self) -> str:
        return (self.folder / "bin/nft.loaded").read_text()

    def elements(self, name: str) -> dict[str, str]:
        return dict(re.findall(rf'add element inet headway_jobs {name} {{ "(\S+)" : (.*) }}', self.loaded))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, v2=True)


def test_job_is_known_by_slurms_cgroup(node: Node) -> None:
    assert node.start(7) == ""
    assert (node.cgroups / SLURMS / "job_7").is_dir(), "nft needs it before Slurm makes it"
    assert node.elements("job_ports") == {f"{SLURMS}/job_7": f"goto user_{ALICE}"}
    assert node.elements("job_internet") == {f"{SLURMS}/job_7": "accept"}
    assert f"add rule inet headway_jobs user_{ALICE} ip id {ALICE} accept\n" in node.loaded
    assert "socket cgroupv2 level 3 vmap @job_ports" in node.loaded, "the rules were not there"
    assert "@LEVEL@" not in node.loaded
    assert not (node.jobs / "7/join-cgroup").exists(), "Slurm moves the tasks itself"


def test_job_has_an_own_cgroup_v2_where_slurm_uses_v1(tmp_path: Path) -> None:
    node = Node(tmp_path, v2=False)
    assert node.start(7) == ""
    group = "unified/machine/headway-jobs/77/job_7"
    assert list(node.elements("job_ports")) == [group]
    assert "socket cgroupv2 level 4 vmap @job_ports" in node.loaded, "nft counts from the root of the hierarchy"
    assert (node.jobs / "7/join-cgroup").read_text() == f"{node.cgroups}/{group}/cgroup.procs\n"
    (node.jobs / "7/network").unlink()
    assert node.run("end", 7) == ""
    assert not (node.cgroups / "unified/machine/headway-jobs").exists()


def test_policy_is_that_of_the_jobs_account(node: Node) -> None:
    assert node.start(7, CAROL, "speech") == ""
    assert node.elements("job_ports") == {f"{SLURMS}/job_7": "goto ports_speech"}
    assert node.elements("job_internet") == {f"{SLURMS}/job_7": "goto internet_speech"}


def test_job_of_an_account_without_restrictions_loads_nothing(node: Node) -> None:
    assert node.start(7, account="other") == ""
    assert node.start(8, user=0) == "", "root's"
    assert not (node.folder / "bin/nft.all").exists()


def test_end_of_a_job_leaves_the_others(node: Node) -> None:
    for job in (7, 8):
        assert node.start(job) == ""
    assert len(node.elements("job_ports")) == 2
    assert node.loaded.count(f"add chain inet headway_jobs user_{ALICE}\n") == 1
    assert "socket" not in node.loaded, "the rules are there, and only the jobs change"
    (node.jobs / "7/network").unlink()  # the epilog deletes the job's folder before
    assert node.run("end", 7) == ""
    assert list(node.elements("job_ports")) == [f"{SLURMS}/job_8"]
    assert "delete chain" not in node.loaded
    assert not (node.cgroups / SLURMS / "job_7").exists()


def test_chain_of_a_user_ends_with_the_last_job(node: Node) -> None:
    assert node.start(7) == ""
    (node.jobs / "7/network").unlink()
    assert node.run("end", 7) == ""
    assert node.elements("job_ports") == {}
    lines = node.loaded.splitlines()
    assert lines.index("flush map inet headway_jobs job_ports") < lines.index(
        f"delete chain inet headway_jobs user_{ALICE}"
    )


def test_epilog_of_a_former_job_keeps_a_later_one_of_the_same_number(node: Node) -> None:
    assert node.start(7) == ""
    (node.jobs / "7.former").mkdir()
    (node.jobs / "7.former/network").write_text((node.jobs / "7/network").read_text())
    assert node.run("end", 7) == ""
    assert node.run("load", 7) == ""
    assert list(node.elements("job_ports")) == [f"{SLURMS}/job_7"]
    assert node.loaded.count("add element inet headway_jobs job_ports") == 1


def test_load_adds_the_jobs_that_run(node: Node) -> None:
    assert node.start(7) == ""
    assert node.start(8) == ""
    (node.folder / "bin/nft.loaded").unlink()
    (node.cgroups / SLURMS / "job_8").rmdir()  # ended while the machine was off
    assert node.run("load", 0) == ""
    assert list(node.elements("job_ports")) == [f"{SLURMS}/job_7"]


@pytest.mark.parametrize("fault", ["nft", "rules"])
def test_job_does_not_start_without_its_policy(node: Node, fault: str) -> None:
    if fault == "nft":
        (node.folder / "bin/nft.broken").touch()
        why = "nft: Error: no such thing"
    else:
        (node.folder / "rules").unlink()
        why = f"sed: can't read {node.folder}/rules: No such file or directory"
    said = node.start(7)
    assert f"the network policy of job 7 can't be loaded on {os.uname().nodename}: " in said
    assert why in said


def test_jobs_of_a_user_whom_the_rules_do_not_know_are_refused_to_other_machines(node: Node) -> None:
    assert node.start(7, user=23456) == "", "a user who came after the last apply drains no node"
    rules = [
        line.split("user_23456 ")[1]
        for line in node.loaded.splitlines()
        if line.startswith("add rule") and "23456" in line
    ]
    assert rules == ["jump known_senders", "goto refuse"]
    assert node.start(8) == "", "other users' jobs start"
