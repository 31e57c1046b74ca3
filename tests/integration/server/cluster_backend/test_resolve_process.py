"""A large cluster file is resolved in a process, with the same result as a small one."""

from __future__ import annotations

from typing import Any

import pytest

from headway.errors import InvalidSpec
from headway.schemas.clusters import Document
from headway.server.cluster_backend import resolve_process
from headway.server.cluster_backend.cluster_lifecycle import LifecycleBackend, _resolve


def document(**spec: Any) -> Document:
    return Document(text="", spec={"name": "lab", "plan": "h100-8", "nodes": 4, **spec}, owner="ann")


def test_only_documents_within_the_limits_count_as_large() -> None:
    users = [f"u{number}" for number in range(resolve_process.MANY_VALUES)]
    assert resolve_process.is_large(document(teams={"red": {"users": users}}))
    assert not resolve_process.is_large(document(teams={"red": {"users": users[:100]}}))
    assert not resolve_process.is_large(document(teams={f"t{name}": {"users": ["x"]} for name in users[:1100]}))


async def test_large_document_resolves_in_a_process() -> None:
    large = document(teams={"red": {"users": [f"u{number}" for number in range(6000)]}})
    found = await LifecycleBackend(None).resolve(large)  # type: ignore[arg-type]
    assert found == _resolve(large)
    assert len(found.cluster.users) == 6001  # and the owner


async def test_large_document_with_faults_is_refused_with_all_of_them() -> None:
    large = document(teams={"red": {"users": [f"u{number}" for number in range(6000)]}, "!": {}}, plan="none")
    with pytest.raises(InvalidSpec) as error:
        await LifecycleBackend(None).resolve(large)  # type: ignore[arg-type]
    with pytest.raises(InvalidSpec) as expected:
        _resolve(large)
    assert error.value.faults == expected.value.faults
    assert str(error.value) == str(expected.value)
