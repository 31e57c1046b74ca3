"""Nodes of a site: NodeName lines with their defaults, completed by gres.conf and `scontrol show nodes --json`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from headway.clusterfile.models.groups import FEATURE
from headway.domain.slurm.hostlist import expand
from headway.slurm_import.conf_reader import Record
from headway.slurm_import.keys_not_carried import NODE_REASONS
from headway.slurm_import.verdicts import Item, Ledger
from headway.validation import syntax_rules
from headway.validation.field_types import MOST_NODES

_GRES = re.compile(
    r"^(?P<name>[a-z_]+)(?::(?P<type>[^:()]*[^:()0-9][^:()]*))?(?::(?P<count>[0-9]+)(?P<unit>[KMGkmg]?))?$"
)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
LEAST_MEMORY_MIB = 1024  # of a plan
MOST_FEATURES = 50  # of a group


@dataclass(frozen=True, slots=True)
class SiteNode:
    """A node of the site with the hardware that Slurm knows."""

    name: str
    address: str
    cpus: int = 1
    memory_mib: int = 0
    gpu_type: str = ""
    gpus: int = 0
    shards: int = 0  # of each GPU
    mps: bool = False
    features: tuple[str, ...] = ()
    weight: int = 1

    @property
    def hardware(self) -> tuple[int, int, str, int, int, bool]:
        """What makes the node's plan and parts."""
        return (self.cpus, self.memory_mib, self.gpu_type, self.gpus, self.shards, self.mps)


@dataclass(frozen=True)
class NodeReport:
    """Facts about a node from `scontrol show nodes --json`."""

    cpus: int
    memory_mib: int
    gres: str
    features: tuple[str, ...]
    address: str


def read_nodes(records: Iterable[Record], ledger: Ledger, reports: Mapping[str, NodeReport]) -> dict[str, SiteNode]:
    """Returns the nodes by name, in the order of the file. Decides on every key of their lines."""
    defaults: dict[str, Item] = {}
    nodes: dict[str, SiteNode] = {}
    for record in records:
        if record.kind != "nodename":
            continue
        head, rest = record.items[0], record.items[1:]
        if head.value.upper() == "DEFAULT":
            defaults |= {item.key.lower(): item for item in rest}
            ledger.carried(head, "groups", "holds for the lines that follow")
            continue
        own = {item.key.lower(): item for item in rest}
        names = hosts_of(head, ledger)
        made = [
            _node(name, index, len(names), {**defaults, **own}, reports.get(name)) for index, name in enumerate(names)
        ]
        if any(syntax_rules.host_fault(node.address) for node in made):
            ledger.dropped(
                head, "these are no names of machines", "correct the line and import again; render templates first"
            )
            made = []
        nodes |= {node.name: node for node in made}
        if made:
            ledger.carried(head, "groups, hosts", f"{len(names)} node{'s' * (len(names) != 1)}")
            for item in {**defaults, **own}.values():
                _decide(item, ledger, made[0])
        for item in rest:
            if ledger.is_open(item):  # a key that is given twice, or a line without nodes
                why = "another value on the same line counts" if made else "no node of the line is carried"
                ledger.dropped(item, why, "correct the line and import again")
    for item in defaults.values():
        if ledger.is_open(item):
            ledger.same(item, "no line uses it")
    for name, report in reports.items():  # dynamic nodes
        if name not in nodes and len(nodes) < MOST_NODES and not syntax_rules.host_fault(name):
            nodes[name] = _node(name, 0, 1, {}, report)
    return nodes


def hosts_of(item: Item, ledger: Ledger) -> list[str]:
    """Returns the names of a host list; [] with a verdict if it is none."""
    try:
        return expand(item.value, MOST_NODES)
    except ValueError as error:
        ledger.dropped(item, str(error), "correct the host list and import again")
        return []


def _node(name: str, index: int, count: int, attrs: Mapping[str, Item], report: NodeReport | None) -> SiteNode:
    def number(*keys: str) -> int:
        found = next((attrs[key].value for key in keys if key in attrs), "")
        return int(found) if re.fullmatch(r"[0-9]{1,9}", found) else 0

    cores = number("corespersocket") or 1
    sockets = number("sockets") or (number("boards") or 1) * (number("socketsperboard") or 1)
    node = SiteNode(
        name,
        _address(name, index, count, attrs),
        number("cpus", "procs") or sockets * cores * (number("threadspercore") or 1),
        number("realmemory"),
        features=_words(attrs, "features", "feature"),
        weight=max(1, number("weight")),
    )
    gres = attrs["gres"].value if "gres" in attrs else ""
    if report is not None:
        gres = gres or report.gres
        node = replace(
            node,
            cpus=report.cpus or node.cpus,
            memory_mib=report.memory_mib or node.memory_mib,
            features=node.features or report.features,
            address=report.address or node.address,
        )
    return with_gres(node, gres)


