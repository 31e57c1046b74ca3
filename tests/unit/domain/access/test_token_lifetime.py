from __future__ import annotations

from headway.domain.access.token_lifetime import token_expiry, token_is_valid


def test_a_token_is_valid_for_its_days() -> None:
    expires_at = token_expiry(1000.0, 2)
    assert expires_at == 1000.0 + 2 * 86400
    assert token_is_valid(expires_at, expires_at - 1)
    assert not token_is_valid(expires_at, expires_at)


def test_a_token_without_days_never_expires() -> None:
    assert token_expiry(1000.0, None) is None
    assert token_is_valid(None, 1e12)
