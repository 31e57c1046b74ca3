"""One-time codes and browser sessions of notebooks, and the tunnels to them.

They are kept in memory only: after a server restart the notebook must be opened again. Codes and sessions are stored
as SHA-256 digests."""

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
RECHECK_S = 30.0  # how often a session checks that its person may still work on the cluster
MAX_CODES = 10_000
MAX_SESSIONS = 10_000


NotebookRun = tuple[str, float]  # of a notebook's job: (first node, start time)


@dataclass
class _Pass:
    notebook: str  # "": all notebooks of this person (one origin for all)
    person: str
    expires: float
    checked_at: float  # when the person was last checked


@dataclass
class NotebookSessions:
    """Codes, sessions, tunnels and locks, by notebook id."""

    tunnels: dict[str, tuple[NotebookRun, Tunnel]] = field(default_factory=dict)
    ready: dict[str, NotebookRun] = field(default_factory=dict)  # runs whose Jupyter has answered
    _codes: dict[str, _Pass] = field(default_factory=dict)
    _sessions: dict[str, _Pass] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    def create_code(self, notebook: str, person: str, now: float) -> tuple[str, float]:
        """Returns (a new code, unix seconds when it expires)."""
        _prune(self._codes, now, MAX_CODES)
        code = random.token_urlsafe(32)
        self._codes[_digest(code)] = _Pass(notebook, person, now + CODE_S, now)
        return code, now + CODE_S

    def find_code(self, code: str, now: float) -> tuple[str, str] | None:
        """Returns (notebook, person) of an unused code; None for any other."""
        known = self._codes.get(_digest(code))
        return (known.notebook, known.person) if known is not None and known.expires > now else None

    def use_code(self, code: str) -> None:
        """Makes the code invalid."""
        self._codes.pop(_digest(code), None)

    def create_session(self, notebook: str, person: str, now: float) -> str:
        """Returns a new session secret for a browser."""
        _prune(self._sessions, now, MAX_SESSIONS)
        session = random.token_urlsafe(32)
        self._sessions[_digest(session)] = _Pass(notebook, person, now + SESSION_S, now)
        return session

    def check_session(self, session: str, notebook: str, now: float) -> tuple[str, bool] | None:
        """Returns (person, whether it is time to check their access again) for a session of this notebook; None if
        there is none."""
        known = self._sessions.get(_digest(session))
        if known is None or known.notebook != notebook or known.expires <= now:
            return None
        again = now - known.checked_at > RECHECK_S
        if again:
            known.checked_at = now
        return known.person, again

    def lock(self, notebook: str) -> asyncio.Lock:
        """Returns the lock under which the notebook's tunnel is opened, so that requests at the same time share one
        tunnel."""
        return self._locks.setdefault(notebook, asyncio.Lock())

    def end_sessions_of(self, person: str) -> None:
        """Ends all codes and sessions of a person."""
        for passes in (self._codes, self._sessions):
            for key in [key for key, known in passes.items() if known.person == person]:
                del passes[key]

    async def forget_notebook(self, notebook: str) -> None:
        """Ends all codes, sessions and the tunnel of a notebook that has ended."""
        for passes in (self._codes, self._sessions):
            for key in [key for key, known in passes.items() if known.notebook == notebook]:
                del passes[key]
        self._locks.pop(notebook, None)
        await self.close_tunnel(notebook)

    async def close_tunnel(self, notebook: str) -> None:
        """Closes the tunnel, if there is one, because its job has ended or moved."""
        self.ready.pop(notebook, None)
        _, tunnel = self.tunnels.pop(notebook, (None, None))
        if tunnel is not None:
            await tunnel.close()

    async def close_all(self) -> None:
        """Ends all codes, sessions and tunnels of notebooks with a tunnel, when the server stops."""
        for notebook in list(self.tunnels):
            await self.forget_notebook(notebook)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _prune(passes: dict[str, _Pass], now: float, most: int) -> None:
    for key in [key for key, known in passes.items() if known.expires <= now]:
        del passes[key]
    while len(passes) >= most:
        del passes[next(iter(passes))]
