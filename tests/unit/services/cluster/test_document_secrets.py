from __future__ import annotations

import pytest

from headway.schemas.clusters import Document
from headway.services.cluster.document_secrets import without_secrets
from headway.validation.yaml_parser import parse_yaml


@pytest.mark.parametrize(
    "chat",
    [
        '"https:\\/\\/chat.example.org\\/hooks\\/s3cret"',
        '"https://chat.example.org/hooks/\\\n    s3cret"',
        '"https://chat.example.org/hooks/s3c\\x72et"',
    ],
)
def test_document_hides_alert_urls_in_any_yaml_spelling(chat: str) -> None:
    text = f"# ours\nname: lab\nalerts:\n  chat: {chat}\n"
    spec = parse_yaml(text)
    assert spec["alerts"] == {"chat": "https://chat.example.org/hooks/s3cret"}
    shown = without_secrets(Document(text=text, spec=spec))
    assert parse_yaml(shown.text) == shown.spec == {"name": "lab", "alerts": {"chat": "hidden"}}
    plain = "# ours\nname: lab\nalerts: {chat: https://chat.example.org/hooks/s3cret}\n"
    kept = without_secrets(Document(text=plain, spec=spec)).text
    assert kept == "# ours\nname: lab\nalerts: {chat: hidden}\n"
