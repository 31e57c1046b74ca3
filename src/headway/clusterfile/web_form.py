"""Converts a cluster file to a web form and back. Fields that the form does not show stay unchanged.

The fields of a form are texts, as browsers send them. `form_from_spec` makes them from a file's mapping, `apply_form`
writes them into one."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from headway.catalog.node_images import DEFAULT_IMAGE, IMAGES
from headway.catalog.providers import LOCAL, PROVIDERS

MOST_ROWS = 60


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """One row of the form's datasets."""

    name: str = ""
    path: str = ""
    writable: bool = False


@dataclass(frozen=True, slots=True)
class TeamRow:
    """One row of the form's teams."""

    name: str = ""
    users: str = ""  # names separated by blanks
    share: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of the form. `kept` names the parts of the file that the form does not show."""

    name: str = ""
    provider: str = LOCAL.name
    hosts: str = ""  # one address per line, the head first
    image: str = DEFAULT_IMAGE
    plan: str = "h100-8"
    nodes: str = "4"
    spares: str = ""
    leaf_size: str = ""
    ssh_keys: str = ""  # one public key per line
    datasets: tuple[DatasetRow, ...] = ()
    teams: tuple[TeamRow, ...] = ()
    user_keys: str = ""  # one per line: the user's name, then a public key
    kept: tuple[str, ...] = field(default=(), compare=False)

    @property
    def providers(self) -> tuple[tuple[str, str], ...]:
        """The choices for `provider`: name and summary. One that rents is a choice only where the file has it, because the
        form does not show what it needs (`cloud`)."""
        shown = [traits for traits in PROVIDERS.values() if not traits.rents_machines or traits.name == self.provider]
        return tuple((traits.name, traits.summary) for traits in shown)

    @property
    def images(self) -> tuple[tuple[str, str], ...]:
        """The choices for `image`: name and summary."""
        return tuple((image.name, image.summary) for image in IMAGES.values())

    @property
    def lists_hosts(self) -> bool:
        """Returns whether the chosen provider needs the addresses of the machines."""
        traits = PROVIDERS.get(self.provider)
        return traits is not None and not traits.creates_machines


_SHOWN = {
    "name", "provider", "image", "plan", "nodes", "spares", "fabric", "ssh_keys", "storage", "teams", "users", "hosts",
}  # fmt: skip


PLAIN = (
    "name", "provider", "hosts", "image", "plan", "nodes", "spares", "leaf_size", "ssh_keys", "user_keys",
)  # fmt: skip


def new_form(name: str = "lab") -> Form:
    """Returns the form of a new cluster."""
    return Form(name=name, nodes="4", spares="1", leaf_size="4")


def form_from_spec(spec: Mapping[str, Any]) -> Form:
    """Returns the form of a file. `kept` names the parts that the form cannot show."""
    kept = [key for key in spec if key not in _SHOWN and spec[key] not in (None, {}, [])]
    fabric, storage = _mapping(spec.get("fabric")), _mapping(spec.get("storage"))
    kept += [f"fabric.{key}" for key in fabric if key != "leaf_size"]
    teams, users = _mapping(spec.get("teams")), _mapping(spec.get("users"))
    kept += [f"teams.{name}.limits" for name, team in teams.items() if _mapping(team).get("limits")]
    hosts = spec.get("hosts") or []
    plain = isinstance(hosts, list) and all(isinstance(host, str) for host in hosts)
    if not plain:
        kept.append("hosts")
    return Form(
        name=_text(spec.get("name")),
        provider=_text(spec.get("provider")) or LOCAL.name,
        hosts="\n".join(hosts) if plain else "",
        image=_text(spec.get("image")) or DEFAULT_IMAGE,
        plan=_text(spec.get("plan")),
        nodes=_text(spec.get("nodes")),
        spares=_text(spec.get("spares")),
        leaf_size=_text(fabric.get("leaf_size")),
        ssh_keys="\n".join(_texts(spec.get("ssh_keys"))),
        datasets=tuple(_datasets(storage.get("datasets"))),
        teams=tuple(
            TeamRow(str(name), " ".join(_texts(_mapping(team).get("users"))), _text(_mapping(team).get("share")))
            for name, team in teams.items()
        ),
        user_keys="\n".join(
            f"{name} {key}" for name, user in users.items() for key in _texts(_mapping(user).get("ssh_keys"))
        ),
        kept=tuple(kept),
    )


def apply_form(form: Form, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `spec` with the form's fields, in the usual order of a cluster file. A field that equals the file's value
    leaves it unchanged; an empty field removes it."""
    made = copy.deepcopy(dict(spec))
    old = form_from_spec(made)
    for item in fields(Form):
        if item.name != "kept" and getattr(form, item.name) != getattr(old, item.name):
            _WRITE[item.name](made, form)
    return {key: made[key] for key in sorted(made, key=_rank)}


