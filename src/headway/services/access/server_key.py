"""The key that the secrets in the server's database are encrypted with."""

from __future__ import annotations

from headway.schemas.server import KeyRotatedOut
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState


async def rotate_server_key(state: AppState, who: Principal) -> KeyRotatedOut:
    """Encrypts all secrets in the database with a new key. Raises Refused if one can't be decrypted or the key can't be stored,
    and SignInAgain."""
    who.require_recent_sign_in(state.clock(), "replace the key of the server's secrets")
    count = await state.store.key_rotation.rotate()
    await write_audit_line(state, who, "server_key.rotate", "server", secrets=count)
    return KeyRotatedOut(secrets=count, file=str(state.store.key_rotation.file))
