"""Provider traits are declared in one table; code outside `providers` never compares provider names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import headway
from headway.catalog.providers import PROVIDERS
from headway.clusterfile.models.cluster_file import ClusterFile
from headway.providers.registry import open_provider

SOURCE = Path(headway.__file__).parent
BY_NAME = re.compile(
    r"""\bprovider(\.name)?\b[^\n]{0,12}\s(==|!=|in|not\sin)\s[^\n]*["'](local|ssh|aws)["']"""
    r"""|["'](local|ssh|aws)["']\s(==|!=)\s[^\n]*\bprovider\b"""
)


def test_each_provider_has_code_and_is_accepted_in_a_cluster_file(tmp_path: Path) -> None:
    assert set(get_args(ClusterFile.model_fields["provider"].annotation)) == set(PROVIDERS)
    for name, traits in PROVIDERS.items():
        assert open_provider(name, tmp_path).traits is traits
        assert traits.name == name


def test_no_code_outside_providers_compares_provider_names() -> None:
    files = [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.html")]
    found = [
        f"{file.relative_to(SOURCE)}:{number}: {line.strip()}"
        for file in files
        if file.relative_to(SOURCE).parts[0] != "providers"
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if BY_NAME.search(line)
    ]
    assert not found, "use a field of domain.provider_traits.ProviderTraits"


def test_check_recognizes_provider_name_comparisons() -> None:
    for line in (
        'if cluster.provider == "local":',
        'if made.get("provider") == "ssh":',
        '(before.provider, cluster.provider) != ("local", "local")',
        'cluster.provider.name in ("local",)',
        'form.provider == "ssh" and',
    ):
        assert BY_NAME.search(line), line
    assert not BY_NAME.search('if ask.what == "ssh" and not cluster.provider.creates_machines:')
