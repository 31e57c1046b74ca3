"""Resource limits of login sessions on every machine (limits.d). The share of the head's CPUs and memory that users get is in
`head_user_limits`."""

from __future__ import annotations

from headway.render.escaping import script


def login_limits() -> str:
    """Returns the resource limits of login sessions."""
    return script(
        "# Locked memory for network cards, many open files for data loaders. Jobs have Slurm's limits.",
        "* soft nofile 16384",
        "* - memlock unlimited",
        "# No core files by default; `ulimit -c unlimited` enables them.",
        "* soft core 0",
    )
