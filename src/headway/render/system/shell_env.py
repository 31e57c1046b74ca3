"""The shell environment of users and jobs: modules, limits, mail."""

from __future__ import annotations

from headway.domain import environment as software
from headway.domain.cluster import Cluster
from headway.render.escaping import MARK, script, word

MODULES = "/opt/modulefiles"  # of the cluster's administrator
_MODULEPATH = f"{software.MODULES}:{MODULES}"


def profile() -> str:
    """Returns the part of /etc/profile that makes `module` find the modules."""
    return script(
        "# Modules of this cluster; `module avail` lists them.",
        'case ":${MODULEPATH:-}:" in',
        f"    *:{software.MODULES}:*) ;;",
        f'    *) export MODULEPATH="{_MODULEPATH}${{MODULEPATH:+:$MODULEPATH}}" ;;',
        "esac",
    )


def environment() -> str:
    """Returns /etc/environment, which PAM reads for every session, with or without a login shell, so that `module`
    works in batch scripts."""
    return script(
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        f"MODULEPATH={_MODULEPATH}:/etc/lmod/modules:/usr/share/lmod/lmod/modulefiles",
        "# bash reads this file when it starts a script; it defines the function `module`.",
        "BASH_ENV=/usr/share/lmod/lmod/init/bash",
    )


def module_pytorch() -> str:
    """Returns the module file of PyTorch."""
    return f"""\
-- {MARK}
help([[The PyTorch of the node image: python3 and torchrun.]])
whatis("Name: pytorch")
family("framework")
setenv("HEADWAY_MODULE_PYTORCH", "system")
"""


def limits() -> str:
    """Returns the resource limits of login sessions."""
    return script(
        "# Locked memory for network cards, many open files for data loaders. Jobs have Slurm's limits.",
        "* soft nofile 16384",
        "* - memlock unlimited",
        "# No core files by default; `ulimit -c unlimited` enables them.",
        "* soft core 0",
    )


def msmtprc(cluster: Cluster) -> str:
    """Returns the configuration for mail of --mail-type. Raises InvalidSpec for a relay that is not host:port."""
    host, _, port = cluster.mail_relay.partition(":")
    return script(
        "defaults",
        "tls off",
        "auth off",
        "syslog LOG_MAIL",
        "account default",
        f"host {word(host, 'mail_relay')}",
        f"port {word(port or '25', 'mail_relay')}",
        f"from slurm@{word(cluster.name, 'name')}",
    )
