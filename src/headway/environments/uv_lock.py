"""Compares a uv.lock with the pyproject.toml next to it. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from typing import Any

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_REQUIREMENTS = ("dependencies", "optional-dependencies")


def lock_difference(lock: str, pyproject: str) -> str:
    """Returns how the requirements of a project and those that its uv.lock was made from differ, "" if they name the same
    packages. Versions are not compared: uv writes them in a form of its own. Also returns "" where uv itself says what is
    wrong (a text that is not TOML), and where only the project's build knows its requirements (`dynamic`)."""
    try:
        locked, project = tomllib.loads(lock), tomllib.loads(pyproject).get("project", {})
        name = _canonical(project["name"])
        root = next(one for one in locked["package"] if one["name"] == name and "." in one["source"].values())
        wanted, known = _required(project), {one["name"] for one in root.get("metadata", {}).get("requires-dist", [])}
    except (tomllib.TOMLDecodeError, StopIteration, LookupError, TypeError, AttributeError):
        return ""
    if set(_REQUIREMENTS) & set(project.get("dynamic", [])):
        return ""
    only = (("pyproject.toml", wanted - known), ("uv.lock", known - wanted))
    return "; ".join(f"only {file} has {', '.join(sorted(names - {name}))}" for file, names in only if names - {name})


def _required(project: dict[str, Any]) -> set[str]:
    """Returns the packages that the project requires, with its extras."""
    extras: Iterable[list[str]] = project.get("optional-dependencies", {}).values()
    texts = [*project.get("dependencies", []), *(text for extra in extras for text in extra)]
    return {_canonical(match[1]) for text in texts if (match := _NAME.match(text))}


def _canonical(name: str) -> str:
    """Returns a package's name as locks write it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
