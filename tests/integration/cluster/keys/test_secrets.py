"""Each cluster gets random keys of its own; none has a default."""

from __future__ import annotations

import base64
from pathlib import Path

from tests.support.clusters import builders

from headway.cluster.keys.secrets import FILE_SECRETS, ensure_secrets, public_key


async def test_each_cluster_has_random_keys_of_its_own(tmp_path: Path) -> None:
    store = await builders.store(tmp_path)
    found = {}
    for name in ("lab", "other"):
        cluster = builders.cluster(1, name=name)
        found[name] = await ensure_secrets(store, cluster, cluster.machine_names)
        assert await ensure_secrets(store, cluster, cluster.machine_names) == found[name], "they stay"
    values = [*found["lab"].values(), *found["other"].values()]
    assert len(set(values)) == len(values)
    for name, value in found["lab"].items():
        if name in FILE_SECRETS:
            assert 8 * len(base64.b64decode(value)) >= 256, name
        else:
            assert public_key(value).startswith("ssh-ed25519 "), name
    await store.close()
