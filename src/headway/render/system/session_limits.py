"""Limits of user sessions on heads with cgroup v1, whose controllers systemd does not manage.

With cgroup v2 the drop-ins of user.slice do the same (`systemd_files.user_limits`)."""

from __future__ import annotations

from headway.render.escaping import MARK

PROGRAM = "/usr/local/libexec/headway-session"
ONE_MEMORY_PERCENT, ALL_MEMORY_PERCENT = 33, 75
ONE_TASKS, ALL_TASKS = 2048, 16384


def one_cpu_percent(cpus: int) -> int:
    """Returns half of the head's CPUs, but at least one, in percent of a CPU."""
    return max(100, cpus * 50)


def session_program(cpus: int) -> str:
    """Returns the program that PAM runs as root when a session opens. Its parent process is sshd; the session is
    another child of sshd."""
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
put memory memory.limit_in_bytes $((total / 100 * {ALL_MEMORY_PERCENT})) $((total / 100 * {ONE_MEMORY_PERCENT}))
put pids pids.max {ALL_TASKS} {ONE_TASKS}
put cpu cpu.cfs_quota_us -1 {one_cpu_percent(cpus) * 1000}
exit 0
"""
