"""slurm.conf files that others have published are read to their last key. The repository has facts about them, not their text:
the folder HEADWAY_PUBLIC_SITES has it, in files named by their SHA-256; without it each file is fetched from GitHub."""

from __future__ import annotations

import csv
import hashlib
import os
import re
import urllib.request
from pathlib import Path

import pytest

from headway.slurm_import.importer import SiteFiles, import_site
from headway.slurm_import.verdicts import Kind
from headway.validation.yaml_parser import dump_yaml, parse_yaml

pytestmark = pytest.mark.soak
FACTS = Path(__file__).with_name("public_sites.csv")
ADDRESS = "https://raw.githubusercontent.com/{repository}/{commit}/{path}"
PAIR = re.compile(r'(?:^|\s)[A-Za-z0-9_.]+\s*[-+]?=\s*("[^"]*"|[^\s"]\S*|(?=\s|$))')


def sites() -> list[dict[str, str]]:
    lines = [line for line in FACTS.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def read(site: dict[str, str]) -> str:
    folder = os.environ.get("HEADWAY_PUBLIC_SITES")
    if folder:
        text = Path(folder, site["sha256"]).read_bytes()
    else:
        try:
            with urllib.request.urlopen(ADDRESS.format(**site), timeout=60) as answer:
                text = answer.read()
        except OSError as error:
            pytest.skip(f"GitHub does not answer here, and HEADWAY_PUBLIC_SITES is not set: {error}")
    assert hashlib.sha256(text).hexdigest() == site["sha256"]
    return text.decode(errors="replace")


def pairs(text: str) -> int:
    """Returns the number of keys, counted without the reader of the import."""
    joined = re.sub(r"\\\r?\n", " ", text)
    return sum(len(PAIR.findall(line.partition("#")[0])) for line in joined.splitlines())


@pytest.mark.parametrize("site", sites(), ids=lambda site: site["repository"])
def test_public_site_is_read_to_its_last_key(site: dict[str, str]) -> None:
    text = read(site)
    found = import_site(SiteFiles({"slurm.conf": text}))
    assert (found.nodes, len(found.spec.get("partitions", {}))) == (int(site["nodes"]), int(site["partitions"]))
    assert (found.faults, found.unread) == ([], {})
    assert parse_yaml(dump_yaml(found.spec)) == found.spec
    odd = [item.value for item, _ in found.entries if not item.key]  # words that are no pair
    assert len(found.entries) == int(site["keys"])
    assert len(found.entries) - len(odd) == pairs(text)
    assert all(verdict.why and verdict.instead for _, verdict in found.entries if verdict.kind is Kind.NOT_CARRIED)
