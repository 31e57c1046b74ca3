"""Compares lint with a cluster's real sbatch on made-up scripts."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Protocol

from tests.cluster.lab import Done

from headway.lint.findings import worst_level
from headway.lint.rules import lint_script
from headway.lint.site_rules import Site

COUNT = 300
# Words of #SBATCH lines, right ones and wrong ones as people write them.
OPTIONS = (
    "--time=10", "--time=1-00:00:00", "-t 90", "--time=1:30", "--time=UNLIMITED", "--time=tomorrow", "--time=1h", "-t 10m",
    "--nodes=1", "-N 2", "--nodes=1-2", "--nodes=two", "--nodes=1k", "-N1", "--nodes=",
    "--ntasks=4", "--ntasks=four", "-n 2", "--ntasks-per-node=1", "--ntasks-per-node=x", "--cpus-per-task=2", "-c two",
    "--mem=1G", "--mem=0", "--mem=500", "--mem=64GB", "--mem=lots", "--mem-per-cpu=1G", "--mem=1 GB",
    "--gpus=1", "--gpus-per-node=1", "--gres=gpu:1", "--gpu-per-node=1", "--gres=gpu:h100:1",
    "--output=logs/%j.out", "--output=$HOME/out", "-o x.out", "--job-name=a", "-J 'a b'", "--job-name", "--hold", "--requeue",
    "--no-requeue", "--exclusive", "--mail-type=END", "--signal=B:USR1@60", "--signal=USR1", "--open-mode=append", "--begin=now",
    "--partition=train", "--partition=trains", "--comment=x", "--dependency=singleton", "--licenses=a", "--nice=10",
    "--array=0-3", "--array=1,2%1", "--wait-all-nodes=1", "--colour=blue", "--export=ALL", "--export=NONE", "--priority=3",
    "--deadline=now+2hours",
)  # fmt: skip
HEADS = ("#!/bin/bash", "#!/bin/bash", "#!/bin/bash", "#!/bin/sh", "", "\n#!/bin/bash", "# no interpreter")
BODIES = (
    "srun hostname",
    "hostname",
    "#SBATCH --time=5",
    "cd /tmp\n#SBATCH --nodes=9999",
    " #SBATCH --time=never",
    "true # x",
)
# sbatch's refusals that depend on the cluster, not on how the script is written.
OF_CLUSTER = ("node configuration", "time limit", "license", "more processors", "Node count", "More processors", "account",
              "Memory", "Access/permission", "dependency", "Job violates", "deadline", "CPU count", "unavailable")  # fmt: skip
# Tries all scripts in one command: they are JSON on standard input, the answers JSON on standard output.
TRY = """
import json, subprocess, sys
found = []
for script in json.load(sys.stdin):
    ran = subprocess.run(["sbatch", "--test-only"], input=script.encode(), capture_output=True, timeout=60)
    found.append((ran.returncode, ran.stderr.decode(errors="replace")))
print(json.dumps(found))
"""


def made_up(seed: int) -> list[str]:
    """Returns scripts of random lines."""
    chance = random.Random(seed)
    scripts = []
    for _ in range(COUNT):
        words = [f"#SBATCH {word}" for word in chance.sample(OPTIONS, chance.choice((1, 1, 2, 3, 4)))]
        text = "\n".join([chance.choice(HEADS), *words, chance.choice(BODIES), ""])
        scripts.append(text.replace("\n", "\r\n") if chance.random() < 0.05 else text)
    return scripts


class LoginNode(Protocol):
    """A machine with sbatch."""

    name: str

    def head(self, *argv: str, user: str = "root", check: bool = True, stdin: str = "") -> Done:
        """Runs one command there."""


@dataclass
class Agreement:
    """What lint and sbatch said of the same scripts. `refused`: by sbatch, for how the script is written."""

    refused: int = 0
    false_errors: list[tuple[str, list[str]]] = field(default_factory=list)  # errors of lint that sbatch accepts
    missed: list[tuple[str, str]] = field(default_factory=list)  # refusals of sbatch without an error of lint


def compare(lab: LoginNode, user: str, seed: int) -> Agreement:
    """Lints COUNT scripts, and gives them to `sbatch --test-only` on the head."""
    site = Site(lab.name, tuple(lab.head("sinfo", "-h", "-o", "%R").out.split()), ("/home",))
    scripts, answers, found = made_up(seed), [], Agreement()
    for at in range(0, COUNT, 50):
        done = lab.head("python3", "-c", TRY, user=user, stdin=json.dumps(scripts[at : at + 50]))
        answers += json.loads(done.out)
    for script, (code, message) in zip(scripts, answers, strict=True):
        findings = lint_script(script, site)
        errors = [one.message for one in findings if one.level == "error"]
        if errors and code == 0:
            found.false_errors.append((script, errors))
        if code and not any(words in message for words in OF_CLUSTER):
            found.refused += 1
            # An unknown option is a warning, because a plugin may know it.
            if worst_level(findings) != "error" and not any(one.rule == "unknown-option" for one in findings):
                found.missed.append((script, message))
    return found
