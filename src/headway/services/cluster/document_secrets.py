"""Secrets in the document of a cluster, which API and pages do not show."""

from __future__ import annotations

from typing import Any

from headway.errors import InvalidSpec
from headway.schemas.clusters import Document

HIDDEN = "hidden"


def without_secrets(document: Document) -> Document:
    """Returns the document without the addresses of alerts, which are secrets: everyone who has one can post to it. The
    text stays as written, unless it spells an address differently from its value (escapes, folded lines); then the
    text is made from the spec, without comments."""
    alerts = document.spec.get("alerts")
    if not isinstance(alerts, dict):
        return document
    secret = {key: alerts[key] for key in ("webhook", "chat") if isinstance(alerts.get(key), str) and alerts[key]}
    shown = {key: HIDDEN if key in secret else value for key, value in alerts.items()}
    spec, text = {**document.spec, "alerts": shown}, document.text
    for value in secret.values():
        text = text.replace(value, HIDDEN)
    if text and secret:
        from headway.validation.yaml_parser import dump_yaml  # so that PyYAML is loaded only when needed

        if any(_alerts_of(text).get(key) != HIDDEN for key in secret):
            text = dump_yaml(spec)
    return document.model_copy(update={"text": text, "spec": spec})


def _alerts_of(text: str) -> dict[str, Any]:
    from headway.validation.yaml_parser import parse_yaml

    try:
        alerts = parse_yaml(text).get("alerts")
    except InvalidSpec:
        return {}
    return alerts if isinstance(alerts, dict) else {}
