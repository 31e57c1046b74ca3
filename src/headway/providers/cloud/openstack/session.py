"""Signed-in requests to the services of one region of an OpenStack cloud."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from headway.errors import Unanswered, Unreachable
from headway.providers.cloud.openstack.credentials import Credentials, read_credentials
from headway.providers.cloud.openstack.errors import error_of_answer
from headway.providers.cloud.refusals import AuthFailed, Rejected, Throttled

if TYPE_CHECKING:
    import ssl

    import httpx

_CONNECT_S, _READ_S, _TRIES = 5, 60, 3
_LONGEST_WAIT_S = 10.0  # between two tries of a request that was throttled
COMPUTE, NETWORK, IMAGE, VOLUME = "compute", "network", "image", "volume"
# What catalogues call the services, and the end of their address where the catalogue may leave it out.
_SERVICES: Mapping[str, tuple[tuple[str, ...], str]] = {
    COMPUTE: (("compute",), ""),
    NETWORK: (("network",), "/v2.0"),
    IMAGE: (("image",), "/v2"),
    VOLUME: (("block-storage", "volumev3"), ""),
}
_NOVA_VERSION = "2.61"  # flavors with their extra specs: Rocky, 2018


class OpenStackSession:
    """Sends requests to one region. It signs in with the first one, and again when the token has expired."""

    def __init__(self, region: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.region = region
        self._sleep = sleep
        self._credentials: Credentials | None = None
        self._token = ""
        self._endpoints: dict[str, str] = {}
        self._tls: ssl.SSLContext | bool | None = None
        self._sign_in = asyncio.Lock()

    async def get(self, service: str, path: str, **query: str) -> dict[str, Any]:
        """Returns the answer of a GET. Raises a CloudRefusal, Unreachable or Unanswered."""
        answer: dict[str, Any] = await self.call("GET", service, path, query=query)
        return answer

    async def find(self, service: str, path: str) -> dict[str, Any] | None:
        """Returns the answer of a GET, None if there is no such thing."""
        answer: dict[str, Any] | None = await self.call("GET", service, path, missing_ok=True)
        return answer

    async def delete(self, service: str, path: str) -> None:
        """Deletes something. Does nothing if it is gone."""
        await self.call("DELETE", service, path, missing_ok=True)

    async def has(self, service: str) -> bool:
        """Returns whether the region has a service."""
        await self._signed_in("")
        return service in self._endpoints

    async def call(
        self,
        method: str,
        service: str,
        path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        *,
        missing_ok: bool = False,
    ) -> Any:
        """Sends a request and returns its answer. A request that was throttled, and a GET that failed, is sent again, three
        times in all. `missing_ok`: returns None for 404. Raises a CloudRefusal, Unreachable, and Unanswered if it is not
        known whether the request was carried out."""
        token = ""
        for tries_left in reversed(range(_TRIES)):
            token = await self._signed_in(token)
            try:
                answer = await self._send(method, self._url(service, path), token, body, query)
            except (Unanswered, Unreachable):
                if method != "GET" or not tries_left:
                    raise
                continue
            if answer.status_code == 404 and missing_ok:
                return None
            if answer.status_code == 401 and tries_left:
                continue  # the token has expired: signs in again
            if answer.is_success:
                return answer.json() if answer.content else {}
            error = error_of_answer(answer.status_code, answer.text, service, self.region)
            again = isinstance(error, Throttled) or (isinstance(error, Unanswered) and method == "GET")
            if not again or not tries_left:
                raise error
            await self._sleep(_wait_of(answer))
            token = ""
        raise AssertionError("unreachable")  # the last try returns or raises

    async def _signed_in(self, refused: str) -> str:
        """Returns a token other than the one that was refused."""
        async with self._sign_in:
            if not self._token or self._token == refused:
                if self._credentials is None:
                    self._credentials = await asyncio.to_thread(read_credentials, os.environ)
                try:
                    await self._authenticate(self._credentials)
                except AuthFailed:
                    self._credentials = None  # the next call reads them again: a person may have renewed them
                    raise
            return self._token

    async def _authenticate(self, credentials: Credentials) -> None:
        answer = await self._send("POST", f"{credentials.auth_url}/auth/tokens", "", credentials.body)
        if not answer.is_success:
            error = error_of_answer(answer.status_code, answer.text, "identity", self.region)
            if answer.status_code < 500:
                raise error
            raise Unreachable(error.message, hint=error.hint)  # a request for a token can be repeated
        try:
            token = answer.json()["token"]
            self._endpoints = self._read_catalogue(token.get("catalog") or [], credentials.interface)
            self._token = answer.headers["X-Subject-Token"]
        except (ValueError, KeyError, TypeError) as error:
            raise AuthFailed(f"{credentials.auth_url} answers with no token of Keystone") from error

    def _read_catalogue(self, catalogue: list[dict[str, Any]], interface: str) -> dict[str, str]:
        found: dict[str, str] = {}
        regions: set[str] = set()
        for service, (types, end) in _SERVICES.items():
            for entry in catalogue:
                for point in entry.get("endpoints", ()) if entry.get("type") in types else ():
                    regions.add(str(point.get("region_id") or point.get("region")))
                    if point.get("interface") == interface and self.region in (
                        point.get("region_id"),
                        point.get("region"),
                    ):
                        url = str(point["url"]).rstrip("/")
                        found[service] = url if url.endswith(end) else f"{url}{end}"
        if COMPUTE not in found:
            there = ", ".join(sorted(regions)) or "none"
            raise Rejected(
                "NoRegion", f"the cloud has no region {self.region} with {interface} endpoints; it has {there}"
            )
        return found

    def _url(self, service: str, path: str) -> str:
        if service not in self._endpoints:
            raise Rejected("NoService", f"{self.region} has no service {service}")
        return f"{self._endpoints[service]}{path}"

    async def _send(
        self, method: str, url: str, token: str, body: object = None, query: Mapping[str, str] | None = None
    ) -> httpx.Response:
        import httpx

        headers = {"X-OpenStack-Nova-API-Version": _NOVA_VERSION, **({"X-Auth-Token": token} if token else {})}
        limits = httpx.Timeout(_READ_S, connect=_CONNECT_S)
        where = url.partition("?")[0]
        try:
            async with httpx.AsyncClient(verify=await self._trust(), timeout=limits) as client:
                return await client.request(method, url, headers=headers, json=body, params=query)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise Unreachable(f"{where} does not answer: {error}", hint="check the network and OS_AUTH_URL") from error
        except httpx.HTTPError as error:
            what = str(error) or type(error).__name__
            raise Unanswered(f"an answer of {where} was lost: {what}", hint="try again in a minute") from error

    async def _trust(self) -> ssl.SSLContext | bool:
        if self._tls is None:
            assert self._credentials is not None
            self._tls = await asyncio.to_thread(_tls_context, self._credentials.ca_file)
        return self._tls


@functools.lru_cache(maxsize=4)  # reading the system's certificates takes long
def _tls_context(ca_file: str) -> ssl.SSLContext:
    import ssl

    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise AuthFailed(
            f"the certificates {ca_file} of the cloud (OS_CACERT) can't be read: {error.strerror}"
        ) from error


def _wait_of(answer: httpx.Response) -> float:
    """Returns how long the cloud asks to wait, at most _LONGEST_WAIT_S; 1 if it does not say."""
    said = answer.headers.get("Retry-After", "")
    return min(float(said), _LONGEST_WAIT_S) if said.isdigit() else 1.0
