"""The program that prints a site sends no line of a script, in any language, unless it was asked to."""

from __future__ import annotations

import subprocess
from pathlib import Path

from headway.sdk.slurm_site.head import parse_parts
from tests.support.paths import NODE

CONF = """\
ClusterName=helix
Include /opt/site/nodes.txt
Prolog={folder}/prolog.d/*
Epilog={folder}//end.conf
TaskProlog=/opt/site/no-such-file
"""
SCRIPTS = {
    "job_submit.lua": "slurm_job_submit = function (d, p, u) call('hunter2') end\n",
    "cli_filter.lua": "function slurm_cli_pre_submit(o, p) call('hunter2') end\n",
    "lib/helper.lua": "return {token = 'hunter2'}\n",
    "prolog.d/10-mounts": "mount -o hunter2 /x\n",
    "end.conf": "logger hunter2\n",
    "other.conf": "#!/bin/sh\nlogger hunter2\n",
}


def read(folder: Path, settings: str = "") -> dict[str, str]:
    """Runs the program for a site in `folder`, on a head without Slurm's commands."""
    commands = folder.parent / "bin"
    commands.mkdir()
    for name in ("scontrol", "sacctmgr", "sudo"):
        (commands / name).write_text("#!/bin/sh\nexit 1\n")
        (commands / name).chmod(0o755)
    for name, text in {"slurm.conf": CONF.format(folder=folder), "gres.conf": "Name=gpu\n", **SCRIPTS}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    program = (NODE / "programs" / "read_slurm_site.sh").read_text()
    env = {"PATH": f"{commands}:/usr/bin:/bin", "SLURM_CONF": str(folder / "slurm.conf")}
    done = subprocess.run(["sh", "-s"], input=(settings + program).encode(), env=env, capture_output=True, timeout=60)
    texts, unread, complete = parse_parts(done.stdout)
    assert (complete, [path for path in unread if path in SCRIPTS]) == (True, [])
    return texts


def test_of_scripts_only_the_number_of_lines_is_sent(tmp_path: Path) -> None:
    texts = read(tmp_path / "slurm")
    assert "hunter2" not in str(texts)
    assert {path: texts[path] for path in SCRIPTS} == {
        path: "#!\n" + "x\n" * (text.count("\n") - 1) for path, text in SCRIPTS.items()
    }
    assert texts["gres.conf"] == "Name=gpu\n"


def test_scripts_that_are_asked_for_are_sent_unchanged(tmp_path: Path) -> None:
    texts = read(tmp_path / "slurm", "scripts=yes\n")
    assert {path: texts[path] for path in SCRIPTS} == SCRIPTS
