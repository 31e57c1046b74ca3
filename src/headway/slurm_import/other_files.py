"""Files of a site besides slurm.conf: gres.conf, cgroup.conf, plugins, scripts, mounts and modules.

Not here: people (`headway.slurm_import.people`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from headway.slurm_import.conf_reader import Record, logical_lines
from headway.slurm_import.keys_not_carried import OTHER_FILES
from headway.slurm_import.nodes.node_lines import NodeReport, SiteNode
from headway.slurm_import.site_scripts import CopiedScripts
from headway.slurm_import.values import node_names, same_value
from headway.slurm_import.verdicts import Item, Ledger, has_secret

_CGROUP_SAME = {
    "cgroupplugin": ("autodetect", "cgroup/v2", "cgroup/v1"), "constrainramspace": ("yes",), "constraindevices": ("yes",),
    "constrainswapspace": ("yes",), "constraincores": ("yes",), "allowedramspace": ("100", "100.0"),
    "allowedswapspace": ("0", "0.0"), "cgroupautomount": ("yes", "no"), "cgroupmountpoint": ("/sys/fs/cgroup", "/cgroup"),
}  # fmt: skip
_SHARED_FILE_SYSTEMS = frozenset(
    ("nfs", "nfs4", "lustre", "beegfs", "gpfs", "ceph", "cifs", "glusterfs", "9p", "wekafs")
)
# Shared ones that are named only, as are those of fuse and those whose source is on another host
_OTHER_SHARED = frozenset(("panfs", "mmfs", "smb3", "smbfs", "afs", "orangefs", "pvfs2", "ocfs2", "gfs2"))
_LOCAL_FUSE = frozenset(("lxcfs", "portal", "gvfsd-fuse", "snapfuse", "fuse-overlayfs", "ntfs", "ntfs-3g", "exfat"))
_ON_HOST = re.compile(r"//|[^/\s]+:/")
_LONGEST_NAME = 31  # of a volume
_OF_PACKAGES = ("/usr/share/", "/etc/lmod", "/etc/environment-modules", "/etc/modulefiles")
_LIST_MOUNTS = "list under storage.volumes those that the machines can mount"
_HOME_FOLDERS = ("/home", "/scratch")


def read_gres(records: Iterable[Record], ledger: Ledger) -> dict[str, str]:
    """Returns the type of the GPUs by node, "" for those that no line names. Decides on every key of gres.conf."""
    types: dict[str, str] = {}
    for record in records:
        name, kind = record.get("name"), record.get("type")
        gpu = name is not None and name.value.lower() in ("gpu", "shard", "mps")
        if gpu and kind is not None and name is not None and name.value.lower() == "gpu":
            nodes = record.get("nodename")
            for node in [""] if nodes is None else node_names(nodes.value):
                types.setdefault(node, kind.value)
        for item in record.items:
            key = item.key.lower()
            if key == "autodetect" or (gpu and key in ("name", "type", "count", "nodename")):
                ledger.carried(item, "catalogue.yaml", "Headway finds the GPUs of each machine and writes gres.conf")
            elif gpu:
                ledger.same(item, "Headway finds device files, cores and links of each machine")
            elif key == "":
                ledger.dropped(item, "is not key=value", "correct the line and import again")
            else:
                what = name.value if name is not None else item.key
                ledger.dropped(item, f"a cluster file has GPUs only, not {what}", "give groups.NAME.features")
    return types


def read_plain_conf(name: str, records: Iterable[Record], ledger: Ledger, ours: Mapping[str, str]) -> None:
    """Decides on every key of a file that Headway writes itself. `ours`: Headway's keys, in lower case."""
    reason = OTHER_FILES[name]
    for record in records:
        for item in record.items:
            key = item.key.lower()
            if key == "":
                ledger.dropped(item, "is not key=value", "correct the line and import again")
            elif same_value(item.value, ours.get(key, "\n")) or (
                name == "cgroup.conf" and item.value.lower() in _CGROUP_SAME.get(key, ())
            ):
                ledger.same(item)
            else:
                ledger.dropped(item, *reason)


def read_plugstack(path: str, text: str, ledger: Ledger) -> None:
    """Decides on every line of plugstack.conf. Arguments of plugins are not shown: they may be secrets."""
    for number, body in logical_lines(text):
        words = body.split()
        plugin = words[1] if len(words) > 1 else words[0]
        item = ledger.read(Item(path, number, words[0], plugin))
        if "pyxis" in plugin:
            ledger.carried(item, "containers.backend", "Headway's own runtime has Pyxis's options; enroot keeps Pyxis")
        elif words[0].lower() == "include":
            ledger.dropped(
                item, "files that it includes are read only if they are in the folder", "see the other files"
            )
        else:
            ledger.dropped(
                item,
                "Headway installs its own SPANK plugins only",
                "see whether a job needs it; ask for it in an issue",
            )


def read_script(path: str, text: str, copied: CopiedScripts, ledger: Ledger) -> None:
    """Decides on a script as a whole: it is one item, with its number of lines. Its text is not shown. `copied`: the scripts
    that come along."""
    lines = sum(1 for line in text.split("\n") if line.strip())
    item = ledger.read(Item(path, 1, "script", f"{lines} lines"))
    name = path.rpartition("/")[2].lower()
    if copied.decide(path, item, ledger):
        return
    if "prolog" in name or "epilog" in name:
        why = "no Prolog or Epilog of slurm.conf names it"
        ledger.dropped(item, why, "if it is needed, copy it, and name it: scripts.prolog, scripts.epilog")
    else:
        ledger.dropped(item, "Headway does not run scripts of the site", "check what it does")


