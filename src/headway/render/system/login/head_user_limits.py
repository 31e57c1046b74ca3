"""Limits of users on heads, so that neither one user nor all together can starve the daemons.

With cgroup v2 drop-ins of user.slice set them. With cgroup v1, whose controllers systemd does not manage, a program that PAM
runs for each session sets them."""

from __future__ import annotations

from headway.domain.machines.managed_file import File
from headway.render.escaping import MARK
from headway.render.system.daemon_units import UNITS

SESSION_PROGRAM = "/usr/local/libexec/headway-session"
USER_MEMORY_PERCENT, ALL_USERS_MEMORY_PERCENT = 33, 75
USER_TASKS, ALL_USERS_TASKS = 2048, 16384


def user_cpu_percent(cpus: int) -> int:
    """Returns half of the head's CPUs, but at least one, in percent of a CPU."""
    return max(100, cpus * 50)


def user_slices(cpus: int) -> dict[str, File]:
    """Returns the drop-ins of user.slice, which hold with cgroup v2. `cpus`: CPUs of the head."""
    each = f"""\
# {MARK}
[Slice]
# Limits of each user: half of the CPUs, a third of the memory.
CPUAccounting=yes
CPUQuota={user_cpu_percent(cpus)}%
MemoryAccounting=yes
MemoryMax={USER_MEMORY_PERCENT}%
TasksMax={USER_TASKS}
"""
    everyone = f"""\
# {MARK}
[Slice]
# Limits of all users together: the daemons have priority and keep a quarter of the memory.
CPUWeight=50
MemoryAccounting=yes
MemoryMax={ALL_USERS_MEMORY_PERCENT}%
TasksMax={ALL_USERS_TASKS}
"""
    root = f"""\
# {MARK}
[Slice]
# root is Headway itself and the administrators.
CPUQuota=
MemoryMax=infinity
TasksMax=infinity
"""
    return {
        f"{UNITS}/user-.slice.d/headway.conf": File(each),
        f"{UNITS}/user.slice.d/headway.conf": File(everyone),
        f"{UNITS}/user-0.slice.d/zz-headway.conf": File(root),
    }


def cgroup_v1_session_program(cpus: int) -> str:
    """Returns the program that PAM runs as root when a session opens. With cgroup v1 it moves sshd's process of the
    session, its own parent, into groups with the limits."""
    return f"""\
#!/bin/bash
# {MARK}
# PAM runs this as root when a user's session starts on the head. It always exits with 0, so that it never prevents a login.
[ "${{PAM_TYPE:-}}" = open_session ] || exit 0
uid=$(id -u "$PAM_USER" 2>/dev/null) && [ "$uid" -ge 1000 ] || exit 0
# The OOM killer prefers users' processes to daemons.
echo 500 >"/proc/$PPID/oom_score_adj"
# With cgroup v2 systemd applies the limits of user.slice. With v1 it would apply them only to logins, not to commands that
# users run through Headway, so they are set here.
root=/sys/fs/cgroup
[ -d "$root/memory" ] || exit 0
total=$(awk '/^MemTotal:/ {{print $2 * 1024}}' /proc/meminfo)
put() {{
    mkdir -p "$root/$1/headway-users/$uid" || return
    echo "$3" >"$root/$1/headway-users/$2" && echo "$4" >"$root/$1/headway-users/$uid/$2"
    echo "$PPID" >"$root/$1/headway-users/$uid/cgroup.procs"
}}
put memory memory.limit_in_bytes $((total / 100 * {ALL_USERS_MEMORY_PERCENT})) $((total / 100 * {USER_MEMORY_PERCENT}))
put pids pids.max {ALL_USERS_TASKS} {USER_TASKS}
put cpu cpu.cfs_quota_us -1 {user_cpu_percent(cpus) * 1000}
exit 0
"""
