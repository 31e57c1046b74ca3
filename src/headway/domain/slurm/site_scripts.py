"""The site's own scripts, which Slurm runs in addition to Headway's."""

from __future__ import annotations

import base64
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SiteScript:
    """One script. `content`: its text in base64, because texts of a cluster end no line."""

    name: str
    content: str

    @property
    def text(self) -> str:
        """The script's text."""
        return base64.b64decode(self.content).decode()

    @staticmethod
    def of(name: str, text: str) -> SiteScript:
        """Returns the script with this text."""
        return SiteScript(name, base64.b64encode(text.encode()).decode())


@dataclass(frozen=True, slots=True)
class SiteScripts:
    """The scripts of a cluster, in the order in which they run."""

    prolog: tuple[SiteScript, ...] = ()
    epilog: tuple[SiteScript, ...] = ()
    job_submit: SiteScript | None = None
