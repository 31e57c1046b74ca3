"""cgroup.conf."""

from __future__ import annotations

from headway.render.escaping import MARK, pair, slurm_text
from headway.render.slurm.conf_syntax import Line


def cgroup_conf(*, pretends: bool, old: bool = False) -> str:
    """Returns cgroup.conf. `old`: the host has cgroup v1. There Slurm's autodetection fails, because it looks at the
    file system on /sys/fs/cgroup, which a newer systemd has mounted for itself
    (node/image/rootfs/usr/lib/headway/init)."""
    lines = [
        Line(comment=MARK),
        *pair("CgroupPlugin", "cgroup/v1" if old else "autodetect"),
        *pair("ConstrainDevices", "yes", "A job can open only the GPUs that are allocated to it."),
        *pair(
            "ConstrainRAMSpace",
            "yes",
            "A job that exceeds its memory is killed; other jobs are not, and it does not swap.",
        ),
        *pair("ConstrainSwapSpace", "yes"),
    ]
    if pretends:
        lines += pair("ConstrainCores", "no", "The local machine has fewer cores than its node definition.")
    else:
        lines += pair("ConstrainCores", "yes", "A job runs only on its allocated cores.")
    return slurm_text(lines, "cgroup.conf")
