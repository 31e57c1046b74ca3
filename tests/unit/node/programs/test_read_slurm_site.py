"""The program that prints a site sends no line of a script, in any language, unless it was asked to. Of a head that answers
slowly it says which parts it could not read, and sends the rest."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
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


# Each command of Slurm runs past its time limit. The other ones run.
SLOW = """\
#!/bin/sh
shift
case $1 in scontrol | sacctmgr) exit 124 ;; esac
exec "$@"
"""
# A controller that is down, and accounting that works; getent waits for LDAP.
HALF = {
    "scontrol": "#!/bin/sh\necho 'slurm_load_ctl_conf error: Unable to contact slurm controller' >&2\nexit 1\n",
    "sacctmgr": """\
#!/bin/sh
case "$*" in
*"show qos"*) printf 'Name|Priority|Flags\\nnormal|0|\\n' ;;
*dump*) printf "Cluster - 'helix'\\nParent - 'root'\\nAccount - 'ml'\\n" ;;
*"show user"*) echo ann ;;
esac
""",
    "timeout": '#!/bin/sh\nshift\ncase $1 in xargs) exit 124 ;; esac\nexec "$@"\n',
}
# Each command of Slurm says something, and then runs past its time limit, apart from show qos and show config.
CUT = {
    **HALF,
    "scontrol": """\
#!/bin/sh
case "$*" in
*config*) echo 'ClusterName = helix' ;;
*reservation*) echo 'ReservationName=a Nodes=n1' ;;
*nodes*) echo '{"nodes": [' ;;
esac
""",
    "timeout": """\
#!/bin/sh
shift
"$@"
code=$?
case $1 in scontrol | sacctmgr) code=124 ;; esac
case "$*" in
*"show qos"*) code=0 ;;
*config*) code=0 ;;
esac
exit $code
""",
}


def read(folder: Path, settings: str = "", commands: Mapping[str, str] | None = None) -> dict[str, str]:
    """Runs the program for a site in `folder`; by default on a head without Slurm's commands."""
    return read_parts(folder, settings, commands)[0]


def read_parts(
    folder: Path, settings: str = "", commands: Mapping[str, str] | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the texts, and the parts that were not read with the reason."""
    programs = folder.parent / "bin"
    programs.mkdir()
    for name, text in {
        **dict.fromkeys(("scontrol", "sacctmgr", "sudo"), "#!/bin/sh\nexit 1\n"),
        **(commands or {}),
    }.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for name, text in {"slurm.conf": CONF.format(folder=folder), "gres.conf": "Name=gpu\n", **SCRIPTS}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    program = (NODE / "programs" / "read_slurm_site.sh").read_text()
    env = {"PATH": f"{programs}:/usr/bin:/bin", "SLURM_CONF": str(folder / "slurm.conf")}
    done = subprocess.run(["sh", "-s"], input=(settings + program).encode(), env=env, capture_output=True, timeout=60)
    texts, unread, complete = parse_parts(done.stdout)
    assert (complete, [path for path in unread if path in SCRIPTS]) == (True, [])
    return texts, unread


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


def test_secrets_of_mounts_do_not_leave_the_head(tmp_path: Path) -> None:
    lines = (
        "//fs/a /a cifs username=svc,password2=hunter2,uid=0", "//fs/b /b cifs user=svc%hunter2,uid=0",
        "//svc:hunter2@fs/c /c cifs vers=3.0", "mon:/ /d ceph client.secret-2=hunter2", "JobCompLoc=http://svc:hunter2@db:9200/x",
    )  # fmt: skip
    kept = ("mon:/ /e ceph name=a,secretfile=/etc/ceph/a", "x@tcp:/f /f lustre rw", "http://docs:80/ of a@b")
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "mounts.conf").write_text("\n".join((*lines, *kept)) + "\n")
    found = read(tmp_path / "slurm")["mounts.conf"].splitlines()
    assert found == [*(line.replace("hunter2", "(secret)") for line in lines), *kept]


def test_programs_that_read_a_head_mask_the_same_secrets() -> None:
    texts = [(NODE / "programs" / f"read_slurm_{name}.sh").read_text() for name in ("site", "state")]
    first, second = (text.partition("\nmask() {")[2].partition("\n}\n")[0] for text in texts)
    assert first == second != ""


def test_head_whose_slurm_does_not_answer_sends_its_files_and_says_so(tmp_path: Path) -> None:
    texts, unread = read_parts(tmp_path / "slurm", commands={"timeout": SLOW})
    assert "ClusterName=helix" in texts["slurm.conf"]
    assert unread == {
        "sacctmgr.qos": "sacctmgr show qos: no answer in time",
        "sacctmgr.dump": "slurmdbd gives no answer in time: accounts are not read",
        "passwd": "slurmdbd gives no answer in time: users are not known",
        "scontrol-reservations.txt": "scontrol show config: no answer in time",
    }


def test_table_that_the_time_limit_cuts_is_not_sent(tmp_path: Path) -> None:
    texts, unread = read_parts(tmp_path / "slurm", commands=CUT)
    assert (
        not {"sacctmgr.dump", "sacctmgr.assoc", "scontrol-reservations.txt", "scontrol-nodes.json", "passwd"}
        & texts.keys()
    )
    assert {path: why for path, why in unread.items() if path != "fstab"} == {
        "sacctmgr.dump": "sacctmgr dump helix: no answer in time",
        "passwd": "sacctmgr show user: no answer in time",
        "scontrol-reservations.txt": "scontrol show reservation: no answer in time",
        "scontrol-nodes.json": "scontrol show nodes: no answer in time",
    }
    assert texts["sacctmgr.qos"].startswith("Name|Priority|Flags\nnormal|0|")


def test_qos_that_the_time_limit_cuts_are_not_sent(tmp_path: Path) -> None:
    cut = CUT["timeout"].replace('*"show qos"*) code=0 ;;', "")
    texts, unread = read_parts(tmp_path / "slurm", commands={**CUT, "timeout": cut})
    assert ("sacctmgr.qos" in texts, unread["sacctmgr.qos"]) == (False, "sacctmgr show qos: no answer in time")


def test_users_have_their_groups_and_no_names(tmp_path: Path) -> None:
    commands = {
        "sacctmgr": '#!/bin/sh\ncase "$*" in *"show user"*) printf "root\\nno-such-user\\n" ;; esac\n',
        "id": "#!/bin/sh\n[ $2 = root ] && echo 0 1 ; exit 1\n",
    }
    texts, unread = read_parts(tmp_path / "slurm", commands=commands)
    assert (texts["passwd"], texts["group"]) == ("root:x:0:0::/root:/bin/bash\n", "root:x:0:\ndaemon:x:1:\n")
    assert "getent" not in unread


def test_commands_together_have_a_time_limit(tmp_path: Path) -> None:
    texts, unread = read_parts(tmp_path / "slurm", "all_s=0\n")
    assert ("gres.conf" in texts, "no answer in time" in unread["sacctmgr.qos"]) == (True, True)


def test_half_of_a_site_is_read(tmp_path: Path) -> None:
    texts, unread = read_parts(tmp_path / "slurm", commands=HALF)
    assert "Account - 'ml'" in texts["sacctmgr.dump"]
    assert texts["sacctmgr.qos"].startswith("Name|Priority|Flags\nnormal|0|")
    assert {path: why for path, why in unread.items() if path != "fstab"} == {
        "scontrol-reservations.txt": "scontrol show config: slurm_load_ctl_conf error: Unable to contact slurm controller",
        "id": "id gives no answer in time: some groups are not read",
        "getent": "getent passwd gives no answer in time: some uids are not read",
    }
