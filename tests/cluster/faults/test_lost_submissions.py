"""A controller that is killed in the second in which it accepted jobs loses none of them."""

from __future__ import annotations

from tests.cluster.lab import Lab

SUBMIT = """\
cd ~ && echo '#!/bin/bash
echo "$SLURM_JOB_NAME of $FOO: $1"' > one.sh && export FOO='a b'
sbatch -J script -o script.txt one.sh 'x y'
sbatch -J wrap -o wrap.txt --wrap 'echo wrapped'
input=$(sbatch --parsable -J input -o input.txt < one.sh)
sbatch -J array --array=0-1 -o array-%a.txt --wrap 'echo element'
sbatch -J last -d afterok:$input -o last.txt one.sh
"""


def test_jobs_accepted_just_before_a_slurmctld_kill_are_run(lab: Lab) -> None:
    own = lab.state / "own.sh"
    own.write_text('#!/bin/bash\necho "$SLURM_JOB_NAME: $1"\n')
    before = lab.head("pidof", "slurmctld").out
    # its file on the head is removed at once
    lab.cli("submit", "flt", "--as", "ann", "--output=own.txt", str(own), "z")
    lab.head("bash", "-c", SUBMIT, user="ann")
    lab.head("pkill", "-9", "-x", "slurmctld")
    lab.wait(lambda: lab.head("pidof", "slurmctld", check=False).out not in ("", before), "the controller to be back")
    told = {"script": "script of a b: x y\n", "wrap": "wrapped\n", "input": "input of a b: \n", "own": "own.sh: z\n"}
    told |= {"array-0": "element\n", "array-1": "element\n", "last": "last of a b: \n"}
    for name, text in told.items():
        said = lab.wait(lambda name=name: lab.head("cat", f"{name}.txt", user="ann", check=False).out, f"{name}.txt")
        assert said == text
    ends = "sacct -a -D -X -n -o end -S now-1hours --name script,wrap,input,array,last"
    lab.wait(lambda: "Unknown" not in lab.head("bash", "-c", ends).out, "no run to count as running for ever")
