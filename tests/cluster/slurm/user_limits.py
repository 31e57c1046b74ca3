"""The limits of a person's sessions on the head."""

from __future__ import annotations


def is_limited(cgroups: str, uid: str) -> bool:
    """Returns whether a process with this /proc/self/cgroup is under the limits of a person's sessions on the head."""
    memory = [line for line in cgroups.splitlines() if ":memory:" in line]  # cgroup v1
    if memory:
        return memory[0].endswith(f"/headway-users/{uid}") or f"/user.slice/user-{uid}.slice/" in memory[0]
    return f"0::/user.slice/user-{uid}.slice/" in cgroups
