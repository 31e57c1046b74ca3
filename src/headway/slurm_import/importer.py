"""Imports a site: texts of its files in, cluster file, catalogue and verdicts out."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headway.catalog.node_images import DEFAULT_IMAGE, IMAGES
from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import check_cluster_file
from headway.domain.cluster import Cluster
from headway.domain.machines.site import Site
from headway.errors import Fault, InvalidSpec
from headway.render.slurm import cgroup_conf, conf_syntax, slurm_conf, slurmdbd_conf
from headway.slurm_import import cluster_keys, other_files, people, site_names
from headway.slurm_import.accounting.qos import Preemption, make_qos
from headway.slurm_import.accounting.sacctmgr_files import (
    Accounting,
    is_association_table,
    is_dump,
    is_qos_table,
    read_associations,
    read_dump,
    read_qos,
)
from headway.slurm_import.accounting.team_tree import TeamTree
from headway.slurm_import.accounting.teams import Teams, make_teams
from headway.slurm_import.conf_reader import ConfReader, Record
from headway.slurm_import.controllers import head_and_nodes
from headway.slurm_import.keys_not_carried import OTHER_FILES
from headway.slurm_import.nodes import switches
from headway.slurm_import.nodes.node_groups import NodeGroup, make_groups
from headway.slurm_import.nodes.node_lines import NodeReport, SiteNode, gpu_type, read_nodes
from headway.slurm_import.partition_lines import (
    DEFAULTS_OF_PARTITIONS,
    Surroundings,
    make_partitions,
    read_partitions,
)
from headway.slurm_import.reservation_lines import (
    ReservationSurroundings,
    SiteReservation,
    is_reservation_table,
    make_reservations,
    read_reservations,
)
from headway.slurm_import.site_scripts import CopiedScripts, copy_scripts, leave_scripts
from headway.slurm_import.values import holds_below
from headway.slurm_import.verdicts import Item, Kind, Ledger, Verdict
from headway.validation.field_types import MOST_NODES

MAIN_FILE = "slurm.conf"
# What scontrol and sshare say of a running site: for a comparison (headway.slurm_import.comparison), not configuration
STATE_CONFIG, STATE_PARTITIONS = "scontrol-config.txt", "scontrol-partitions.txt"
STATE_NODES, STATE_SHARES, STATE_USERS = "scontrol-nodes.txt", "sshare.txt", "users.txt"
STATE_JOBS = "sacct.txt"  # for a replay (headway.slurm_import.replay)
STATE_VERSION = "slurm-version.txt"  # scontrol --version
STATE_FILES = frozenset(
    (STATE_CONFIG, STATE_PARTITIONS, STATE_NODES, STATE_SHARES, STATE_USERS, STATE_JOBS, STATE_VERSION)
)
_OWNER = "headway-import"  # stands in for the person who will apply the file
_SCRIPTS = (".sh", ".lua", ".py", ".pl", ".bash")


@dataclass(frozen=True)
class SiteFiles:
    """Texts of a site's files by path, and why others could not be read."""

    texts: Mapping[str, str]
    unread: Mapping[str, str] = field(default_factory=dict)
    source: str = ""  # folder or head, for the report


@dataclass(frozen=True)
class Imported:
    """An imported site. `spec`: the cluster file; `catalogue`: plans of its nodes; `faults`: those of the product's own
    validation, none unless there is a bug."""

    spec: dict[str, Any]
    catalogue: dict[str, Any]
    entries: list[tuple[Item, Verdict]]
    unread: dict[str, str]
    notes: list[str]
    faults: list[Fault]
    source: str
    nodes: int
    users: int
    scripts: dict[str, str] = field(default_factory=dict)  # copied ones: file next to the cluster file -> text


@dataclass
class _Reading:
    """What was read of a site."""

    records: list[Record]
    nodes: dict[str, SiteNode]
    accounting: Accounting
    topology: switches.Switches
    volumes: list[dict[str, str]]
    unread: dict[str, str]
    plain: dict[str, list[Record]]  # files that Headway writes itself
    people: list[tuple[str, str]]  # path and text of passwd files
    module_paths: list[tuple[str, str]] = field(default_factory=list)  # the same of files with folders of modules
    reservations: list[SiteReservation] = field(default_factory=list)
    scripts: CopiedScripts = field(default_factory=CopiedScripts)