def _rank(key: str) -> int:
    return _ORDER.index(key) if key in _ORDER else len(_ORDER)


_ORDER = (
    "name", "provider", "image", "plan", "nodes", "spares", "fabric", "ssh_keys", "storage", "partitions", "teams", "users",
    "hosts",
)  # fmt: skip


def _put(made: dict[str, Any], key: str, value: Any) -> None:
    if value in ("", [], {}, None):
        made.pop(key, None)
    else:
        made[key] = value


def _put_fabric(made: dict[str, Any], form: Form) -> None:
    fabric = dict(_mapping(made.get("fabric")))
    _put(fabric, "leaf_size", _number(form.leaf_size))
    _put(made, "fabric", fabric)


def _put_datasets(made: dict[str, Any], form: Form) -> None:
    storage = dict(_mapping(made.get("storage")))
    old = {
        entry.get("name"): entry
        for entry in storage.get("datasets") or ()
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    }
    rows = []
    for row in form.datasets:
        if not (row.name or row.path):
            continue
        entry = dict(old.get(row.name, {"name": row.name}))
        _put(entry, "path", row.path)
        entry.pop("read_only", None)
        if row.writable:
            entry["read_only"] = False
        rows.append(entry)
    _put(storage, "datasets", rows)
    _put(made, "storage", storage)


def _put_teams(made: dict[str, Any], form: Form) -> None:
    old = _mapping(made.get("teams"))
    teams: dict[str, Any] = {}
    for row in form.teams:
        if not (row.name or row.users):
            continue
        team = dict(_mapping(old.get(row.name)))
        _put(team, "users", row.users.replace(",", " ").split())
        _put(team, "share", _number(row.share))
        teams[row.name] = team
    _put(made, "teams", teams)


def _put_user_keys(made: dict[str, Any], form: Form) -> None:
    keys: dict[str, list[str]] = {}
    for line in form.user_keys.splitlines():
        name, _, key = line.strip().partition(" ")
        if name:
            keys.setdefault(name, []).append(key.strip())
    users = {name: dict(_mapping(user)) for name, user in _mapping(made.get("users")).items()}
    for name in [name for name in users if users[name].get("ssh_keys") and name not in keys]:
        users.pop(name)
    for name, some in keys.items():
        users.setdefault(name, {})["ssh_keys"] = some
    _put(made, "users", users)


_WRITE = {
    "name": lambda made, form: _put(made, "name", form.name),
    "provider": lambda made, form: _put(made, "provider", form.provider),
    "hosts": lambda made, form: _put(made, "hosts", _lines(form.hosts)),
    "image": lambda made, form: _put(made, "image", form.image),
    "plan": lambda made, form: _put(made, "plan", form.plan),
    "nodes": lambda made, form: _put(made, "nodes", _number(form.nodes)),
    "spares": lambda made, form: _put(made, "spares", _number(form.spares)),
    "leaf_size": _put_fabric,
    "ssh_keys": lambda made, form: _put(made, "ssh_keys", _lines(form.ssh_keys)),
    "datasets": _put_datasets,
    "teams": _put_teams,
    "user_keys": _put_user_keys,
}


def form_from_fields(sent: Mapping[str, Sequence[str]]) -> Form:
    """Returns the form from posted fields. Rows of a table are numbered: team-0-name, dataset-2-path."""

    def one(name: str) -> str:
        return (sent.get(name) or [""])[0].replace("\r\n", "\n").strip()

    return Form(
        **{name: one(name) for name in PLAIN},  # type: ignore[arg-type]
        datasets=tuple(
            DatasetRow(one(f"dataset-{n}-name"), one(f"dataset-{n}-path"), bool(one(f"dataset-{n}-writable")))
            for n in _rows(sent, "dataset")
            if one(f"dataset-{n}-name") or one(f"dataset-{n}-path")
        ),
        teams=tuple(
            TeamRow(one(f"team-{n}-name"), " ".join(one(f"team-{n}-users").replace(",", " ").split()), one(f"team-{n}-share"))
            for n in _rows(sent, "team")
            if one(f"team-{n}-name") or one(f"team-{n}-users")
        ),
    )  # fmt: skip


def _rows(sent: Mapping[str, Sequence[str]], kind: str) -> list[int]:
    numbers = {int(found[1]) for name in sent if (found := re.fullmatch(rf"{kind}-(\d{{1,2}})-\w+", name))}
    return sorted(numbers)[:MOST_ROWS]


def _number(text: str) -> int | str:
    """Returns a whole number if the text is one; otherwise the text, which the rules of the cluster file refuse."""
    return int(text) if re.fullmatch(r"\d{1,9}", text) else text


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return "" if value is None or isinstance(value, dict | list) else str(value)


def _texts(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _datasets(value: Any) -> Iterator[DatasetRow]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            yield DatasetRow(_text(item.get("name")), _text(item.get("path")), item.get("read_only") is False)
