"""How a browser gets into a notebook: a code that works once, then a session of the notebook alone; and the tunnels.

All of it lives in memory: after a restart one opens the notebook again. Codes and sessions are kept by their digest."""

from __future__ import annotations

import asyncio
import hashlib
import secrets as random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.jobs.remote.tunnel import Tunnel

CODE_S = 60.0
SESSION_S = 12 * 3600.0
ASK_AGAIN_S = 30.0  # whether the person may still work on the cluster
MOST_CODES = 10_000
MOST_SESSIONS = 10_000


Run = tuple[str, float]  # of a notebook's job: its first node, and when it began there


@dataclass
class _Pass:
    notebook: str  # "": the browser has this person's notebooks open
    person: str
    expires: float
    looked_at: float


@dataclass
class Notebooks:
    """Who was let into which notebook, and what leads there."""

    tunnels: dict[str, tuple[Run, Tunnel]] = field(default_factory=dict)
    ready: dict[str, Run] = field(default_factory=dict)  # whose Jupyter has answered
    _codes: dict[str, _Pass] = field(default_factory=dict)
    _sessions: dict[str, _Pass] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    def code(self, notebook: str, person: str, now: float) -> tuple[str, float]:
        """(code, when it ends)."""
        _prune(self._codes, now, MOST_CODES)
        code = random.token_urlsafe(32)
        self._codes[_digest(code)] = _Pass(notebook, person, now + CODE_S, now)
        return code, now + CODE_S

    def meant(self, code: str, now: float) -> tuple[str, str] | None:
        """(notebook, person) of a code that was not used before; None for any other."""
        known = self._codes.get(_digest(code))
        return (known.notebook, known.person) if known is not None and known.expires > now else None

    def spend(self, code: str) -> None:
        self._codes.pop(_digest(code), None)

    def session(self, notebook: str, person: str, now: float) -> str:
        """A browser's that is let in."""
        _prune(self._sessions, now, MOST_SESSIONS)
        session = random.token_urlsafe(32)
        self._sessions[_digest(session)] = _Pass(notebook, person, now + SESSION_S, now)
        return session

    def person(self, session: str, notebook: str, now: float) -> tuple[str, bool] | None:
        """(person, whether it is time to ask if they still may) of a session of this notebook."""
        known = self._sessions.get(_digest(session))
        if known is None or known.notebook != notebook or known.expires <= now:
            return None
        again = now - known.looked_at > ASK_AGAIN_S
        if again:
            known.looked_at = now
        return known.person, again

    def lock(self, notebook: str) -> asyncio.Lock:
        return self._locks.setdefault(notebook, asyncio.Lock())

    def sign_out(self, person: str) -> None:
        """Ends all that a person's browsers were let into."""
        for passes in (self._codes, self._sessions):
            for key in [key for key, known in passes.items() if known.person == person]:
                del passes[key]

    async def forget(self, notebook: str) -> None:
        """It has ended."""
        for passes in (self._codes, self._sessions):
            for key in [key for key, known in passes.items() if known.notebook == notebook]:
                del passes[key]
        self._locks.pop(notebook, None)
        await self.drop(notebook)

    async def drop(self, notebook: str) -> None:
        """What leads there: its job is elsewhere now."""
        self.ready.pop(notebook, None)
        _, tunnel = self.tunnels.pop(notebook, (None, None))
        if tunnel is not None:
            await tunnel.close()

    async def close(self) -> None:
        for notebook in list(self.tunnels):
            await self.forget(notebook)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _prune(passes: dict[str, _Pass], now: float, most: int) -> None:
    for key in [key for key, known in passes.items() if known.expires <= now]:
        del passes[key]
    while len(passes) >= most:
        del passes[next(iter(passes))]