def import_site(files: SiteFiles, *, with_scripts: bool = False) -> Imported:
    """Returns the imported site. `with_scripts`: copy prolog, epilog and job_submit.lua. Raises InvalidSpec if the site has
    no slurm.conf, or one without nodes."""
    ledger = Ledger()
    reading = _read(files, ledger, with_scripts=with_scripts)
    if not reading.nodes:
        hint = "give the files that slurm.conf includes; of dynamic nodes, the output of scontrol show nodes --json as nodes.json"
        raise InvalidSpec([Fault("", "no NodeName line was found in slurm.conf", hint)], files.source or "the site")
    items = cluster_keys.cluster_items(reading.records)
    version = IMAGES[DEFAULT_IMAGE].slurm.name
    notes = _template_notes(files)
    head, nodes = head_and_nodes(items, reading.nodes, ledger, notes)
    found = read_partitions(reading.records, nodes, ledger)
    members = {name: frozenset(p.name for p in found.values() if name in p.nodes) for name in nodes}
    groups, lost = make_groups(nodes.values(), members, reading.topology.leaf_of)
    notes += lost
    if lost:
        _decide_merged(reading.records, lost[0], ledger)
    teams = make_teams(reading.accounting, ledger)
    around = Surroundings(
        site_names.partition_names(), groups, teams.of_account, TeamTree(teams.fields), _holds_below(files),
        reading.accounting.qos, version,
        cluster_keys.last(items, "preempttype").lower(), cluster_keys.last(items, "preemptmode").lower(),
        {item.key.lower(): item for item in cluster_keys.find(items, *DEFAULTS_OF_PARTITIONS)},
    )  # fmt: skip
    partitions = make_partitions(found, around, ledger)
    preemption = Preemption(around.preempt_type, around.preempt_mode)
    users = {user for team in teams.fields.values() for user in team.get("users", ())}
    held = ReservationSurroundings(groups, frozenset(nodes), teams.of_account, frozenset(users))
    reservations = make_reservations(reading.reservations, held, ledger)
    qos = make_qos(reading.accounting, teams, around.used_qos, preemption, ledger)
    for path, text in reading.people:
        for name, uid in people.read_passwd(path, text, ledger, users).items():
            teams.users.setdefault(name, {"uid": uid})
    without = sorted(users - teams.users.keys())
    if without:
        more = f" and {len(without) - 5:,} more" if len(without) > 5 else ""
        notes.append(f"no uid was read of {', '.join(without[:5])}{more}: their files may belong to other uids")
    spec = _spec(items, head, groups, partitions, teams, qos, reservations, reading, ledger)
    catalogue = {group.plan_name: dict(group.plan) for group in groups}
    spec = _finish(spec, catalogue, items, version, reading, ledger)
    _, faults = check_cluster_file(spec, load_catalogue(catalogue), owner=_OWNER)
    if reading.scripts.section:
        hosts = spec.pop("hosts")
        spec = {**spec, "scripts": reading.scripts.section, "hosts": hosts}
    for item in list(ledger.open_items()):
        ledger.dropped(item, "the import does not know this line", "say in an issue that you need it")
    return Imported(
        spec, catalogue, ledger.entries(), {**files.unread, **reading.unread}, notes,
        [fault for fault in faults if fault.level == "error"], files.source, len(nodes),
        len(users), reading.scripts.files,
    )  # fmt: skip


def _decide_merged(records: list[Record], note: str, ledger: Ledger) -> None:
    """Decides on what nodes of merged groups no longer differ by."""
    keys = (
        "feature",
        "features",
        "weight",
        *(("cpus", "procs", "realmemory", "gres") if "CPUs" in note or "all nodes" in note else ()),
    )
    for record in records:
        for item in record.items if record.kind == "nodename" else ():
            if item.key.lower() in keys:
                ledger.dropped(item, note, "divide the groups by hand: groups and the groups of partitions")


def rehearsal(imported: Imported) -> dict[str, Any]:
    """Returns the cluster file of a rehearsal in local containers: one node of each group, without the site's machines,
    volumes, switches and reservations, which would keep its only nodes from jobs."""
    left_out = ("hosts", "fabric", "storage", "controllers", "reservations")
    spec = {key: value for key, value in imported.spec.items() if key not in left_out}
    groups = {name: {**group, "nodes": min(1, group["nodes"])} for name, group in spec["groups"].items()}
    return {**spec, "provider": "local", "groups": groups}


