"""Files of users on every machine (libnss-extrausers): accounts, locked accounts of departed users, and SSH keys; and the
system users of heads."""

from __future__ import annotations

from collections.abc import Iterator

from headway.domain.cluster import Cluster
from headway.domain.machines.managed_file import File
from headway.domain.machines.site import Site
from headway.domain.teams import User
from headway.errors import Fault, InvalidSpec
from headway.render.escaping import MARK, one_line, path, require_word, script

FOLDER = "/var/lib/extrausers"
KEYS = "/etc/ssh/headway_keys"


def people(cluster: Cluster, site: Site) -> dict[str, File]:
    """Returns passwd, group, shadow and one key file per user. These formats have no comments."""
    rows = list(_rows(cluster, site))
    passwd = [
        f"{name}:x:{uid}:{uid}:{name}:{cluster.storage.home}/{name}:{'/usr/sbin/nologin' if gone else '/bin/bash'}"
        for name, uid, gone in rows
    ]
    group = [f"{name}:x:{uid}:" for name, uid, _ in rows]
    # No password works ("*"). The account of a departed user expired on day 1 of 1970, so that no key works either.
    shadow = [f"{name}:{'!' if gone else '*'}:19000:0:99999:7::{'1' if gone else ''}:" for name, _, gone in rows]
    path(cluster.storage.home, "storage.home")
    return {
        f"{FOLDER}/passwd": File(_text(passwd)),
        f"{FOLDER}/group": File(_text(group)),
        f"{FOLDER}/shadow": File(_text(shadow), mode=0o640, group="shadow"),
        **_key_files(cluster, site),
    }


def _key_files(cluster: Cluster, site: Site) -> dict[str, File]:
    """Returns one key file per user. A user that Headway signs in as on owned machines gets a file too, so that the
    sign-in does not depend on /home; it may also be a user of the cluster."""
    known = site.own.operators if site.own else {}
    lines = {user.name: _keys(user) for user in cluster.users}
    for name, keys in known.items():
        ours = [one_line(key, "hosts") for key in keys if key]
        if ours and name != "root":
            lines.setdefault(require_word(name, "hosts"), []).extend(ours)
    return {f"{KEYS}/{name}": _key_file(keys) for name, keys in lines.items()}


def key_file(user: User) -> File:
    """Returns the file of the user's SSH keys, for users that Headway does not sign in as."""
    return _key_file(_keys(user))


def _key_file(keys: list[str]) -> File:
    return File(_text([f"# {MARK}", *keys]))


def _rows(cluster: Cluster, site: Site) -> Iterator[tuple[str, int, bool]]:
    for name in sorted({*(user.name for user in cluster.users), *site.departed}):
        if name not in site.uids:
            raise InvalidSpec([Fault("teams", f"no uid was given to {name!r}")])
        gone = name in site.departed
        yield require_word(name, "teams"), site.uids[name], gone


def _keys(user: User) -> list[str]:
    return [one_line(key.strip(), f"ssh_keys of {user.name}") for key in user.ssh_keys]


def _text(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)


def nsswitch() -> str:
    """Returns /etc/nsswitch.conf."""
    return f"""\
# {MARK}
# The cluster's users are in /var/lib/extrausers, with the same ids on every machine; machine names are in /etc/hosts.
passwd:         files extrausers
group:          files extrausers
shadow:         files extrausers
gshadow:        files
hosts:          files dns
networks:       files
protocols:      db files
services:       db files
ethers:         db files
rpc:            db files
"""


def sysusers() -> str:
    """Returns the system users that a head needs."""
    return script(
        "# Runs slurmrestd, which refuses root and SlurmUser.",
        'u slurmrestd - "Slurm REST daemon"',
        "# Slurm operator for actions of people whose rights Headway's server has checked.",
        'u headway - "Headway operator"',
    )
