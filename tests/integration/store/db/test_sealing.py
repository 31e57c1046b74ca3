"""The key of the secrets in the database: where it is, and what happens without it."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import stat
import sys
from pathlib import Path

import pytest

from headway.domain.access.job_secret import OwnerKind, SecretOwner
from headway.errors import Refused
from headway.store import NotebookRow, Store, open_store
from headway.store.db.metadata import metadata
from headway.store.db.sealing import KEY_FILE
from headway.store.key_rotation import SEALED


async def test_database_has_no_secret_in_clear(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    values = [f"hush-{number}" for number in range(5)]
    await store.secrets.put_if_absent("lab", "munge_key", values[0])
    await store.secrets.set("lab", "bootstrap_key", values[1])
    await store.operations.enqueue("lab", "backup", "ann", params={"ref": "a"}, secret=values[2])
    await store.job_secrets.put("lab", SecretOwner(OwnerKind.USER, "mem"), "hf", values[3], "mem", 9)
    notebook = await store.notebooks.save(NotebookRow("n1", "lab", 0, "mem", "mem", "/n", values[4], 60, 0.0))
    await store.close()
    with sqlite3.connect(tmp_path / "headway.db") as db:
        assert "hush" not in "\n".join(db.iterdump())
    again = await open_store(tmp_path)
    assert sorted((await again.secrets.of_cluster("lab")).values()) == values[:3]
    assert await again.notebooks.get("n1") == notebook
    await again.close()


async def test_key_is_made_once_and_private(tmp_path: Path) -> None:
    stores = await asyncio.gather(*(open_store(tmp_path) for _ in range(3)))
    key = tmp_path / KEY_FILE
    assert (stat.S_IMODE(key.stat().st_mode), len(key.read_bytes())) == (0o600, 32)
    await stores[0].secrets.set("lab", "munge_key", "x")
    assert [await store.secrets.get("lab", "munge_key") for store in stores] == ["x"] * 3
    for store in stores:
        await store.close()


@pytest.mark.parametrize(
    ("content", "message"), [(None, "is missing"), (b"x" * 32, "is not the key"), (b"x", "has 1 bytes; a key has 32")]
)
async def test_server_does_not_start_without_the_key(tmp_path: Path, content: bytes | None, message: str) -> None:
    await (await open_store(tmp_path)).close()
    key = tmp_path / KEY_FILE
    key.unlink() if content is None else key.write_bytes(content)
    with pytest.raises(Refused, match=message) as caught:
        await open_store(tmp_path)
    assert "put back your copy of the file" in caught.value.hint
    assert (key.read_bytes() if key.exists() else None) == content, "no other key takes its place"


async def test_secret_moved_to_another_name_or_cluster_is_refused(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    await store.secrets.set("lab", "munge_key", "x")
    with sqlite3.connect(tmp_path / "headway.db") as db:
        db.execute("UPDATE secrets SET cluster = 'other'")
    with pytest.raises(Refused, match="munge_key of other in the server's database can't be decrypted"):
        await store.secrets.get("other", "munge_key")
    await store.close()


async def test_data_folder_of_several_servers_has_the_key(tmp_path: Path) -> None:
    data, state = tmp_path / "data", tmp_path / "state"
    data.mkdir()
    await (await open_store(state, data_dir=data)).close()
    assert [file.name for file in data.iterdir()] == [KEY_FILE]
    assert not (state / KEY_FILE).exists()


OWNER = SecretOwner(OwnerKind.USER, "mem")


async def filled(folder: Path) -> Store:
    """Returns a store with a secret of each kind."""
    store = await open_store(folder)
    await store.secrets.set("lab", "munge_key", "hush-0")
    await store.job_secrets.put("lab", OWNER, "hf", "hush-1", "mem", 9)
    await store.job_secrets.put("lab", OWNER, "hf", "hush-2", "mem", 9)
    await store.notebooks.save(NotebookRow("n1", "lab", 0, "mem", "mem", "/n", "hush-3", 60, 0.0))
    return store


async def check_filled(store: Store) -> None:
    assert await store.secrets.of_cluster("lab") == {"munge_key": "hush-0"}
    values = [store.job_secrets.value_of(row) for row in await store.job_secrets.values_to_mask("lab", OWNER)]
    assert sorted(values) == ["hush-1", "hush-2"], "also the former one, which logs still mask"
    assert (await store.notebooks.get("n1")).secret == "hush-3"


def test_rotation_knows_every_table_with_sealed_values() -> None:
    assert {table.name for table in SEALED} == {table.name for table in metadata.tables.values() if "sealed" in table.c}


async def test_rotation_encrypts_everything_with_a_new_key(tmp_path: Path) -> None:
    store, key = await filled(tmp_path), tmp_path / KEY_FILE
    former, before = key.read_bytes(), await store.job_secrets.of_owners("lab", OWNER)
    assert await store.key_rotation.rotate() == 4
    assert ([file.name for file in tmp_path.glob(f"{KEY_FILE}*")], stat.S_IMODE(key.stat().st_mode)) == (
        [KEY_FILE],
        0o600,
    )
    await check_filled(store)
    assert store.job_secrets.value_of(before[0]) == "hush-2", "a row that was read before the rotation opens too"
    await store.close()
    new = key.read_bytes()
    again = await open_store(tmp_path)
    await check_filled(again)
    await again.close()
    key.write_bytes(former)
    with pytest.raises(Refused, match="is not the key"):
        await open_store(tmp_path)
    assert former != new


async def test_another_server_of_the_database_reads_and_writes_with_the_new_key(tmp_path: Path) -> None:
    """Also while the rotation runs: nothing is ever stored that no key opens."""
    first, second = await filled(tmp_path), await open_store(tmp_path)

    async def write(store: Store, name: str) -> None:
        for number in range(20):
            await store.secrets.set("other", f"{name}-{number}", f"hush-{name}-{number}")

    await asyncio.gather(
        write(second, "a"), first.key_rotation.rotate(), write(first, "b"), second.key_rotation.rotate(),
        first.key_rotation.rotate(), write(second, "c"),
    )  # fmt: skip
    expected = {f"{name}-{number}": f"hush-{name}-{number}" for name in "abc" for number in range(20)}
    for store in (first, second, await open_store(tmp_path)):
        assert await store.secrets.of_cluster("other") == expected
        await check_filled(store)
        await store.close()


# Kills the process right before a call of a function, the first or a later one; `then`: right after it.
_KILLED = """\
import asyncio, os, signal, sys
from pathlib import Path
from headway.store import open_store
from headway.store import key_rotation
from headway.store.db import sealing