def _address(name: str, index: int, count: int, attrs: Mapping[str, Item]) -> str:
    given = (
        attrs["nodeaddr"].value
        if "nodeaddr" in attrs
        else attrs["nodehostname"].value
        if "nodehostname" in attrs
        else ""
    )
    try:
        addresses = expand(given, MOST_NODES) if given else []
    except ValueError:
        addresses = []
    address = addresses[index] if len(addresses) == count else name
    return name if ":" in address or syntax_rules.host_fault(address) else address  # a cluster's machines use IPv4


def _words(attrs: Mapping[str, Item], *keys: str) -> tuple[str, ...]:
    value = next((attrs[key].value for key in keys if key in attrs), "")
    return tuple(dict.fromkeys(word for word in re.split(r"[,\s]+", value) if word and word != "(null)"))


def features_of(node: SiteNode) -> list[str]:
    """Returns the node's features that a cluster file can have."""
    return [word for word in node.features if re.fullmatch(FEATURE, word)][:MOST_FEATURES]


def parse_gres(text: str) -> Iterator[tuple[str, str, int]]:
    """Yields name, type and count of each part of a Gres: "gpu:a100:4(S:0-1),shard:16"."""
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        match = _GRES.match(part.strip())
        if match is not None:
            count = int(match["count"]) * _UNITS[match["unit"].lower()] if match["count"] else 1
            yield match["name"], match["type"] or "", count


def with_gres(node: SiteNode, gres: str) -> SiteNode:
    """Returns the node with the GPUs of a Gres: of several types the most frequent one."""
    found = list(parse_gres(gres))
    gpus = [(count, kind) for name, kind, count in found if name == "gpu" and count]
    if not gpus:
        return node
    count, kind = max(gpus)
    shards = sum(number for name, _, number in found if name == "shard")
    return replace(
        node,
        gpu_type=gpu_type(kind),
        gpus=min(count, 64),
        shards=shards // count if shards // count >= 2 else 0,
        mps=any(name == "mps" for name, _, _ in found),
    )


def gpu_type(kind: str) -> str:
    """Returns a GPU type as a catalogue names it: "NVIDIA-A100_80GB" gives "a100_80gb"."""
    text = re.sub(r"[^a-z0-9]+", "_", kind.lower()).strip("_").removeprefix("nvidia_").removeprefix("tesla_")
    return text.lstrip("_0123456789")[:16].strip("_") or "gpu"


def _decide(item: Item, ledger: Ledger, node: SiteNode) -> None:
    match item.key.lower():
        case "cpus" | "procs" | "realmemory":
            ledger.carried(
                item, "catalogue.yaml", "hardware of the group's plan; Headway reads the machine's own figures"
            )
        case "sockets" | "socketsperboard" | "corespersocket" | "threadspercore" | "boards":
            ledger.same(item, "Headway reads it from each machine")
        case "gres":
            _decide_gres(item, ledger, node)
        case "feature" | "features" if len(features_of(node)) < len(node.features):
            ledger.dropped(item, "some of them are no names of features", "give groups.NAME.features")
        case "feature" | "features":
            ledger.carried(item, "groups.*.features")
        case "weight":
            ledger.carried(item, "groups.*.weight")
        case "nodeaddr":
            ledger.carried(item, "hosts", "address of the machine")
        case "nodehostname" if "nodeaddr" not in item.context:
            ledger.carried(item, "hosts", "the machine's host name stays; Slurm knows it by its slot's name")
        case "state" if item.value.upper() in ("UNKNOWN", "IDLE"):
            ledger.same(item)
        case "state" if item.value.upper() in ("CLOUD", "FUTURE"):
            ledger.dropped(
                item,
                "Headway starts and stops nodes itself",
                "give the group idle, min and max, if it shall scale by itself",
            )
        case "port" if item.value == "6818":
            ledger.same(item)
        case key if key in NODE_REASONS:
            ledger.dropped(item, *NODE_REASONS[key])
        case "":
            ledger.dropped(item, "is not key=value", "correct the line and import again")
        case _:
            ledger.dropped(
                item, "is not a key of nodes in Slurm 22.05 to 26.05", "correct its spelling and import again"
            )


def _decide_gres(item: Item, ledger: Ledger, node: SiteNode) -> None:
    found = list(parse_gres(item.value))
    types = {kind for name, kind, _ in found if name == "gpu"}
    others = sorted({name for name, _, _ in found} - {"gpu", "shard", "mps"})
    parts = re.sub(r"\([^)]*\)", "", item.value).split(",")
    if len(found) < len([part for part in parts if part.strip()]):
        ledger.dropped(item, "its form is not known", "give the GPUs in catalogue.yaml: gpus, gpu_type")
    elif others:
        ledger.dropped(
            item, f"a cluster file has GPUs only, not {', '.join(others)}", "use features, and groups.NAME.features"
        )
    elif any(re.search(r"[0-9]g\.[0-9]+gb", kind) for kind in types):
        ledger.dropped(
            item, "MIG instances are made by Headway", "give groups.NAME.mig, and whole GPUs in catalogue.yaml"
        )
    elif len(types) > 1:
        ledger.dropped(
            item, f"a plan has one type of GPU: {node.gpu_type} is carried", "give such machines a group of their own"
        )
    else:
        ledger.carried(item, "catalogue.yaml", "GPUs of the group's plan; Headway reads the machine's own")
