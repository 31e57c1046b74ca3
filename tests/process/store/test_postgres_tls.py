"""TLS to a real PostgreSQL. Skipped where none is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from headway.store import StoreUnavailable, open_store
from tests.support.servers.postgres import BIN, postgres
from tests.support.servers.tls import certificate

pytestmark = pytest.mark.skipif(BIN is None, reason="no PostgreSQL here")


@pytest.fixture(scope="module")
def cert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Returns certificate and key of a server named localhost, which the tests reach as 127.0.0.1 too."""
    return certificate(tmp_path_factory.mktemp("tls"), "localhost")


@pytest.fixture(scope="module")
def url(cert: tuple[Path, Path]) -> Iterator[str]:
    with postgres(cert) as found:
        yield found


async def test_known_certificate_for_the_host_is_accepted(url: str, cert: tuple[Path, Path], tmp_path: Path) -> None:
    named = url.replace("127.0.0.1", "localhost")
    store = await open_store(tmp_path, f"{named}?sslmode=verify-full&sslrootcert={cert[0]}")
    try:
        async with store.database.read() as db:
            asked = text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
            assert (await db.execute(asked)).scalar() is True
    finally:
        await store.close()


@pytest.mark.parametrize("fault", ["unknown authority", "other host"])
async def test_other_certificate_is_refused(url: str, cert: tuple[Path, Path], tmp_path: Path, fault: str) -> None:
    root = f"&sslrootcert={cert[0]}" if fault == "other host" else ""
    with pytest.raises(StoreUnavailable, match="certificate verify failed") as caught:
        await open_store(tmp_path, f"{url}?sslmode=verify-full{root}")
    assert "sslrootcert=FILE" in caught.value.hint