async def main(folder, where, number, then):
    store = await open_store(Path(folder))
    call, calls = getattr(sealing, where), []

    def killed(*args):
        calls.append(args)
        if then or len(calls) < number:
            answer = call(*args)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(sealing, where, killed)
    await store.key_rotation.rotate()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "then"))
"""


@pytest.mark.parametrize(
    ("where", "number", "then", "changed"),
    [
        ("new_key", 1, "", False),
        ("new_key", 1, "then", False),
        ("seal", 1, "", False),
        ("seal", 4, "then", False),
        ("name_as_usual", 2, "", True),
        ("name_as_usual", 2, "then", True),
    ],
)
async def test_killed_rotation_leaves_a_database_that_opens(
    tmp_path: Path, where: str, number: int, then: str, changed: bool
) -> None:
    await (await filled(tmp_path)).close()
    former = (tmp_path / KEY_FILE).read_bytes()
    argv = (sys.executable, "-c", _KILLED, str(tmp_path), where, str(number), then)
    process = await asyncio.create_subprocess_exec(*argv)
    assert await process.wait() == -signal.SIGKILL
    store = await open_store(tmp_path)
    await check_filled(store)
    assert ((tmp_path / KEY_FILE).read_bytes() != former) is changed
    assert await store.key_rotation.rotate() == 4
    assert [file.name for file in tmp_path.glob(f"{KEY_FILE}*")] == [KEY_FILE], "nothing is left of the killed one"
    await check_filled(store)
    await store.close()


async def test_secret_that_can_not_be_decrypted_stops_the_rotation(tmp_path: Path) -> None:
    store, former = await filled(tmp_path), (tmp_path / KEY_FILE).read_bytes()
    with sqlite3.connect(tmp_path / "headway.db") as db:
        db.execute("UPDATE notebooks SET id = 'n2'")
    with pytest.raises(Refused, match=r"secret of notebook n2 .* so the key is not replaced"):
        await store.key_rotation.rotate()
    assert await store.secrets.get("lab", "munge_key") == "hush-0"
    await store.close()
    await (await open_store(tmp_path)).close()
    assert (tmp_path / KEY_FILE).read_bytes() == former