def _read(files: SiteFiles, ledger: Ledger, *, with_scripts: bool) -> _Reading:
    reader = ConfReader(files.texts, ledger)
    main = _main_file(files)
    records = reader.read(main)
    reading = _Reading(records, {}, Accounting(), switches.Switches(), [], reader.unread, {}, [])
    named = cluster_keys.cluster_items(records)
    if with_scripts:
        reading.scripts = copy_scripts(named, files.texts, main, _scripts_fault, ledger)
    else:
        reading.scripts = leave_scripts(named, files.texts, main)
    reports: dict[str, NodeReport] = {}
    types: dict[str, str] = {}
    for path in sorted(files.texts):
        text, name = files.texts[path], posixpath.basename(path).lower()
        if path in reader.seen or name in STATE_FILES or not text.strip():
            continue
        if is_dump(text):
            read_dump(path, text, ledger, reading.accounting)
        elif is_association_table(text):
            read_associations(path, text, ledger, reading.accounting)
        elif is_qos_table(text):
            read_qos(path, text, ledger, reading.accounting)
        elif is_reservation_table(text):
            reading.reservations += read_reservations(path, text, ledger)
        elif name == "gres.conf":
            types |= other_files.read_gres(reader.read(path), ledger)
        elif name == "topology.conf":
            reading.topology = switches.read_topology_conf(reader.read(path), ledger)
        elif name in ("topology.yaml", "topology.yml"):
            reading.topology = switches.read_topology_yaml(path, text, ledger)
        elif name in OTHER_FILES and name.endswith(".conf"):
            reading.plain[name] = [*reading.plain.get(name, []), *reader.read(path)]
        elif name in ("passwd", "getent-passwd"):
            reading.people.append((path, text))
        else:
            _read_other(path, name, text, reading, reports, ledger)
    for path, text in reading.module_paths:
        other_files.read_module_paths(path, text, ledger, reading.volumes)
    reading.nodes = read_nodes(records, ledger, reports)
    reading.nodes = other_files.typed_gpus(
        reading.nodes, types, lambda node, kind: replace(node, gpu_type=gpu_type(kind))
    )
    return reading


def _volumes_fault(volumes: list[dict[str, str]]) -> str:
    return _section_fault({"storage": {"volumes": volumes}})


def _scripts_fault(scripts: dict[str, Any]) -> str:
    return _section_fault({"scripts": scripts})


def _section_fault(section: dict[str, Any]) -> str:
    """Returns what is wrong with this section in any cluster file; "" for nothing."""
    spec = {"name": "x", "plan": "h100-8", "nodes": 1, **section}
    _, faults = check_cluster_file(spec, load_catalogue(), owner=_OWNER)
    return next((f"{fault.message} ({fault.hint})" for fault in faults if fault.level == "error"), "")


def _main_file(files: SiteFiles) -> str:
    found = sorted((p for p in files.texts if posixpath.basename(p) == MAIN_FILE), key=lambda path: path.count("/"))
    if not found:
        hint = "give the folder with slurm.conf, or the head: --from ssh://HEAD"
        raise InvalidSpec(
            [Fault("", f"{files.source or 'the site'} has no slurm.conf", hint)], files.source or "the site"
        )
    return found[0]


def _read_other(
    path: str, name: str, text: str, reading: _Reading, reports: dict[str, NodeReport], ledger: Ledger
) -> None:
    if name == "plugstack.conf" or "plugstack.conf.d/" in path:
        other_files.read_plugstack(path, text, ledger)
    elif name in ("group", "getent-group"):
        people.read_group(path, text, ledger)
    elif name == "nsswitch.conf":
        people.read_nsswitch(path, text, ledger)
    elif name.lstrip(".") == "modulespath":
        reading.module_paths.append((path, text))
    elif name in ("fstab", "mounts"):
        reading.volumes += other_files.read_fstab(path, text, ledger, _volumes_fault)
    elif name.endswith(".json"):
        reports.update(other_files.read_scontrol_nodes(path, text, ledger))
    elif text.startswith("#!") or name.endswith(_SCRIPTS) or path in reading.scripts.refused:
        other_files.read_script(path, text, reading.scripts, ledger)
    else:
        lines = sum(1 for line in text.split("\n") if line.strip())
        item = ledger.read(Item(path, 1, "file", f"{lines} lines"))
        ledger.dropped(item, "the import does not know this file", "check whether slurm.conf should include it")


def _holds_below(files: SiteFiles) -> bool:
    """Returns whether lists of accounts of partitions hold for the accounts below too."""
    said = {posixpath.basename(path): text for path, text in files.texts.items()}
    config = re.search(r"(?m)^SLURM_VERSION\s*=(.*)$", said.get(STATE_CONFIG, ""))
    return holds_below(said.get(STATE_VERSION, "") or (config[1] if config is not None else ""))


