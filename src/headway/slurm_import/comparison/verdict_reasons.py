"""What the import decided on a key, looked up by the place where Slurm shows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headway.slurm_import.importer import Imported
from headway.slurm_import.verdicts import Item, Kind, Verdict

# Names of one limit in `sacctmgr show assoc`, `sacctmgr dump` and `sacctmgr show qos`
_SAME_LIMIT = (
    ("grpsubmit", "grpsubmitjobs"),
    ("maxtres", "maxtresperjob"),
    ("maxwall", "maxwalldurationperjob"),
    ("def qos", "defaultqos"),
    ("maxsubmit", "maxsubmitjobs", "maxsubmitpu"),
    ("maxjobs", "maxjobspu"),
    ("maxtrespu", "maxtresperuser"),
)

# Key of scontrol -> keys of slurm.conf for the whole cluster that become those of partitions
_OF_PARTITIONS = {
    "defmempercpu": ("defmempercpu",), "defmempernode": ("defmempercpu",), "jobdefaults": ("defcpupergpu", "defmempergpu"),
    "maxmempercpu": ("maxmempercpu", "maxmempernode"), "maxmempernode": ("maxmempercpu", "maxmempernode"),
}  # fmt: skip


@dataclass
class Reasons:
    """Verdicts by (kind of record, name, key) in lower case; keys of the whole cluster have the kind "" and no name, those
    of a user in an account have the name ACCOUNT/USER."""

    partitions: dict[str, str] = field(default_factory=dict)  # name at the site, in lower case -> name in the cluster
    teams: dict[str, str] = field(default_factory=dict)  # account -> team
    qos: dict[str, str] = field(
        default_factory=dict
    )  # in lower case -> QOS of the cluster, or team that has its limits
    _verdicts: dict[tuple[str, str, str], Verdict] = field(default_factory=dict)

    def of(self, kind: str, name: str, *keys: str) -> Verdict | None:
        """Returns the verdict on a key of a record, such as "partitionname", "gpu", "QOS"; of a partition also that on
        the line DEFAULT. None: the site does not set it."""
        for owner in (name.lower(), "default") if kind == "partitionname" else (name.lower(),):
            for key in _spellings(keys):
                found = self._verdicts.get((kind, owner, key))
                if found is not None:
                    return found
        return None

    def not_carried(self, kind: str, name: str, *keys: str) -> str:
        """Returns why a key is not carried; "" if it is, or if the site does not set it."""
        found = [self._verdicts.get((kind, name.lower(), key)) for key in _spellings(keys)]
        return next((verdict.why for verdict in found if verdict and verdict.kind is Kind.NOT_CARRIED), "")

    def for_partitions(self, key: str) -> str:
        """Returns why a key of scontrol differs that the site has for the whole cluster, and the cluster for partitions; "" for
        other keys."""
        found = [self._verdicts.get(("", "", name)) for name in _OF_PARTITIONS.get(key, ())]
        given = any(verdict and verdict.place.startswith("partitions.*") for verdict in found)
        return "each partition without a value of its own has that of the site's cluster" if given else ""


def _spellings(keys: Iterable[str]) -> list[str]:
    wanted = [key.lower() for key in keys]
    return [*wanted, *(other for names in _SAME_LIMIT if set(names) & set(wanted) for other in names)]


def find_reasons(imported: Imported) -> Reasons:
    """Returns the verdicts of an import."""
    found = Reasons()
    for item, verdict in imported.entries:
        kind, _, owners = item.context.partition("=")
        if " User=" in owners:
            kind, owners = "user", owners.replace(" User=", "/")
        for owner in owners.split(","):
            found._verdicts[kind.lower(), owner.lower(), item.key.lower()] = verdict
        if not item.context:
            _add_head(found, item, verdict)
    return found


def _add_head(found: Reasons, item: Item, verdict: Verdict) -> None:
    """Adds the verdict on a whole record: its first key."""
    kind = {"name": "qos"}.get(item.key.lower(), item.key.lower())
    if kind not in ("partitionname", "account", "user", "qos"):
        return
    for name in item.value.split(","):
        found._verdicts[kind, name.lower(), ""] = verdict
        section, _, place = verdict.place.partition(".")
        if kind == "partitionname" and section == "partitions" and place:
            found.partitions[name.lower()] = place if "," not in item.value else name.lower()
        if kind == "qos" and section in ("qos", "teams") and place:
            found.qos[name.lower()] = place.partition(".")[0]
        if kind == "account" and section == "teams" and place and "." not in place:
            found.teams[name] = place
