"""What a job can do to jobs of other users on its node."""

from __future__ import annotations

from collections.abc import Callable

from tests.cluster.lab import Lab
from tests.security.tenants.conftest import NODE

Attack = Callable[[str], str]

_PLANT = """\
for job in $(seq {first} {last}); do
    mkdir /run/headway/pmix/spmix_appdir_{uid}_$job.0 2>/dev/null
done
ls /run/headway/pmix | grep -c _{uid}_
"""
_FILL = """\
srun --overlap sh -c 'own=$(echo /run/headway/pmix/spmix_appdir_$(id -u)_*); i=0
    dd if=/dev/zero of=$own/data bs=1M 2>/dev/null
    while [ $i -lt 66000 ] && : >$own/$i; do i=$((i+1)); done; echo $i'
"""
# Threads count as processes and need less memory. Without a limit it stops by itself. It stays while the attack's job runs.
_BOMB = """\
python3 - >count 2>&1 <<'END' &
import threading
threading.stack_size(65536)
count, end = 1, threading.Event()
try:
    while count < 12000:
        threading.Thread(target=end.wait, daemon=True).start()
        count += 1
except RuntimeError as error:
    print(error)
print(count, "threads", flush=True)
end.wait()
END
until grep -q threads count; do sleep 0.2; done
cat count
"""


def test_step_folders_cannot_be_created_by_users(lab: Lab, attack: Attack) -> None:
    """slurmstepd creates a folder for each step, and its name can be guessed; an existing one would prevent the step."""
    uid = lab.head("id", "-u", "carol").out.strip()
    now = lab.sbatch("carol", "--hold", wrap="true")
    lab.head("scancel", str(now))
    assert attack(_PLANT.format(uid=uid, first=now, last=now + 30)).strip() == "0"
    assert lab.head("srun", "-w", NODE, "hostname", user="carol").out.strip() == NODE


def test_a_full_step_folder_prevents_no_steps_of_others(lab: Lab, attack: Attack) -> None:
    assert attack(_FILL).split()[-1] == "66000"
    assert lab.head("srun", "-w", NODE, "hostname", user="carol").out.strip() == NODE


def test_users_see_only_their_own_processes_on_a_node(lab: Lab, attack: Attack) -> None:
    victim = lab.sbatch("carol", "-w", NODE, wrap="python3 -c 'import time; time.sleep(600)' --password=secret1")
    lab.wait_job(victim, "RUNNING")
    seen = attack("ps -eo user:20,args; systemctl status --full --no-pager")
    lab.head("scancel", str(victim))
    assert "secret1" not in seen
    assert {row.split()[0] for row in seen.splitlines()[1:] if "ps -eo" in row} == {"alice"}


def test_one_user_cannot_use_up_the_processes_of_a_node(lab: Lab, attack: Attack) -> None:
    """While alice has all threads that she may have, carol's step starts."""
    found = attack(_BOMB)
    assert "can't start new thread" in found
    assert int(found.split()[-2]) <= 8192
    assert lab.head("srun", "-w", NODE, "hostname", user="carol").out.strip() == NODE