def read_fstab(
    path: str, text: str, ledger: Ledger, fault_of: Callable[[list[dict[str, str]]], str]
) -> list[dict[str, str]]:
    """Returns `storage.volumes` of the shared file systems in a file such as fstab. Decides on every line. `fault_of`: what
    is wrong with a list of volumes, "" for none."""
    volumes: list[dict[str, str]] = []
    for number, body in logical_lines(text):
        fields = body.split()
        kind, point = (fields[2], fields[1]) if len(fields) > 2 else ("", "")
        item = ledger.read(Item(path, number, point or fields[0], f"{kind} {fields[0]}"))
        if kind == "autofs" and fields[0] != "systemd-1":
            ledger.dropped(item, "its shared mounts are in automount maps, which are not read", _LIST_MOUNTS)
        elif kind not in _SHARED_FILE_SYSTEMS and _is_shared(kind, fields[0]):
            ledger.dropped(item, f"{kind} is a shared file system that the import does not know", _LIST_MOUNTS)
        elif kind not in _SHARED_FILE_SYSTEMS:
            ledger.same(item, "a disk of the machine itself")
        elif point in _HOME_FOLDERS:
            ledger.carried(
                item, f"storage{point.replace('/', '.')}", "Headway uses what the machines have mounted there already"
            )
        else:
            options = fields[3] if len(fields) > 3 else ""
            line = f"{kind} {fields[0]} {options}".strip()
            volume = {"name": _volume_name(point, {one["name"] for one in volumes}), "path": point, "mount": line}
            fault = fault_of([*volumes, volume])
            if has_secret(fields[0], options):
                ledger.dropped(
                    item, "it has a password, which members of the cluster could read",
                    "put it into a file on the machines, such as credentials=FILE, and give storage.volumes",
                )  # fmt: skip
            elif fault:
                ledger.dropped(item, fault, "give storage.volumes")
            else:
                volumes.append(volume)
                ledger.carried(item, "storage.volumes")
    return volumes


def _is_shared(kind: str, source: str) -> bool:
    """Returns whether a mount is a file system of other hosts, as far as its type and source say."""
    fuse, _, program = kind.partition(".")
    of_fuse = fuse == "fuse" and program != "" and program not in _LOCAL_FUSE
    return kind in _OTHER_SHARED or of_fuse or (kind != "" and _ON_HOST.match(source) is not None)


def _volume_name(point: str, given: Collection[str]) -> str:
    """Returns the name of the volume mounted there. `given`: those of other volumes."""
    name = re.sub(r"[^a-z0-9]+", "-", point.lower()).lstrip("-0123456789")[:_LONGEST_NAME].rstrip("-") or "volume"
    number, found = 1, name
    while found in given:
        number += 1
        found = f"{name[: _LONGEST_NAME - len(f'-{number}')].rstrip('-')}-{number}"
    return found


def read_scontrol_nodes(path: str, text: str, ledger: Ledger) -> dict[str, NodeReport]:
    """Returns the nodes of `scontrol show nodes --json`; each is an item. {} with a verdict if the text is none."""
    try:
        document: Any = json.loads(text)
        rows = document["nodes"]
        named = [(str(row["name"]), row) for row in rows]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        item = ledger.read(Item(path, 1, "json", f"{len(text)} characters"))
        ledger.dropped(item, f"is not the output of scontrol show nodes --json: {error}"[:160], "export it again")
        return {}
    found = {}
    for index, (name, row) in enumerate(named):
        item = ledger.read(Item(path, index + 1, "node", name))
        ledger.carried(item, "groups, catalogue.yaml", "completes the node's line in slurm.conf")
        found[name] = NodeReport(
            _number(row.get("cpus")), _number(row.get("real_memory")), str(row.get("gres") or ""),
            tuple(str(one) for one in _list(row.get("features"))), str(row.get("address") or ""),
        )  # fmt: skip
    return found


def _number(value: Any) -> int:
    if isinstance(value, dict):  # newer Slurm: {"set": true, "infinite": false, "number": 8}
        value = value.get("number")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [part for part in str(value or "").split(",") if part]


def typed_gpus(nodes: Mapping[str, SiteNode], types: Mapping[str, str], typed: Any) -> dict[str, SiteNode]:
    """Returns the nodes with GPU types of gres.conf where slurm.conf names none. `typed`: the function that sets one."""
    found = dict(nodes)
    for name, node in nodes.items():
        kind = types.get(name) or types.get("", "")
        if kind and node.gpus and node.gpu_type == "gpu":
            found[name] = typed(node, kind)
    return found


def read_module_paths(path: str, text: str, ledger: Ledger, volumes: Iterable[Mapping[str, str]]) -> None:
    """Decides on every folder of a file of module folders. `volumes`: those of the cluster file."""
    points = [volume["path"] for volume in volumes]
    for number, body in logical_lines(text):
        item = ledger.read(Item(path, number, "modules", body.strip()))
        if any(item.value == point or item.value.startswith(f"{point}/") for point in points):
            ledger.carried(item, "storage.volumes", "users give it to module use")
        elif item.value.startswith(_OF_PACKAGES):
            ledger.same(item, "modules of packages of the machine")
        else:
            ledger.dropped(
                item, "the folder is on no volume of the cluster",
                "put it on a volume, for module use; or make environments: docs/howto/environments.md",
            )  # fmt: skip
