"""Bills of materials in CycloneDX 1.6, as JSON. Pure: the same components give the same bytes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

_NAMESPACE = uuid.UUID("6d3d5e0c-6f0a-5a55-9a1b-0d3a6f6e5b7e")  # of the serial numbers


@dataclass(frozen=True)
class Component:
    """A component of a bill of materials. `ref` is unique in it; `hashes`: algorithm as CycloneDX names it -> hex digits."""

    kind: str  # "application" | "container" | "file" | "library"
    name: str
    version: str = ""
    purl: str = ""
    scope: str = ""  # "required" | "optional" | "excluded" | ""
    license: str = ""  # an SPDX expression
    hashes: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()  # SHA-256 of the files that a package index offers of this version
    index: str = ""  # URL of the version in that index
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def ref(self) -> str:
        """Returns the reference of this component within its document."""
        return self.purl or f"{self.kind}:{self.name}{f'@{self.version}' if self.version else ''}"

    def to_json(self) -> dict[str, Any]:
        """Returns the object of this component; fields without a value are left out."""
        values = {
            "bom-ref": self.ref,
            "type": self.kind,
            "name": self.name,
            "version": self.version,
            "scope": self.scope,
            "hashes": [{"alg": name, "content": digest} for name, digest in self.hashes],
            "licenses": [{"expression": self.license}] if self.license else [],
            "purl": self.purl,
            "externalReferences": self._distribution(),
            "properties": [{"name": name, "value": value} for name, value in sorted(self.properties.items())],
        }
        return {key: value for key, value in values.items() if value}

    def _distribution(self) -> list[dict[str, Any]]:
        hashes = [{"alg": "SHA-256", "content": digest} for digest in sorted(self.files)]
        return [{"type": "distribution", "url": self.index, "hashes": hashes}] if hashes else []


def package_url(kind: str, name: str, version: str, qualifiers: Mapping[str, str] | None = None) -> str:
    """Returns a package URL; `name` may have a namespace before its last slash."""
    path = "/".join(quote(part, safe=":") for part in name.split("/"))
    more = "&".join(f"{key}={quote(value, safe=':')}" for key, value in sorted((qualifiers or {}).items()))
    return f"pkg:{kind}/{path}@{quote(version, safe=':')}{f'?{more}' if more else ''}"


def bom_text(
    subject: Component,
    components: Iterable[Component],
    *,
    tool_version: str,
    timestamp: str = "",
    depends_on: Mapping[str, Iterable[str]] | None = None,
) -> str:
    """Returns the document about `subject`. `timestamp`: ISO 8601, a property of the input and not the time of the call;
    `depends_on`: refs by ref. The serial number is derived from the content."""
    metadata = {
        "timestamp": timestamp,
        "tools": {"components": [{"type": "application", "name": "headway", "version": tool_version}]},
        "component": subject.to_json(),
    }
    body: dict[str, Any] = {
        "metadata": {key: value for key, value in metadata.items() if value},
        "components": [component.to_json() for component in sorted(components, key=lambda one: one.ref)],
    }
    if depends_on:
        body["dependencies"] = [{"ref": ref, "dependsOn": sorted(depends_on[ref])} for ref in sorted(depends_on)]
    serial = uuid.uuid5(_NAMESPACE, json.dumps(body, sort_keys=True))
    head = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
    }
    return json.dumps({**head, **body}, indent=1, ensure_ascii=False) + "\n"
