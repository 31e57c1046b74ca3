"""Sends requests to slurmrestd, over the pinned SSH connection to the head. Only reads; the commands of this
package change things."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from headway.domain.machines.machine import Machine
from headway.errors import HeadwayError, NotFound, Unreachable
from headway.transport.http_socket import http_client

if TYPE_CHECKING:
    import httpx

SOCKET = "/run/headway/slurmrestd.sock"
TOKEN_LIFE_S = 600
RENEW_BEFORE_S = 120  # seconds; a clock difference of this size between server and head does no harm
ANSWER_S = 15.0

_CONTROLLER_AWAY = ("unable to contact slurm controller", "controller connect", "connection refused", "protocol error")
_NO_SUCH = ("invalid job id", "invalid node name", "requested reservation is invalid")


class ForwardsSockets(Protocol):
    """The part of Connections that the client needs."""

    async def forward_socket(self, machine: Machine, remote_path: str) -> str:
        """Returns the path of a local Unix socket that leads to `remote_path` on the machine. Raises Unreachable."""
        ...


class SlurmToken:
    """A JWT for one Slurm user, made with the cluster's key and renewed before it expires."""

    def __init__(self, key: bytes, user: str = "slurm", *, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._user = user
        self._clock = clock
        self._text = ""
        self._ends = 0.0

    def headers(self) -> dict[str, str]:
        """Returns the headers of a request; older versions also want the user's name."""
        return {"X-SLURM-USER-NAME": self._user, "X-SLURM-USER-TOKEN": self.text()}

    def text(self) -> str:
        """Returns the token, which is valid for at least RENEW_BEFORE_S more seconds."""
        now = self._clock()
        if now > self._ends - RENEW_BEFORE_S:
            from joserfc import jwt
            from joserfc.jwk import OctKey

            self._ends = now + TOKEN_LIFE_S
            claims = {"iat": int(now) - 5, "exp": int(self._ends), "sun": self._user}
            self._text = jwt.encode({"alg": "HS256", "typ": "JWT"}, claims, OctKey.import_key(self._key))
        return self._text


class SlurmRestClient:
    """Sends GET requests to one cluster's slurmrestd. After a restart of the head, the socket is forwarded again."""

    def __init__(self, connections: ForwardsSockets, head: Machine, token: SlurmToken) -> None:
        self._connections = connections
        self._head = head
        self._token = token
        self._client: httpx.AsyncClient | None = None
        self._path = ""
        self._lock = asyncio.Lock()

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, hook: Callable[[dict[str, Any]], Any] | None = None
    ) -> dict[str, Any]:
        """Returns the decoded answer; `hook` is json.loads's object_hook. Raises NotFound (no such job, node,
        ...), Unreachable (the head, slurmrestd or slurmctld does not answer, or the answer can't be decoded) or
        HeadwayError with Slurm's own words."""
        import httpx

        for attempt in (1, 2):
            client = await self._connected()
            try:
                answer = await client.get(path, params=params, headers=self._token.headers())
                break
            except httpx.TimeoutException as error:
                # slurmrestd waits for slurmctld without answering, so slurmctld is the most frequent cause.
                raise self._silent(f"did not answer {path} within {ANSWER_S:g} s: slurmctld may be down") from error
            except httpx.TransportError as error:
                # A kept connection that ended with the head or slurmrestd fails only now: try once more on a new one.
                await self.close()
                if attempt == 2:
                    raise self._silent(f"does not answer ({type(error).__name__})") from error
        return self._decoded(path, answer, hook)

    async def close(self) -> None:
        """Closes the connections; the next request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _connected(self) -> httpx.AsyncClient:
        async with self._lock:
            path = await self._connections.forward_socket(self._head, SOCKET)
            if self._client is None or path != self._path:
                await self.close()
                self._client = http_client(path, "http://slurmrestd", timeout_s=ANSWER_S, keep=4)
                self._path = path
            return self._client

    def _decoded(self, path: str, answer: httpx.Response, hook: Any = None) -> dict[str, Any]:
        """Returns the decoded answer, or raises the error it contains. Slurm passes on users' text unchanged, so
        bytes that are not UTF-8 are replaced: one job's name must not hide all other jobs."""
        try:
            body = json.loads(answer.content.decode(errors="replace"), object_hook=hook)
        except ValueError:
            body = None
        errors = "; ".join(_words(error) for error in body.get("errors") or ()) if isinstance(body, dict) else ""
        if answer.status_code == 200 and not errors:
            if isinstance(body, dict):
                return body
            raise self._silent(f"answered {path} with unreadable data ({len(answer.content)} bytes)")
        lower = errors.lower()
        where = f"{self._head.cluster}: {path}"
        if any(text in lower for text in _NO_SUCH):
            raise NotFound(f"{where}: {errors}")
        if any(text in lower for text in _CONTROLLER_AWAY):
            raise Unreachable(
                f"slurmctld on {self._head.name} does not answer: {errors}",
                hint=f"headway exec {self._head.cluster} -- journalctl -u slurmctld -n 50",
            )
        if answer.status_code == 401 or "authentication" in lower:
            raise HeadwayError(
                f"slurmrestd on {self._head.name} does not accept the server's token",
                hint=f"clocks or JWT keys may differ: run headway apply for {self._head.cluster}",
            )
        raise HeadwayError(f"{where}: slurmrestd answered {answer.status_code}: {errors or answer.text[:200]}")

    def _silent(self, what: str) -> Unreachable:
        return Unreachable(
            f"slurmrestd on {self._head.name} {what}",
            hint=f"headway exec {self._head.cluster} -- systemctl status slurmrestd",
        )


def _words(error: Any) -> str:
    """Returns one entry of slurmrestd's `errors` as a sentence."""
    if not isinstance(error, dict):
        return str(error)
    parts = (error.get("error"), error.get("description"))
    return ": ".join(dict.fromkeys(str(part) for part in parts if part)) or str(error)
