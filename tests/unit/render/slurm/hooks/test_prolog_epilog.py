"""The rendered prolog and epilog run correctly under bash in a temporary folder."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from headway.catalog.node_images import slurm_release
from headway.render.machine_paths import AGENT_COMMAND, EPILOG, JOB_SHM, JOB_TMP, PMIX, PROLOG
from headway.render.slurm.hooks.prolog_epilog import LEFT, SYSV, scripts
from headway.render.slurm.hooks.site_scripts import EPILOGS, PROLOGS


def prolog(
    folder: Path,
    job: int = 7,
    volumes: Sequence[tuple[str, str, bool]] = (),
    *,
    looked: bool = True,
    cpus: str = "8",
    per_cpu: int = 0,
    secrets: str = "",
) -> int:
    rendered = scripts(slurm_release("24.11"), volumes=volumes, processes_per_cpu=per_cpu)
    text = rendered[PROLOG].text.replace("/srv/headway/", f"{folder}/")
    text = text.replace(JOB_SHM, f"{folder}/shm/headway").replace(JOB_TMP, f"{folder}/job-tmp")
    text = text.replace("/run/headway/", f"{folder}/").replace("n < 200", "n < 3")
    text = text.replace(AGENT_COMMAND, f"{folder}/bin/agent").replace(PROLOGS, f"{folder}/prolog.d")
    (folder / "shm").mkdir(exist_ok=True)
    if looked:
        (folder / "looked").touch()
    env = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": str(job), "SLURM_JOB_UID": "20000"}
    env |= {"SLURM_JOB_CPUS_PER_NODE": cpus, "SPANK_HEADWAY_SECRETS": secrets}
    return subprocess.run(["bash", "-c", text], env=env, check=False, timeout=30).returncode


def test_prolog_creates_writable_tmp_and_shm_for_job(tmp_path: Path) -> None:
    assert prolog(tmp_path) == 0
    assert prolog(tmp_path, job=8) == 0
    for part in ("job-tmp/7/tmp", "job-tmp/7/shm/", "job-tmp/8/shm/"):
        assert (tmp_path / part).stat().st_mode & 0o7777 == 0o1777, part
    for closed in ("job-tmp/7", "shm/headway"):
        assert (tmp_path / closed).stat().st_mode & 0o7777 == 0o700, closed
    assert (tmp_path / "job-tmp/7/shm").resolve().parent == tmp_path / "shm/headway"
    assert (tmp_path / "job-tmp/7/shm").resolve() != (tmp_path / "job-tmp/8/shm").resolve()


@pytest.mark.parametrize(
    ("cpus", "per_cpu", "expected"),
    [("8", 256, "4096"), ("64", 256, "16384"), ("8(x2),40", 256, "10240"), ("192", 0, "4096")],
)
def test_prolog_writes_the_limit_of_processes(tmp_path: Path, cpus: str, per_cpu: int, expected: str) -> None:
    assert prolog(tmp_path, cpus=cpus, per_cpu=per_cpu) == 0
    assert (tmp_path / "job-tmp/7/processes").read_text().strip() == expected


def test_prolog_fails_when_volume_is_not_mounted(tmp_path: Path) -> None:
    there, lost = ("/srv/headway/proc", "/proc", False), ("/srv/headway/scratch", "/scratch-of-nobody", False)
    (tmp_path / "proc").mkdir()
    assert prolog(tmp_path, volumes=[there, lost]) == 0, "a machine that has it in its own way"
    (tmp_path / "scratch").mkdir()
    assert prolog(tmp_path, volumes=[there, lost]) == 1
    assert prolog(tmp_path, volumes=[there]) == 0


def test_prolog_waits_for_first_health_check_after_boot(tmp_path: Path) -> None:
    assert prolog(tmp_path, looked=False) == 0, "where nobody looks, jobs go on after a while"
    moment = tmp_path / "bin" / "sleep"  # the look ends while the prolog waits
    moment.parent.mkdir()
    moment.write_text(f"#!/bin/sh\ntouch {tmp_path}/unfit {tmp_path}/looked\n")
    moment.chmod(0o755)
    assert prolog(tmp_path, looked=False) == 1


def test_prolog_does_not_follow_planted_symlink(tmp_path: Path) -> None:
    """/dev/shm is everybody's: root must not open up what a link there leads to."""
    victim = tmp_path / "etc"
    (victim / "7").mkdir(parents=True, mode=0o755)
    (tmp_path / "shm").mkdir()
    (tmp_path / "shm" / "headway").symlink_to(victim)
    assert prolog(tmp_path) == 0
    assert (victim / "7").stat().st_mode & 0o7777 == 0o755
    assert not (tmp_path / "shm" / "headway").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to somebody else")
