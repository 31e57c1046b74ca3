"""HTTP to one server: requests and streams in, wire models or HeadwayError subclasses out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

from headway.errors import HeadwayError, NotFound, Refused, Unreachable
from headway.schemas.base import API_PREFIX, IDEMPOTENCY_KEY, ErrorOut, Problem, Wire
from headway.sdk.discover import NO_SERVER, in_reach, named_by, own_certificate, start_hint, urls
from headway.sdk.errors import to_error

if TYPE_CHECKING:
    import ssl

    import httpx

M = TypeVar("M", bound=Wire)
_AWAY = (502, 503, 504)  # what a proxy says while the server behind it does not answer
WRONG_URL_HINT = "check HEADWAY_URL; without it the server of this machine is used"


class Http:
    """A connection to one server. Use as a context manager, or call `close`."""

    def __init__(
        self,
        url: str = "",
        token: str = "",
        *,
        timeout_s: float = 60.0,
        refresh: Callable[[], tuple[str, str]] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if not url:
            url, token, refresh = in_reach()
        self.url = url.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s
        self._refresh = refresh
        self._several = refresh is not None and len(urls()) > 1
        self._transport = transport
        self._http: httpx.Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def _get(self, path: str, model: type[M]) -> M:
        return self._read(model, self._json("GET", path))

    def _list(self, path: str, model: type[M], params: dict[str, str] | None = None) -> list[M]:
        """All of it, page by page."""
        rows: list[M] = []
        while True:
            answer = self._request("GET", path, params=params)
            found = self._parsed(answer)
            rows += [self._read(model, item) for item in (found if isinstance(found, list) else [found])]
            further = answer.links.get("next", {}).get("url", "")
            if not further:
                return rows
            path, params = further.removeprefix(API_PREFIX), None

    def _post(self, path: str, model: type[M], body: Any = None, *, timeout_s: float | None = None) -> M:
        return self._read(model, self._json("POST", path, body=body, timeout_s=timeout_s))

    def _read(self, model: type[M], answer: Any) -> M:
        try:
            return model.model_validate(answer)
        except ValueError:
            raise Refused(
                f"the server at {self.url} answers in a way that this headway does not understand",
                hint="headway version shows both; install the server's version here, or start the server again",
            ) from None

    def _json(self, method: str, path: str, **asked: Any) -> Any:
        """What `_request` with these arguments was answered, as JSON."""
        return self._parsed(self._request(method, path, **asked))

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        data: bytes | None = None,
        params: dict[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        import httpx

        content = data if body is None else body.model_dump_json()
        headers = _content_type(body, data) or {}
        if method == "POST" and self._several:  # it may be sent again, to another server of the same database
            headers[IDEMPOTENCY_KEY] = os.urandom(16).hex()

        def send() -> httpx.Response:
            timeout = timeout_s or self._timeout_s
            where = API_PREFIX + path
            return self._client().request(
                method, where, content=content, params=params, headers=headers, timeout=timeout
            )

        try:
            try:
                answer = send()
            except httpx.TransportError as error:
                if isinstance(error, httpx.TimeoutException) or not self._moved(method):
                    raise
                answer = send()
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        _raise_for(answer.status_code, answer.content)
        return answer

    def _parsed(self, answer: httpx.Response) -> Any:
        try:
            return answer.json() if answer.content else None
        except ValueError:
            raise Refused(f"what answers at {self.url} is not a Headway server", hint=WRONG_URL_HINT) from None

    @contextmanager
    def _stream(
        self,
        path: str,
        params: dict[str, str] | None,
        read_timeout_s: float | None,
        *,
        method: str = "GET",
        body: Any = None,
    ) -> Iterator[httpx.Response]:
        import httpx

        timeout = httpx.Timeout(self._timeout_s, read=read_timeout_s)
        try:
            content = None if body is None else body.model_dump_json()
            headers = {"content-type": "application/json"} if content else None
            with self._client().stream(
                method, API_PREFIX + path, params=params, timeout=timeout, content=content, headers=headers
            ) as answer:
                if answer.status_code >= 400:
                    _raise_for(answer.status_code, answer.read())
                yield answer
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def _put(self, path: str, piece: bytes) -> bool:
        """Whether somebody took it."""
        import httpx

        try:
            timeout = httpx.Timeout(self._timeout_s, read=None)
            return self._client().post(API_PREFIX + path, content=piece, timeout=timeout).status_code < 400
        except (httpx.HTTPError, RuntimeError):  # the client was closed: the command has ended
            return False

    def _client(self) -> httpx.Client:
        if self._http is None:
            import httpx

            self._http = httpx.Client(
                base_url=self.url,
                headers={"authorization": f"Bearer {self._token}"},
                timeout=self._timeout_s,
                limits=_limits(),
                transport=self._transport,
                verify=_trusted(self.url),
                trust_env=False,
            )
        return self._http

    def reconnect(self) -> None:
        """After the connection was lost: looks where the server is now. The next call goes there."""
        if self._refresh is None:
            return
        try:
            url, token = self._refresh()
        except HeadwayError:
            return  # no server yet
        if (url.rstrip("/"), token) != (self.url, self._token):
            self.close()
            self.url, self._token = url.rstrip("/"), token

    def _moved(self, method: str) -> bool:
        """Whether another server answers now, and the request may go to it."""
        before = self.url
        if self._several and method in ("GET", "POST"):
            self.reconnect()
        return self.url != before

    def _unreachable(self, error: Exception) -> Unreachable:
        import httpx

        if isinstance(error, httpx.ConnectError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
            why = str(error).partition("verify failed: ")[2].partition(" (_ssl")[0]
            return Unreachable(
                f"the server at {self.url} can't show who it is: {why}",
                hint="HEADWAY_CA_FILE names its authority's file",
            )
        if isinstance(error, httpx.ConnectError):
            by = named_by(self.url)
            hint = WRONG_URL_HINT.replace("HEADWAY_URL", by) if by else start_hint()
            return Unreachable(f"{NO_SERVER} at {self.url}", hint=hint)
        if isinstance(error, httpx.TimeoutException):
            return Unreachable(f"the server at {self.url} did not answer in time", hint="headway server logs")
        return Unreachable(f"the connection to {self.url} broke: {error}", hint="headway server status")


def _limits() -> httpx.Limits:
    """The server closes a connection that was idle for 5 s; a request must not cross that on its way."""
    import httpx

    return httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=3.0)


def _trusted(url: str) -> ssl.SSLContext | bool:
    """Whose word on the server's name counts: the usual ones', HEADWAY_CA_FILE's, and for this machine's own server that
    of its very certificate."""
    if not url.startswith("https://"):
        return True
    import ssl

    import httpx

    context = httpx.create_ssl_context()
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a certificate that is trusted itself needs nobody above it
    named = os.environ.get("HEADWAY_CA_FILE", "")
    if named:
        try:
            context.load_verify_locations(named)
        except OSError as error:  # ssl.SSLError is one
            raise Refused(f"HEADWAY_CA_FILE can't be used: {error}", hint="a PEM file of certificates") from None
    with contextlib.suppress(OSError):
        own = own_certificate(url)
        if own:
            context.load_verify_locations(own)
    return context


def _content_type(body: Any, data: bytes | None) -> dict[str, str] | None:
    if body is not None:
        return {"content-type": "application/json"}
    return {"content-type": "application/gzip"} if data is not None else None


def part(value: str) -> str:
    """One path segment; never empty, so that a missing name cannot turn into another endpoint."""
    from urllib.parse import quote

    if not value or value in {".", ".."}:
        raise NotFound("the name is missing")
    return quote(value, safe="")


def _raise_for(status: int, body: bytes) -> None:
    if status < 400:
        return
    try:
        problem = Problem.model_validate_json(body)
        out = ErrorOut(kind=problem.kind, message=problem.detail, hint=problem.hint, faults=problem.faults)
    except ValueError:  # not in our words: a proxy, or no Headway server at all
        said = " ".join(body[:200].decode(errors="replace").split())
        kind = "unreachable" if status in _AWAY else "refused"
        out = ErrorOut(kind=kind, message=f"no Headway server answered, but {status}: {said}", hint=WRONG_URL_HINT)
    raise to_error(out)
