"""The schemas of tests/support are a part of the published ones, and find faults."""

from __future__ import annotations

import pytest

from tests.support.kubernetes_schemas import FILES, HAS_FILES, OWN, differences, published_schema, schema_faults


@pytest.mark.skipif(not HAS_FILES, reason="HEADWAY_CRDS names no folder with the published definitions")
@pytest.mark.parametrize("kind", sorted(FILES))
def test_fields_are_those_of_the_published_schema(kind: str) -> None:
    assert differences(OWN[kind], published_schema(kind)) == []


def test_unknown_fields_and_other_types_are_faults() -> None:
    text = "apiVersion: a\nkind: JobSet\nmetadata: {}\nspec: {suspend: 'no', replicas: 2}\n"
    assert sorted(fault.partition(":")[0] for fault in schema_faults(text)) == sorted(
        ["spec", "spec.suspend"] * (1 + HAS_FILES)
    )
