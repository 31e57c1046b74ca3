"""`headway run --launcher ray`: one Ray of the job's nodes, with a srun and a ray that only start processes here."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PROGRAM, HELPER = ROOT / "node/programs/ray_cluster.py", ROOT / "node/programs/rank_launcher.py"
# Two names of this machine.
FIRST, SECOND = "localhost", "127.0.0.1"
# Runs the words after the options on each node, with a folder of its own for each. `true` says whether all nodes answer.
SRUN = """\
#!/bin/bash
[ "${@: -1}" = true ] && exit "${NO_ANSWER:-0}"
while [ "${1#--}" != "$1" ]; do
    case $1 in --nodelist=*) node=${1#--nodelist=};; esac
    shift
done
exec env SLURMD_NODENAME=$node HEADWAY_SCRATCH="$TMP_OF/$node" "$@"
"""
SCONTROL = f"""\
#!/bin/bash
case $1 in
    show) echo {FIRST} {SECOND};;
    requeue) echo requeued "$2"; kill $PPID;;
esac
"""
SQUEUE = "#!/bin/bash\necho 1\n"
# Listens as Ray's head does, and writes the file that ray start writes last. FAILS: the kind of node on which it fails.
RAY = """\
#!{python}
import os, signal, socket, sys
words = dict(word.partition("=")[::2] for word in sys.argv[2:])
kind = "head" if "--head" in words else "worker"
print("started", kind, flush=True)
if os.environ.get("FAILS") == kind:
    sys.exit(f"no memory left for the {{kind}}")
assert os.environ["RAY_AUTH_MODE"] == "token" and open(os.environ["RAY_AUTH_TOKEN_PATH"]).read()
if kind == "head":
    server = socket.create_server(("", int(words["--port"])))
open(os.path.join(words["--temp-dir"], "ray_current_cluster"), "w").write("x")
if kind == "head" and os.environ.get("FAILS") == "later":
    open(os.environ["TMP_OF"] + "/lost").read()
    sys.exit("the head is lost")
signal.pause()
"""
COMMAND = "import os; print('command', os.environ['RAY_ADDRESS'], os.environ['RAY_AUTH_MODE'])"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment of a job on two nodes, whose programs are stand-ins."""
    commands = {"srun": SRUN, "scontrol": SCONTROL, "squeue": SQUEUE, "ray": RAY.format(python=sys.executable)}
    (tmp_path / "bin").mkdir()
    for name, text in commands.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    for node in (FIRST, SECOND, "work"):
        (tmp_path / node).mkdir()
    return {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "TMP_OF": str(tmp_path), "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "both", "SLURM_JOB_NUM_NODES": "2", "HEADWAY_LAUNCHER": "ray", "SLURM_CPUS_ON_NODE": "1",
    }  # fmt: skip


def run(env: dict[str, str], folder: Path, command: str = COMMAND, **more: str) -> subprocess.CompletedProcess[str]:
    words = subprocess.run(
        [sys.executable, str(HELPER), "quote", sys.executable, "-c", command], capture_output=True, text=True, check=True,
        timeout=60,
    )  # fmt: skip
    return subprocess.run(
        [sys.executable, str(PROGRAM), "job", str(HELPER)], env={**env, **more, "HEADWAY_COMMAND": words.stdout.strip()},
        cwd=folder / "work", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_command_runs_in_one_ray_that_ends_with_it(env: dict[str, str], tmp_path: Path) -> None:
    done = run(env, tmp_path)
    assert done.returncode == 0, done.stderr
    started, said = done.stdout.splitlines()
    address = said.split()[1]
    assert started.startswith(f"--- Ray at {address}, dashboard at http://127.0.0.1:")
    assert said.endswith(" token")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(tuple(address.split(":")), timeout=5)  # type: ignore[arg-type]
    folder = tmp_path / f"work/ray-{env['SLURM_JOB_ID']}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not (folder / "token").exists()


def test_exit_code_of_the_command_is_that_of_the_job(env: dict[str, str], tmp_path: Path) -> None:
    assert run(env, tmp_path, "raise SystemExit(3)").returncode == 3
    assert run(env, tmp_path, "import os; os.kill(os.getpid(), 9)").returncode == 137


@pytest.mark.parametrize(("kind", "node"), [("head", FIRST), ("worker", SECOND)])
def test_ray_that_fails_is_reported_with_its_output(env: dict[str, str], tmp_path: Path, kind: str, node: str) -> None:
    done = run(env, tmp_path, FAILS=kind)
    assert done.returncode == 1
    assert f"headway: Ray on {node} ended with status 1; the end of {tmp_path}/work/ray-" in done.stderr
    assert f"  started {kind}\n  no memory left for the {kind}\n" in done.stderr
    assert "command" not in done.stdout


def test_loss_of_the_head_ends_the_command(env: dict[str, str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lost")
    done = run(env, tmp_path, "import signal; open('../lost', 'w').close(); signal.pause()", FAILS="later")
    assert done.returncode == 1
    assert "the head is lost" in done.stderr


def test_command_that_fails_with_a_lost_node_is_requeued(env: dict[str, str], tmp_path: Path) -> None:
    done = run(env, tmp_path, "raise SystemExit(1)", NO_ANSWER="1")
    assert done.stdout.splitlines()[-2:] == [
        f"--- job {env['SLURM_JOB_ID']} lost a node; waiting to be requeued ---", f"requeued {env['SLURM_JOB_ID']}"
    ]  # fmt: skip
    assert done.returncode == -signal.SIGTERM