def _template_notes(files: SiteFiles) -> list[str]:
    """Returns a sentence for each file that is a template of a configuration manager."""
    return [
        f"{path} is a template: import what it becomes on a machine"
        for path, text in sorted(files.texts.items())
        if path.endswith(".conf") and ("{{" in text or "{%" in text or "<%" in text)
    ]


def _spec(
    items: list[Item], head: str, groups: list[NodeGroup], partitions: dict[str, Any], teams: Teams,
    qos: dict[str, dict[str, Any]], reservations: dict[str, dict[str, Any]], reading: _Reading, ledger: Ledger,
) -> dict[str, Any]:  # fmt: skip
    given = cluster_keys.last(items, "clustername")
    name = site_names.cluster_name(given)
    for item in cluster_keys.find(items, "clustername"):
        ledger.carried(item, "name", "" if name == given else f"under the name {name}")
    spec: dict[str, Any] = {"name": name, "provider": "ssh", "image": DEFAULT_IMAGE}
    spec["groups"] = {group.name: _group(group) for group in groups}
    spec["fabric"] = switches.make_fabric(reading.topology, groups, ledger)
    spec["partitions"] = partitions
    spec["qos"] = qos
    spec["teams"] = teams.fields
    spec["reservations"] = reservations
    spec["users"] = {name: teams.users[name] for name in sorted(teams.users)}
    spec["storage"] = {"volumes": reading.volumes} if reading.volumes else {}
    spec["hosts"] = [{"address": head, "role": "head"}, *_hosts(groups)]
    return {key: value for key, value in spec.items() if value not in ({}, [])}


def _group(group: NodeGroup) -> dict[str, Any]:
    first = group.nodes[0]
    fields = {
        "plan": group.plan_name, "nodes": len(group.nodes), "shards": first.shards if first.gpus else 0,
        "mps": first.mps and bool(first.gpus) and not first.shards, "features": list(group.features), "weight": group.weight,
    }  # fmt: skip
    return {key: value for key, value in fields.items() if value or key == "nodes"}


def _hosts(groups: list[NodeGroup]) -> list[Any]:
    return [node.address for group in groups for node in group.nodes][:MOST_NODES]


def _finish(
    spec: dict[str, Any], catalogue: dict[str, Any], items: list[Item], version: str, reading: _Reading, ledger: Ledger
) -> dict[str, Any]:
    """Returns the file with the keys under `slurm`, which are those that differ from what Headway would write. Decides on the
    keys for the whole cluster and on the files that Headway writes itself."""
    cluster, _ = check_cluster_file(spec, load_catalogue(catalogue), owner=_OWNER)
    ours: dict[str, str] = {}
    rendered: dict[str, str] = {}
    if cluster is not None:
        site = _site(cluster)
        ours = conf_syntax.settings(conf_syntax.parse_lines(slurm_conf.slurm_conf(cluster, site)))
        rendered = {
            "cgroup.conf": cgroup_conf.cgroup_conf(pretends=False),
            "slurmdbd.conf": slurmdbd_conf.slurmdbd_conf(cluster, site),
        }
    kept = cluster_keys.kept_keys(items, ours, version)
    cluster_keys.decide_cluster_keys(items, ours, kept, version, ledger)
    for name, records in reading.plain.items():
        known = conf_syntax.settings(conf_syntax.parse_lines(rendered.get(name, "")))
        other_files.read_plain_conf(name, records, ledger, known)
    for record in reading.records:
        if record.kind in ("downnodes", "frontendname"):
            for item in record.items:
                ledger.dropped(item, "the state of nodes is not carried", "drain them with headway node drain NODE")
    if not kept:
        return spec
    keys = {key: cluster_keys.kept_value(key, item.value) for key, item in sorted(kept.items())}
    hosts = spec.pop("hosts")
    return {**spec, "slurm": keys, "hosts": hosts}


def _site(cluster: Cluster) -> Site:
    addresses = dict.fromkeys((*cluster.heads, *cluster.slot_names), "192.0.2.1")
    return Site("192.0.2.0/24", "192.0.2.2", "192.0.2.1", addresses, {user.name: 0 for user in cluster.users})


def not_carried(imported: Imported) -> list[tuple[Item, Verdict]]:
    """Returns the items that are not carried."""
    return [(item, verdict) for item, verdict in imported.entries if verdict.kind is Kind.NOT_CARRIED]
