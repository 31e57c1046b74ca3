"""The server's bill of materials lists what the locks pin, tells the server's needs from tools, and fits CycloneDX 1.6."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.cyclonedx_schema import schema_errors

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("headway_tools_sbom", ROOT / "tools" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(sbom: ModuleType) -> dict[str, Any]:
    return dict(json.loads(sbom.server_sbom("2026-01-01T00:00:00+00:00")))


def component(made: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in made["components"] if one["name"] == name)


def test_all_pinned_packages_are_listed_with_their_hashes(made: dict[str, Any]) -> None:
    lock = (ROOT / "requirements/constraints.txt").read_text()
    packages = [one for one in made["components"] if one["purl"].startswith("pkg:pypi/")]
    assert len(packages) == len(re.findall("^[a-z0-9-]+==", lock, flags=re.MULTILINE))
    digests = [row["content"] for one in packages for row in one["externalReferences"][0]["hashes"]]
    assert len(digests) == lock.count("--hash=sha256:")
    npm = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    assert sum(one["purl"].startswith("pkg:npm/") for one in made["components"]) == len(npm) - 1


def test_scope_tells_needs_of_the_server_from_tools(made: dict[str, Any]) -> None:
    scopes = {name: component(made, name)["scope"] for name in ("fastapi", "starlette", "greenlet", "mypy", "axe-core")}
    assert scopes == {
        "fastapi": "required", "starlette": "required", "greenlet": "required", "mypy": "excluded", "axe-core": "excluded",
    }  # fmt: skip
    assert component(made, "htmx.org")["licenses"] == [{"expression": "0BSD"}]
    needs = {row["ref"]: row["dependsOn"] for row in made["dependencies"]}
    assert component(made, "starlette")["purl"] in needs[component(made, "fastapi")["purl"]]


def test_same_input_gives_the_same_bytes(sbom: ModuleType, made: dict[str, Any]) -> None:
    assert json.loads(sbom.server_sbom("2026-01-01T00:00:00+00:00")) == made
    assert sbom.server_sbom() == sbom.server_sbom()
    assert json.loads(sbom.server_sbom())["serialNumber"] != made["serialNumber"], "another content"


def test_server_sbom_fits_the_schema(made: dict[str, Any]) -> None:
    assert schema_errors(made) == []


def test_package_that_is_not_the_locked_one_is_named(sbom: ModuleType) -> None:
    lock = "rich==0.0.1 \\\n    --hash=sha256:00\n"
    with pytest.raises(sbom.SbomError, match=r"rich 0\.0\.1 of the lock is not installed: make setup"):
        sbom.python_components(lock, {"project": {"dependencies": ["rich>=13"]}})
    for dependencies in ([], ["other"]):
        found, _ = sbom.python_components(lock, {"project": {"dependencies": dependencies}})
        assert [one.scope for one in found] == ["excluded"]


def test_scoped_npm_package_has_its_namespace_in_the_package_url(sbom: ModuleType) -> None:
    lock = {"packages": {"": {}, "node_modules/@a/b": {"version": "1.0.0", "integrity": "sha512-AAAA"}}}
    (found,) = sbom.browser_components(lock)
    assert found.purl == "pkg:npm/%40a/b@1.0.0"
    assert found.hashes == (("SHA-512", "000000"),)
