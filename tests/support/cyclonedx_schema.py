"""The JSON Schema of CycloneDX 1.6, as the package cyclonedx-python-lib contains it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

_PARTS = ("spdx", "jsf-0.82")


def schema_errors(document: Any) -> list[str]:
    """Returns where a document breaks the schema. Skips the test if the development packages are not those of the lock."""
    spec = importlib.util.find_spec("cyclonedx")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("cyclonedx-python-lib is not installed: make setup")
    folder = Path(spec.submodule_search_locations[0]) / "schema" / "_res"
    schema = json.loads((folder / "bom-1.6.SNAPSHOT.schema.json").read_text())
    base = str(schema["$id"]).rpartition("/")[0]
    parts = [(f"{name}.SNAPSHOT.schema.json", folder / f"{name}.SNAPSHOT.schema.json") for name in _PARTS]
    registry = jsonschema_rs.Registry([(f"{base}/{name}", json.loads(path.read_text())) for name, path in parts])
    validator = jsonschema_rs.validator_for(schema, registry=registry, validate_formats=True)
    return [f"{list(error.instance_path)}: {error.message[:300]}" for error in validator.iter_errors(document)]
