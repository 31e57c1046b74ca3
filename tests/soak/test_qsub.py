"""Users of PBS keep qsub, qstat and qdel: Debian's slurm-wlm-torque, installed on the head of a cluster, with the variables
of PBS in each job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from headway.images.podman import Podman
from tests.cluster.lab import Lab
from tests.cluster.providers.bare_machines import run

pytestmark = pytest.mark.soak
USER = "alice"
NAME = "pbs"
SPEC = """\
name: pbs
image: IMAGE
plan: cpu-64
nodes: 2
pbs_variables: true
teams: {vision: {users: [alice]}}
"""
# A script as users of PBS bring it. It names no program of Slurm but srun, as mpirun of a PBS site would be.
HEAT = """\
#!/bin/bash
#PBS -N heat
#PBS -l nodes=2:ppn=1,walltime=00:05:00
cd $PBS_O_WORKDIR
echo $PBS_JOBNAME $MODE $PBS_O_LOGNAME $PBS_NP $PBS_NUM_NODES $(pwd)
cat $PBS_NODEFILE
srun -N2 -n2 sh -c 'echo step $PBS_JOBID'
"""
# Head and nodes of a local cluster reach no package index: a container with the host's network downloads what is missing.
DOWNLOAD = """\
apt-get --quiet update
apt-get --quiet --yes --no-install-recommends --download-only install slurm-wlm-torque
mv /var/cache/apt/archives/*.deb /packages/
"""


@pytest.fixture(scope="module", params=["debian13", "debian12"])  # Slurm 24.11 and 22.05
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("pbs")
    made = Lab(folder / "state", name=NAME, image=request.param)
    tag = made.cli("image", "build", made.image, timeout_s=1800).out.split()[0]
    packages = folder / "packages"
    packages.mkdir()
    podman = Podman(folder)
    limits = asyncio.run(podman.limits(tag))
    options = (
        "--rm",
        "--label",
        "headway=1",
        "--network",
        "host",
        "--pull",
        "never",
        "--volume",
        f"{packages}:/packages",
    )
    run(*podman.base(), "run", *options, *limits, tag, "sh", "-ec", DOWNLOAD, timeout_s=600)
    with made.applied(SPEC.replace("IMAGE", made.image)):
        made.podman("cp", str(packages), f"{made.container(f'{NAME}-head')}:/root/packages")
        made.head("sh", "-c", "dpkg --install /root/packages/*.deb")
        made.head("mkdir", "-p", f"/home/{USER}/run", user=USER)
        yield made


def in_folder(lab: Lab, line: str, script: str = "") -> str:
    """Returns the output of a line that the user types in the folder of job.pbs, which is `script`."""
    if script:
        lab.head("sh", "-c", "cat >~/run/job.pbs", user=USER, stdin=script)
    return lab.head("sh", "-c", f"cd ~/run && {line}", user=USER).out.strip()


def log(lab: Lab, name: str) -> list[str]:
    return lab.output(f"/home/{USER}/run/{name}", user=USER).splitlines()


def test_script_of_pbs_is_submitted_by_qsub_and_runs_to_its_end(lab: Lab) -> None:
    job = in_folder(lab, "MODE=fast qsub -V job.pbs", HEAT)
    assert lab.wait_job(int(job)) == "COMPLETED", lab.why(job)
    head = f"heat fast {USER} 2 2 /home/{USER}/run"
    assert log(lab, f"job.pbs.o{job}") == [head, f"{NAME}-1-1", f"{NAME}-1-2", *[f"step {job}"] * 2]
    assert log(lab, f"job.pbs.e{job}") == []
    assert lab.head("sacct", "-X", "-n", "-P", "-o", "Timelimit,NNodes", "-j", job).out.strip() == "00:05:00|2"


def test_options_of_qsub_replace_those_of_the_script(lab: Lab) -> None:
    options = "-V -v MODE=slow -N cold -l nodes=1:ppn=2,walltime=00:02:00"
    script = "#!/bin/bash\n#PBS -N heat\n#PBS -l nodes=2:ppn=1\necho $PBS_JOBNAME $PBS_NUM_NODES $PBS_NUM_PPN $MODE\n"
    job = in_folder(lab, f"qsub {options} job.pbs", script)
    assert lab.wait_job(int(job)) == "COMPLETED", lab.why(job)
    assert log(lab, f"cold.o{job}") == ["cold 1 2 slow"]


def test_array_of_qsub_has_an_index_for_each_job(lab: Lab) -> None:
    job = in_folder(lab, "qsub -V -N many -J 1-2 job.pbs", "#!/bin/bash\ntouch done-$PBS_ARRAY_INDEX\n")
    lab.wait_array(int(job.split("[")[0]))
    assert in_folder(lab, "ls -d done-*").split() == ["done-1", "done-2"]


def test_held_job_is_listed_by_qstat_and_removed_by_qdel(lab: Lab) -> None:
    job = in_folder(lab, "qsub -V -h -N waits job.pbs", "#!/bin/bash\ntrue\n")
    rows = [line.split() for line in in_folder(lab, "qstat").splitlines()]
    # qstat of this package has no state for held jobs: Q is "queued".
    assert [(row[1], row[2], row[4]) for row in rows if row and row[0].split(".")[0] == job] == [("waits", USER, "Q")]
    assert lab.field(job, "Reason") == "JobHeldUser"
    in_folder(lab, f"qdel {job}")
    assert lab.wait_job(int(job)) == "CANCELLED"
