"""cgroup.conf."""

from __future__ import annotations

from headway.render.escaping import MARK, commented_setting, slurm_text
from headway.render.slurm.conf_syntax import ConfLine


def cgroup_conf(*, pretends: bool, old: bool = False) -> str:
    """Returns cgroup.conf. `old`: the host has cgroup v1. There Slurm's autodetection fails, because it looks at the
    file system on /sys/fs/cgroup, which a newer systemd has mounted for itself
    (node/image/rootfs/usr/lib/headway/init)."""
    lines = [
        ConfLine(comment=MARK),
        *commented_setting("CgroupPlugin", "cgroup/v1" if old else "autodetect"),
        *commented_setting("ConstrainDevices", "yes", "A job can open only the GPUs that are allocated to it."),
        *commented_setting(
            "ConstrainRAMSpace",
            "yes",
            "A job that exceeds its memory is killed; other jobs are not, and it does not swap.",
        ),
        *commented_setting("ConstrainSwapSpace", "yes"),
    ]
    if pretends:
        lines += commented_setting(
            "ConstrainCores", "no", "The local machine has fewer cores than its node definition."
        )
    else:
        lines += commented_setting("ConstrainCores", "yes", "A job runs only on its allocated cores.")
    return slurm_text(lines, "cgroup.conf")
