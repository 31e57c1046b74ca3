"""Prints the bill of materials of the server in CycloneDX 1.6: `python tools/sbom.py`. `headway image sbom` prints that of
a node image.

It contains every package of requirements/constraints.txt and package-lock.json with the hashes of its files. What the
server needs has scope "required", the tools of development and tests "excluded". Licences and the needs of packages are
read from the installed packages, which must be those of the lock."""

from __future__ import annotations

import base64
import json
import re
import sys
import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import headway
from headway.images.cyclonedx import Component, bom_text, package_url

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "constraints.txt"
NPM_LOCK = ROOT / "package-lock.json"
SERVER = f"pkg:pypi/headway@{headway.__version__}"
_ALGORITHMS = {"sha256": "SHA-256", "sha384": "SHA-384", "sha512": "SHA-512", "sha1": "SHA-1"}
# "License" of older packages is free text; these are licences of the SPDX list.
_SPDX = re.compile(
    r"(MIT|MIT-0|0BSD|BSD-[23]-Clause|Apache-2\.0|ISC|MPL-2\.0|PSF-2\.0|LGPL-[23]\.[01]-or-later|EPL-2\.0)"
    r"( (OR|AND) (MIT|BSD-[23]-Clause|Apache-2\.0|EPL-2\.0|LGPL-2\.1-or-later))*"
)
_CLASSIFIERS = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


class SbomError(Exception):
    """The bill of materials can't be made; the message says why and what to do."""


def locked_packages(text: str) -> Iterator[tuple[Requirement, tuple[str, ...]]]:
    """Yields the pinned requirement and the SHA-256 digests of each package of the lock file."""
    for entry in re.sub(r"\\\n", " ", text).splitlines():
        words = entry.split(" --hash=")
        if words[0].strip() and not words[0].startswith("#"):
            yield Requirement(words[0].strip()), tuple(word.strip().removeprefix("sha256:") for word in words[1:])


def python_components(lock: str, project: dict[str, Any]) -> tuple[list[Component], dict[str, list[str]]]:
    """Returns the Python packages, and what each needs by ref. Raises SbomError if a package that the server needs is
    not installed in the version of the lock."""
    entries = list(locked_packages(lock))
    # A package can be pinned twice, for different versions of Python.
    pinned = {str(canonicalize_name(found.name)): found for found, _ in entries if _belongs_here(found)}
    installed = {name: _installed(found) for name, found in pinned.items()}
    direct = [Requirement(line) for line in project["project"]["dependencies"]]
    required = _closure(direct, installed)
    for name in required:
        if installed[name] is None:
            raise SbomError(f"{name} {_version(pinned[name])} of the lock is not installed: make setup")
    components = [_component(found, digests, required, installed) for found, digests in entries]
    refs = {name: _purl(found) for name, found in pinned.items()}
    graph = {
        refs[name]: [refs[need] for need in _names(_needs(installed[name], required.get(name, ())), pinned)]
        for name in pinned
    }
    return components, {**graph, SERVER: [refs[name] for name in _names(direct, pinned)]}


def _component(
    found: Requirement,
    digests: tuple[str, ...],
    required: Container[str],
    installed: Mapping[str, metadata.Distribution | None],
) -> Component:
    name = str(canonicalize_name(found.name))
    return Component(
        "library",
        name,
        _version(found),
        _purl(found),
        "required" if name in required else "excluded",
        _license(installed.get(name) if _belongs_here(found) else None),
        files=digests,
        index=f"https://pypi.org/project/{name}/{_version(found)}/",
        properties={"headway:marker": str(found.marker)} if found.marker else {},
    )


def _belongs_here(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate()


def _purl(requirement: Requirement) -> str:
    return package_url("pypi", str(canonicalize_name(requirement.name)), _version(requirement))


def _version(requirement: Requirement) -> str:
    return str(requirement.specifier).removeprefix("==")


def _installed(requirement: Requirement) -> metadata.Distribution | None:
    """Returns the installed package; None if it is not installed in the version of the lock."""
    try:
        found = metadata.distribution(requirement.name)
    except metadata.PackageNotFoundError:
        return None
    return found if found.version == _version(requirement) else None


def _closure(
    direct: Iterable[Requirement], installed: Mapping[str, metadata.Distribution | None]
) -> dict[str, frozenset[str]]:
    """Returns the packages that the server needs, each with the extras that it needs of it."""
    found: dict[str, frozenset[str]] = {}
    queue = list(direct)
    while queue:
        need = queue.pop()
        name, extras = str(canonicalize_name(need.name)), frozenset(need.extras)
        if name in installed and (name not in found or not extras <= found[name]):
            found[name] = found.get(name, frozenset()) | extras
            queue += _needs(installed[name], found[name])
    return found


def _needs(found: metadata.Distribution | None, extras: Iterable[str]) -> list[Requirement]:
    """Returns the requirements of a package with these extras on this machine."""
    needs = [Requirement(line) for line in (found.requires or [] if found else [])]
    return [
        need
        for need in needs
        if need.marker is None or any(need.marker.evaluate({"extra": name}) for name in ("", *extras))
    ]


def _names(needs: Iterable[Requirement], pinned: Iterable[str]) -> list[str]:
    return sorted({canonicalize_name(need.name) for need in needs} & set(pinned))


def _license(found: metadata.Distribution | None) -> str:
    """Returns the SPDX expression of a package, "" if it states none that is certain."""
    if found is None:
        return ""
    fields = {name: found.metadata.get_all(name) or [] for name in ("License-Expression", "License", "Classifier")}
    said, old = ("".join(fields[name]).strip() for name in ("License-Expression", "License"))
    kinds = [row.rpartition(" :: ")[2] for row in fields["Classifier"] if "License ::" in row]
    if said or _SPDX.fullmatch(old):
        return said or old
    return _CLASSIFIERS.get(kinds[0], "") if len(kinds) == 1 else ""


def browser_components(lock: dict[str, Any]) -> list[Component]:
    """Returns the packages of package-lock.json."""
    rows = []
    for place, row in lock["packages"].items():
        if place:
            name = place.rpartition("node_modules/")[2]
            purl = package_url("npm", name.replace("@", "%40"), row["version"]).replace("%2540", "%40")
            scope = "excluded" if row.get("dev") else "required"
            digest = tuple(_integrity(row.get("integrity", "")))
            rows.append(Component("library", name, row["version"], purl, scope, row.get("license", ""), digest))
    return rows


def _integrity(text: str) -> Iterator[tuple[str, str]]:
    for word in text.split():
        name, _, value = word.partition("-")
        yield _ALGORITHMS[name], base64.b64decode(value).hex()


def server_sbom(timestamp: str = "") -> str:
    """Returns the bill of materials of the server. `timestamp`: of the commit. Raises SbomError."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages, graph = python_components(LOCK.read_text(), project)
    browser = browser_components(json.loads(NPM_LOCK.read_text()))
    graph[SERVER] = [*graph[SERVER], *(one.ref for one in browser if one.scope == "required")]
    subject = Component("application", "headway", headway.__version__, SERVER, license="Apache-2.0")
    return bom_text(
        subject, [*packages, *browser], tool_version=headway.__version__, timestamp=timestamp, depends_on=graph
    )


def main() -> int:
    try:
        sys.stdout.write(server_sbom())
    except SbomError as error:
        print(f"sbom: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
