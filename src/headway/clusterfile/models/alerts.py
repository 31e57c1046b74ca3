"""mail and alerts: where messages are sent."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headway.validation import syntax_rules
from headway.validation.field_types import FileSection, checked_by


class MailPart(FileSection):
    """Mail server for --mail-type."""

    relay: Annotated[str, checked_by(syntax_rules.relay_fault)] = Field(
        description="host:port of an SMTP server.", examples=["mail.example.org:25"]
    )


class AlertsPart(FileSection):
    """Receivers of alerts about nodes, GPUs and daemons (default: none)."""

    webhook: Annotated[str, checked_by(syntax_rules.url_fault)] | None = Field(
        None, description="URL that receives alerts as JSON by POST.", examples=["https://example.org/alerts"]
    )
    chat: Annotated[str, checked_by(syntax_rules.url_fault)] | None = Field(
        None, description="Incoming webhook of a chat in Slack's format (Slack, Mattermost, Rocket.Chat and others)."
    )
    mail: Annotated[str, checked_by(syntax_rules.mail_fault)] | None = Field(
        None, description="Mail address; the mail is sent through mail.relay.", examples=["oncall@example.org"]
    )