def test_prolog_replaces_folder_owned_by_another_user(tmp_path: Path) -> None:
    victim = tmp_path / "etc"
    victim.mkdir(mode=0o755)
    trap = tmp_path / "shm" / "headway"
    trap.mkdir(parents=True, mode=0o700)
    (trap / "7").symlink_to(victim)
    os.chown(trap, 20001, 20001)
    assert prolog(tmp_path) == 0
    assert victim.stat().st_mode & 0o7777 == 0o755
    assert trap.stat().st_uid == 0
    assert not (trap / "7").is_symlink()


def program(folder: Path, name: str, text: str) -> None:
    """What the scripts find under that name."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
    (folder / "bin" / name).chmod(0o755)


def epilog(folder: Path, user: int, *, acts: bool = False, **more: str) -> int:
    text = scripts(slurm_release("24.11"), acts=acts)[EPILOG].text
    assert text.count(LEFT) == 1
    text = text.replace(LEFT, f"{folder}/shm {folder}/tmp").replace(SYSV, f"{folder}/sysvipc")
    text = text.replace(JOB_SHM, f"{folder}/shm/headway").replace(JOB_TMP, f"{folder}/job-tmp")
    text = text.replace("/run/headway/", f"{folder}/")
    for part in ("shm/headway", "tmp", "job-tmp"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    env = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_UID": str(user), **more}
    return subprocess.run(["bash", "-c", text], env=env, check=False, timeout=30).returncode


@pytest.mark.parametrize(
    ("code", "waits"),
    [
        pytest.param("0", 0, id="success"),
        pytest.param("256", 10, id="script ended with 1"),
        pytest.param("9", 10, id="killed"),
        pytest.param("1", 0, id="another node is down"),
    ],
)
def test_epilog_waits_for_a_gpu_error_only_if_the_job_failed_by_itself(tmp_path: Path, code: str, waits: int) -> None:
    """slurmctld gives exit code 1 to a job that it has requeued because a node is down: waiting would delay its restart."""
    program(tmp_path, "sleep", f"echo $1 >>{tmp_path}/waited")
    (tmp_path / "waited").touch()
    assert epilog(tmp_path, 0, acts=True, SLURM_JOB_EXIT_CODE=code, SLURM_JOB_GPUS="0,1") == 0
    assert (tmp_path / "waited").read_text().split() == ["0.2"] * waits


def test_epilog_waits_for_the_handling_of_a_gpu_error_that_is_there_already(tmp_path: Path) -> None:
    """Also where another node of the job is down: the requeued job would start on this node before it is drained."""
    (tmp_path / "xid").touch()
    program(tmp_path, "sleep", f"rm {tmp_path}/xid; echo $1 >>{tmp_path}/waited")
    assert epilog(tmp_path, 0, acts=True, SLURM_JOB_EXIT_CODE="1", SLURM_JOB_GPUS="0") == 0
    assert (tmp_path / "waited").read_text().split() == ["0.2"]


def test_epilog_of_a_job_that_headway_holds_waits_whatever_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "hold").mkdir()
    (tmp_path / "hold" / "7").touch()
    program(tmp_path, "sleep", f"rm {tmp_path}/hold/7; echo $1 >>{tmp_path}/waited")
    assert epilog(tmp_path, 0, acts=True, SLURM_JOB_EXIT_CODE="1", SLURM_JOB_GPUS="0") == 0
    assert (tmp_path / "waited").read_text().split() == ["0.2"]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to somebody else")
def test_epilog_removes_leftover_files_and_keeps_those_of_next_job(tmp_path: Path) -> None:
    """The next one begins just after the epilog has seen that there is none."""
    for name in ("shm/left", "tmp/deep/er/left", "tmp/other"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "shm/headway/8").mkdir(parents=True)
    (tmp_path / "shm/headway/8/early").touch()
    subprocess.run(["chown", "-R", "20000", f"{tmp_path}/shm", f"{tmp_path}/tmp/deep"], check=True, timeout=30)
    new = " ".join(f"{tmp_path}/{name}" for name in ("shm/headway/8/batch", "shm/new", "tmp/new"))
    program(tmp_path, "find", f'touch {new}; chown 20000 {new}; exec /usr/bin/find "$@"')
    assert epilog(tmp_path, 20000) == 0
    there = {str(path.relative_to(tmp_path)) for part in ("shm", "tmp") for path in (tmp_path / part).rglob("*")}
    own = {"shm/headway", "shm/headway/8", "shm/headway/8/early", "shm/headway/8/batch"}
    assert there == own | {"shm/new", "tmp/new", "tmp/other"}


def folders(folder: Path) -> list[str]:
    """Returns the numbers of the folders of jobs, and the number of folders in shared memory."""
    return [*sorted(path.name for path in (folder / "job-tmp").iterdir()), len([*(folder / "shm/headway").iterdir()])]


def test_epilog_of_a_former_job_leaves_the_folders_of_a_later_one_with_its_number(tmp_path: Path) -> None:
    """A slurmctld that was killed before it saved its state gives numbers again. slurmd starts the epilog of the former
    job at the end of the later one's prolog."""
    assert prolog(tmp_path) == 0
    (tmp_path / "job-tmp/7/started").touch()
    (tmp_path / "job-tmp/7/tmp/former").touch()
    assert prolog(tmp_path) == 0
    assert not [*(tmp_path / "job-tmp/7/tmp").iterdir()], "the later job gets an empty /tmp"
    assert epilog(tmp_path, 20000) == 0
    assert folders(tmp_path) == ["7", 1]
    assert (tmp_path / "job-tmp/7/uid").read_text() == "20000\n"
    assert (tmp_path / "job-tmp/7/shm").resolve().is_dir()
    (tmp_path / "job-tmp/7/started").touch()
    assert epilog(tmp_path, 20000) == 0
    assert folders(tmp_path) == [0]


