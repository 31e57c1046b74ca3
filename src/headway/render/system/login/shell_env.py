"""The shell environment of users and jobs: /etc/environment, and the part of /etc/profile that finds module files."""

from __future__ import annotations

from headway.domain import environment as software
from headway.render.escaping import script
from headway.render.system.login.module_files import MODULES

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
