"""An admin replaces the key of the server's secrets."""

from __future__ import annotations

from headway.store import AuditAsk
from headway.store.db.sealing import KEY_FILE
from tests.support.servers.server_fakes import Server


async def test_key_of_the_servers_secrets_is_replaced_with_a_line_in_the_audit_trail(server: Server) -> None:
    await server.store.secrets.set("lab", "munge_key", "hush")
    key = server.store.key_rotation.file
    former = key.read_bytes()
    answer = await (await server.client("ann", "admin")).post("/api/v1/server/key/rotate")
    assert (answer.status_code, answer.json()) == (200, {"secrets": 1, "file": str(key)})
    assert key.name == KEY_FILE
    assert key.read_bytes() != former
    assert await server.store.secrets.of_cluster("lab") == {"munge_key": "hush"}
    (line,) = await server.store.audit.search(AuditAsk(action="server_key.rotate"))
    assert (line.person, line.target, line.result, line.detail) == ("ann", "server", "ok", {"secrets": 1})