def test_prolog_during_the_epilog_of_a_former_job_with_its_number_keeps_its_folders(tmp_path: Path) -> None:
    assert prolog(tmp_path) == 0
    (tmp_path / "job-tmp/7/started").touch()
    (tmp_path / "hold").mkdir()
    (tmp_path / "hold/7").touch()  # the epilog waits, and `sleep` is the moment of the prolog
    program(
        tmp_path, "sleep", f"rm {tmp_path}/hold/7; echo $$ >{tmp_path}/waits; while [ -e {tmp_path}/waits ]; do :; done"
    )
    former = threading.Thread(target=epilog, args=(tmp_path, 20000), kwargs={"acts": True})
    former.start()
    while not (tmp_path / "waits").exists():
        assert former.is_alive()
    assert prolog(tmp_path) == 0
    (tmp_path / "job-tmp/7/started").touch()
    (tmp_path / "waits").unlink()
    former.join()
    assert folders(tmp_path) == ["7", 1]
    assert (tmp_path / "job-tmp/7/shm").resolve().is_dir()


def test_folders_of_a_former_job_without_an_epilog_are_deleted_with_those_of_the_later_one(tmp_path: Path) -> None:
    """A killed slurmd may run none."""
    program(tmp_path, "systemd-run", 'exec "${@:4}"')
    for _ in range(3):
        assert prolog(tmp_path) == 0
    assert folders(tmp_path) == ["7", "7.former", 2]
    (tmp_path / "job-tmp/7/started").touch()
    assert epilog(tmp_path, 20000) == 0
    assert folders(tmp_path) == [0]


def test_secrets_of_a_former_job_are_deleted_although_the_other_folders_are_deleted_at_once(tmp_path: Path) -> None:
    program(tmp_path, "systemd-run", 'exec "${@:4}"')
    program(tmp_path, "agent", 'echo value >"$2/wandb"')
    for _ in range(3):
        assert prolog(tmp_path, secrets="wandb") == 0
    assert {len([*(tmp_path / "job-secrets").iterdir()]), len([*(tmp_path / "shm/headway").iterdir()])} == {2}


@pytest.mark.parametrize("link", ["shm", "secrets"])
def test_prolog_deletes_no_folder_outside_of_those_of_the_former_job(tmp_path: Path, link: str) -> None:
    program(tmp_path, "systemd-run", 'exec "${@:4:4}"')  # rm has come to the first folder
    program(tmp_path, "agent", "exit 0")
    for _ in range(2):
        assert prolog(tmp_path, secrets="wandb") == 0
    planted, victim = tmp_path / "job-tmp/7.former" / link, tmp_path / "home"
    victim.mkdir()
    planted.unlink()
    planted.symlink_to(victim)
    assert prolog(tmp_path, secrets="wandb") == 0
    assert victim.is_dir()


def test_job_and_not_the_node_fails_when_the_program_for_secrets_fails(tmp_path: Path) -> None:
    program(tmp_path, "agent", "exit 1")
    assert prolog(tmp_path, secrets="wandb") == 0
    sentence = (tmp_path / "job-tmp/7/secrets-error").read_text()
    assert (
        sentence
        == f"headway: {os.uname().nodename} can't fetch the job's secrets: tell an administrator, submit again\n"
    )


