"""A signed statement opens with its own key only, and not after a change."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from headway.errors import Refused
from headway.signed_statement import (
    STATEMENT,
    envelope,
    new_signing_key,
    open_envelope,
    public_key,
    read_signing_key,
    signed_message,
)

KEY = new_signing_key()
PUBLIC = public_key(KEY).encode()


def signed(statement: dict[str, Any]) -> dict[str, Any]:
    return envelope(json.dumps(statement).encode(), read_signing_key(KEY))


def test_statement_opens_with_the_public_key() -> None:
    statement = {"_type": STATEMENT, "subject": []}
    assert open_envelope(json.dumps(signed(statement)).encode(), PUBLIC) == statement


def test_message_is_that_of_the_dsse_specification() -> None:
    """The example of the protocol's text has another payload type; the form is the same."""
    assert signed_message(b"hello world") == b"DSSEv1 28 application/vnd.in-toto+json 11 hello world"


def test_changed_statement_and_other_key_are_refused() -> None:
    made = signed({"_type": STATEMENT, "subject": []})
    other = public_key(new_signing_key()).encode()
    with pytest.raises(Refused, match="the signature does not fit"):
        open_envelope(json.dumps(made).encode(), other)
    changed = {**made, "payload": base64.b64encode(json.dumps({"_type": STATEMENT, "subject": [1]}).encode()).decode()}
    with pytest.raises(Refused, match="the signature does not fit"):
        open_envelope(json.dumps(changed).encode(), PUBLIC)
    with pytest.raises(Refused, match="the signature does not fit"):
        open_envelope(json.dumps({**made, "signatures": []}).encode(), PUBLIC)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"payloadType": "application/vnd.in-toto+json"}', b"\xff"])
def test_other_texts_are_no_manifest(text: bytes) -> None:
    with pytest.raises(Refused, match="no signed manifest"):
        open_envelope(text, PUBLIC)


def test_key_that_is_none_is_named() -> None:
    made = json.dumps(signed({"_type": STATEMENT})).encode()
    for wrong in (b"", KEY.encode()):
        with pytest.raises(Refused, match="not a public ECDSA key"):
            open_envelope(made, wrong)
