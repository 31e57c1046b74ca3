"""People of a site: files such as passwd and group, and the directories that nsswitch.conf names.

Not here: accounts and their users (`headway.slurm_import.accounting`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headway.slurm_import.conf_reader import logical_lines
from headway.slurm_import.verdicts import Item, Ledger
from headway.validation.field_types import FIRST_UID_OF_PEOPLE, LAST_UID_OF_PEOPLE, NOBODY

_CHOWN = "the user gets another uid: chown the user's files to it"
_SHELLS = ("bash", "sh", "")
_LOCAL = frozenset(("files", "compat", "systemd", "db", "mymachines", "altfiles"))  # sources of nsswitch.conf
_SCIM = "users of accounts are in the file with their uids; later ones come by the file, or by SCIM: docs/howto/scim.md"
# Databases of nsswitch.conf -> why those of a directory are not carried, and what to do instead
_OF_DIRECTORIES = {
    "passwd": ("users of a cluster are local on each machine", _SCIM),
    "group": ("groups of a cluster are local on each machine", _SCIM),
    "initgroups": ("groups of a cluster are local on each machine", _SCIM),
    "automount": ("mounts of automount maps are not read", "list them under storage.volumes"),
    "sudoers": ("sudo has the rules on each machine only", "write them to /etc/sudoers.d of the machines"),
    "netgroup": ("netgroups are not read", "name their hosts and users where a netgroup is used"),
}


def read_passwd(path: str, text: str, ledger: Ledger, users: Iterable[str]) -> dict[str, int]:
    """Returns the uid of each user of the cluster file. Decides on every line of a passwd file, and on the group, home and
    shell of these users where a cluster has others."""
    wanted, found = set(users), dict[str, int]()
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.strip().split(":")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        uid = int(fields[2]) if len(fields) > 3 and re.fullmatch(r"[0-9]{1,10}", fields[2]) else -1
        item = ledger.read(Item(path, number, fields[0], f"uid {uid}" if uid >= 0 else "no uid"))
        if fields[0] in wanted and uid >= 0:
            if not FIRST_UID_OF_PEOPLE <= uid <= LAST_UID_OF_PEOPLE or uid == NOBODY:
                ledger.dropped(item, f"uid {uid} is one of the system", _CHOWN)
            elif uid in found.values():
                ledger.dropped(item, f"another user has uid {uid} too", _CHOWN)
            else:
                found.setdefault(fields[0], uid)
                ledger.carried(item, f"users.{fields[0]}.uid")
            _read_other_fields(path, number, fields, ledger)
        elif uid < 1000:
            ledger.same(item, "a user of the system")
        else:
            ledger.dropped(item, "the user is in no account", "add the user to a team if they need the cluster")
    return found


def _read_other_fields(path: str, number: int, fields: list[str], ledger: Ledger) -> None:
    """Decides on the home, shell and group of a user."""
    user, context = fields[0], f"passwd={fields[0]}"
    home, shell = (fields[5].rstrip("/"), fields[6]) if len(fields) > 6 else ("", "")
    if home not in ("", f"/home/{user}"):
        item = ledger.read(Item(path, number, "home", home, context))
        ledger.dropped(
            item, "homes of a cluster are /home/USER", "mount the site's homes at /home, or move the folders"
        )
    if shell.rpartition("/")[2] not in _SHELLS:
        item = ledger.read(Item(path, number, "shell", shell, context))
        ledger.dropped(item, "users of a cluster have bash", "users start their shell from ~/.bash_profile")
    if fields[3] not in ("", fields[2]):
        item = ledger.read(Item(path, number, "gid", fields[3], context))
        ledger.dropped(
            item, "the group of a user has the number of the uid",
            "give rights on files of the group by ACLs, or chgrp them to the user",
        )  # fmt: skip


def read_group(path: str, text: str, ledger: Ledger) -> None:
    """Decides on every line of a group file."""
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.strip().split(":")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        gid = int(fields[2]) if len(fields) > 2 and re.fullmatch(r"[0-9]{1,10}", fields[2]) else -1
        item = ledger.read(Item(path, number, fields[0], f"gid {gid}"))
        if 0 <= gid < 1000:
            ledger.same(item, "a group of the system")
        else:
            ledger.dropped(item, "Linux groups of a cluster are its teams", "make a team for it, or chgrp its files")


def read_nsswitch(path: str, text: str, ledger: Ledger) -> None:
    """Decides on every line of nsswitch.conf. Users and groups of a directory are those of passwd and group: here it is named."""
    for number, body in logical_lines(text):
        name, _, rest = body.partition(":")
        item = ledger.read(Item(path, number, name.strip(), rest.strip(), public=True))
        asked = [word for word in rest.split() if word.lower() not in _LOCAL and not word.startswith("[")]
        if item.key in _OF_DIRECTORIES and asked:
            why, instead = _OF_DIRECTORIES[item.key]
            ledger.dropped(item, f"{why}: {', '.join(asked)} is not asked", instead)
        else:
            ledger.same(item, "machines have their own")