def test_epilog_moves_slow_cleanup_to_background(tmp_path: Path) -> None:
    program(tmp_path, "timeout", f'echo "$@" >>{tmp_path}/asked; exit 124')
    program(tmp_path, "systemd-run", f'echo "$@" >>{tmp_path}/asked')
    assert epilog(tmp_path, 20000) == 0
    first, beside, *memory = (tmp_path / "asked").read_text().splitlines()
    assert memory == ["10 xargs -r -n 1000 ipcrm"] * 3, "nor does shared memory that takes its time to go"
    assert first.startswith(f"30 find {tmp_path}/shm {tmp_path}/tmp -xdev ")
    assert beside == "--quiet --collect --no-block " + first.removeprefix("30 ")


SHM = "       key      shmid perms  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime\n"
SEM = "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n"
MSG = "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      ctime\n"


def sysv(folder: Path, later: int = 2**33) -> None:
    """Of uid 20000: two that nobody uses, one that somebody has attached, one that is newer than this moment; and another's,
    which its maker has given to this person."""
    place = folder / "sysvipc"
    place.mkdir()
    row = "{key:10} {id:10}  1600 4096 11 12 {n:6} {uid:5} 20000 {made:5} 20000 0 0 {at:10}\n"
    rows = [(3, 0, 20000, 20000, 9), (4, 1, 20000, 20000, 9), (5, 0, 20000, 20000, later), (6, 0, 20000, 20001, 9)]
    shm = [row.format(key=0, id=number, n=n, uid=uid, made=made, at=at) for number, n, uid, made, at in rows]
    (place / "shm").write_text(SHM + "".join(shm) + row.format(key=1, id=7, n=0, uid=20001, made=20000, at=9))
    (place / "sem").write_text(
        SEM + "         0         0   600          1 20000 20000 20000 20000          0          9\n"
    )
    (place / "msg").write_text(MSG + "         0        70   600 0 0 0 0 20001 20001 20001 20001 0 0 9\n")


def test_epilog_removes_sysv_ipc_after_last_job_of_user(tmp_path: Path) -> None:
    sysv(tmp_path)
    program(tmp_path, "ipcrm", f'echo "$@" >>{tmp_path}/removed')
    (tmp_path / "job-tmp/8").mkdir(parents=True)
    (tmp_path / "job-tmp/8/uid").write_text("20000\n")
    assert epilog(tmp_path, 20000) == 0
    assert not (tmp_path / "removed").exists(), "it may be the other job's"
    (tmp_path / "job-tmp/8/uid").unlink()
    assert epilog(tmp_path, 20000) == 0
    assert (tmp_path / "removed").read_text().splitlines() == ["-m 3 -m 7", "-s 0"]


def test_epilog_cleans_all_world_writable_folders() -> None:
    assert {"/dev/shm", "/dev/mqueue", PMIX, "/tmp", "/var/tmp"} == set(LEFT.split())


@pytest.mark.parametrize(("kind", "program", "folder"), [("prolog", PROLOG, PROLOGS), ("epilog", EPILOG, EPILOGS)])
def test_site_scripts_run_in_order_and_the_first_failure_is_the_nodes_reason(
    tmp_path: Path, kind: str, program: str, folder: str
) -> None:
    site, ran = tmp_path / "site", tmp_path / "ran"
    site.mkdir()
    (tmp_path / "bin").mkdir()
    for name, code in (("01-mounts.sh", 0), ("02-licence.sh", 3), ("03-never.sh", 0)):
        (site / name).write_text(f"#!/bin/sh\necho $SLURM_JOB_ID {name} >>{ran}\nexit {code}\n")
        (site / name).chmod(0o700)
    (tmp_path / "bin/scontrol").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/scontrol\n')
    (tmp_path / "bin/scontrol").chmod(0o755)
    text = scripts(slurm_release("24.11"))[program].text
    loop = "for script in " + text.split("for script in ", 1)[1].replace(folder, str(site))
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "lab-1-1"}
    done = subprocess.run(["bash", "-c", loop], env=env, check=False, timeout=30, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, f"headway: site {kind} 02-licence.sh: exit code 3\n")
    assert ran.read_text() == "7 01-mounts.sh\n7 02-licence.sh\n"
    asked = (tmp_path / "scontrol").read_text().splitlines()
    assert asked == ["update", "nodename=lab-1-1", "state=drain", f"reason=site {kind} 02-licence.sh: exit code 3"]
