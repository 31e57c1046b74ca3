"""The site's own prolog, epilog and job_submit.lua run in addition to Headway's; a broken one is named and stops no
submission."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.lab import Lab

SPEC = """\
name: site
plan: cpu-64
nodes: 2
pbs_variables: true
teams: {vision: {users: [alice]}}
scripts: {prolog: [10-note.sh, 20-breaks.sh], epilog: [note.sh], job_submit: job_submit.lua}
"""
NOTE = '#!/bin/sh\necho "$SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID" >>/var/log/site-notes\n'
LUA = """\
function slurm_job_submit(job, parts, uid)
    if job.comment == "forbidden" then
        slurm.log_user("the site says no")
        return slurm.ERROR
    end
    return slurm.SUCCESS
end
function slurm_job_modify(job, old, parts, uid)
    return slurm.SUCCESS
end
"""


@pytest.fixture
def lab(node_image: None, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path / "state", name="site")
    for name, text in {
        "10-note.sh": NOTE,
        "20-breaks.sh": "#!/bin/sh\n[ ! -e /etc/site-breaks ] || exit 3\n",
        "note.sh": NOTE,
        "job_submit.lua": LUA,
    }.items():
        (made.state / name).write_text(text)
    with made.applied(SPEC):
        yield made


def notes(lab: Lab, node: str) -> str:
    return lab.podman("exec", lab.container(node), "cat", "/var/log/site-notes")


def test_scripts_of_the_site_run_and_broken_ones_are_named(lab: Lab) -> None:
    first = lab.sbatch("alice", "-w", "site-1-1", wrap="true")
    lab.wait_job(first, "COMPLETED")
    wanted = f"prolog_slurmd {first}\nepilog_slurmd {first}\n"
    lab.wait(lambda: notes(lab, "site-1-1") == wanted, "both notes", seen=lambda _: notes(lab, "site-1-1"))
    refused = lab.head("srun", "--comment=forbidden", "true", user="alice", check=False)
    assert "the site says no" in refused.err

    file = lab.state / "job_submit.lua"
    file.write_text(LUA + "function broken( end\n")
    plan = lab.cli("plan", str(lab.state / "site.yaml"))
    assert "/etc/slurm/job_submit.lua" in plan.out
    apply = lab.cli("apply", str(lab.state / "site.yaml"), "--yes", check=False)
    assert apply.code != 0
    assert "Slurm refuses the new configuration; the old one stays" in apply.err
    assert "job_submit.lua:11:" in apply.err
    assert "the site says no" in lab.head("srun", "--comment=forbidden", "true", user="alice", check=False).err
    file.write_text(LUA.replace("the site says no", "the site changed its mind"))
    lab.cli("apply", str(lab.state / "site.yaml"), "--yes")
    assert "changed its mind" in lab.head("srun", "--comment=forbidden", "true", user="alice", check=False).err

    lab.podman("exec", lab.container("site-1-1"), "touch", "/etc/site-breaks")
    moved = lab.sbatch("alice", "--exclusive", wrap="true")
    lab.wait_job(moved, "COMPLETED")
    assert lab.field(moved, "NodeList") == "site-1-2"
    assert "site prolog 02-20-breaks.sh: exit code 3 site-1-1" in lab.head("sinfo", "-hR", "-o", "%E %N").out


PBS = """\
#!/bin/bash
#PBS -N heat
#PBS -l nodes=2:ppn=1
cd $PBS_O_WORKDIR
echo $PBS_JOBNAME $PBS_JOBID $MODE $(pwd)
cat $PBS_NODEFILE
srun -N2 -n2 sh -c 'echo step $PBS_JOBID'
"""


def test_script_of_pbs_runs_unchanged(lab: Lab) -> None:
    lab.head("sh", "-c", "mkdir -p ~/run && cat >~/run/heat.pbs", stdin=PBS, user="alice")
    # As qsub -V -v MODE=fast -N heat of Debian's slurm-wlm-torque calls it
    line = "cd ~/run && sbatch --parsable -o heat.out --export=all,MODE=fast heat.pbs"
    job = lab.head("sh", "-c", line, user="alice").out.strip()
    assert lab.wait_job(int(job)) == "COMPLETED"
    head = f"heat {job} fast /home/alice/run"
    assert lab.output("/home/alice/run/heat.out").splitlines() == [head, "site-1-1", "site-1-2", *[f"step {job}"] * 2]
