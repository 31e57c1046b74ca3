"""The submission helper runs under the user's login limits; a killed helper is replaced or gives one clear error."""

from __future__ import annotations

import threading

from tests.cluster.lab import Lab
from tests.cluster.slurm.user_limits import is_limited

from headway.errors import HeadwayError, Unreachable

HELD = "#!/bin/bash\n#SBATCH --hold --output=/dev/null\ntrue\n"
FIND = """
import glob, json, sys
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try: words = open(path, errors="replace").read().split("\\0")
    except OSError: continue
    if words[-2:-1] == [json.dumps({"do": "serve", "user": sys.argv[1]})] and words[0] == "python3":
        print(path.split("/")[2])
"""
SLOW = """#!/bin/sh
echo >>"$HOME/helper-began"
while [ ! -e "$HOME/helper-goes-on" ]; do sleep 0.05; done
exec /usr/bin/sbatch "$@"
"""


def helpers(lab: Lab, user: str) -> list[str]:
    """Returns the process ids of the user's helpers on the head."""
    return lab.head("python3", "-c", FIND, user).out.split()


def jobs(lab: Lab, user: str) -> list[str]:
    return lab.head("squeue", "-h", "-u", user, "-o", "%A").out.split()


def test_one_helper_per_user_submits_under_login_limits_and_is_replaced(lab: Lab) -> None:
    made = [lab.submit(HELD, user="carol") for _ in range(3)]
    (helper,) = helpers(lab, "carol")
    uid, mine = lab.head("id", "-u", "carol").out.strip(), ("oom_score_adj", "cgroup")
    its = lab.head("cat", *(f"/proc/{helper}/{name}" for name in mine)).out
    command = lab.head("cat", *(f"/proc/self/{name}" for name in mine), user="carol").out
    assert its.splitlines()[0] == command.splitlines()[0] == "500"
    assert is_limited(its, uid) == is_limited(command, uid)
    assert {lab.field(job, "UserId").partition("(")[0] for job in made} == {"carol"}
    for _ in range(5):  # at the same moment, so that some reach a helper that is dead and not yet known to be
        lab.head("kill", "-9", helper)
        made.append(lab.submit(HELD, user="carol"))  # without an error
        made.append(lab.submit(HELD, user="carol"))
        (helper,) = helpers(lab, "carol")
    assert sorted(map(int, jobs(lab, "carol"))) == sorted(made)
    lab.head("scancel", "-u", "carol")


def test_killed_helper_gives_one_error_and_at_most_one_job(lab: Lab) -> None:
    """sbatch was running by then and may or may not have continued: the error says to look at the queue."""
    lab.head("mkdir", "-p", "bin", user="sam")
    lab.head("sh", "-c", "cat >bin/sbatch; chmod 755 bin/sbatch", user="sam", stdin=SLOW)
    lab.head("sh", "-c", "cat >.bash_profile", user="sam", stdin='PATH="$HOME/bin:$PATH"\n')
    said: list[HeadwayError] = []

    def send() -> None:
        try:
            lab.submit(HELD, user="sam")
        except HeadwayError as error:
            said.append(error)

    sending = threading.Thread(target=send)
    sending.start()
    lab.wait(lambda: lab.head("test", "-e", "/home/sam/helper-began", check=False).code == 0, "sbatch to begin")
    lab.head("kill", "-9", *helpers(lab, "sam"))
    sending.join(120)  # longer than the server waits for a submission
    (error,) = said
    assert isinstance(error, Unreachable)
    assert "did not report whether the job is submitted" in error.message
    assert "headway queue" in error.hint
    lab.head("touch", "helper-goes-on", user="sam")
    assert lab.head("cat", "/home/sam/helper-began").out == "\n"  # sbatch was started once
    lab.head("rm", "-r", "bin", ".bash_profile", "helper-began", "helper-goes-on", user="sam")
    again = lab.submit(HELD, user="sam")
    assert str(again) in jobs(lab, "sam")
    assert len(jobs(lab, "sam")) <= 2
    lab.head("scancel", "-u", "sam")
