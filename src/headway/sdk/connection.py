"""HTTP connection to one server. Returns API models and raises HeadwayError subclasses."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from headway.errors import HeadwayError, NotFound, Refused, TooManyAtOnce, TooManySubmits, Unreachable
from headway.schemas.base import API_PREFIX, IDEMPOTENCY_KEY, ErrorOut, Problem, ResponseModel
from headway.sdk.errors import error_from_answer
from headway.sdk.server_address import (
    NO_SERVER,
    address_source,
    configured_urls,
    find_server,
    pinned_fingerprints,
    runs_other_code,
    start_command,
    valid_fingerprint,
)

if TYPE_CHECKING:
    import httpx

M = TypeVar("M", bound=ResponseModel)
Parameters = Mapping[str, str | Sequence[str]]  # of a query; a sequence repeats the parameter
_PROXY_ERRORS = (502, 503, 504)  # a proxy's answers while the server behind it is down
MAX_WAIT_S = 120  # how long one request waits in all because its person sends too many
_MISUNDERSTOOD = (404, 405, 422)
_RESTART = "this machine's server runs another version of Headway: headway server stop, then headway server start"
WRONG_URL_HINT = "check HEADWAY_URL; without it the server of this machine is used"


class Connection:
    """Sends HTTP requests to one server, and retries them at another server of the same database if there are several."""

    def __init__(
        self,
        url: str = "",
        token: str = "",
        *,
        timeout_s: float = 60.0,
        fingerprint: str | None = None,
        refresh: Callable[[], tuple[str, str]] | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepares the connection. `fingerprint`: of the only certificate that is accepted; None: the one that is pinned for
        this address, if any; "": an authority must have signed the certificate. `refresh` returns (url, token) again after a
        lost connection: a restarted server may have another port.

        Raises Unreachable when no `url` is given and no server is found, Refused for an invalid fingerprint."""
        if not url:
            url, token, refresh = find_server()
        self.url = url.rstrip("/")
        self._token = token
        self.timeout_s = timeout_s
        self._refresh = refresh
        self._several = refresh is not None and len(configured_urls()) > 1
        self._transport = transport
        self._sleep = sleep
        self._http: httpx.Client | None = None
        self._pins: tuple[str, ...] | None = None
        if fingerprint is not None:
            self._pins = (valid_fingerprint(fingerprint, "the fingerprint"),) if fingerprint else ()

    def close(self) -> None:
        """Closes the connection; the next request opens it again."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def get(self, path: str, model: type[M]) -> M:
        """Returns the answer of a GET request as `model`."""
        return self.parse(model, self.request_json("GET", path))

    def get_list(self, path: str, model: type[M], params: dict[str, str] | None = None) -> list[M]:
        """Returns all rows, page by page."""
        rows: list[M] = []
        while True:
            answer = self._request("GET", path, params=params)
            found = self._json_of(answer)
            rows += [self.parse(model, item) for item in (found if isinstance(found, list) else [found])]
            further = answer.links.get("next", {}).get("url", "")
            if not further:
                return rows
            path, params = further.removeprefix(API_PREFIX), None

    def post(self, path: str, model: type[M], body: Any = None, *, timeout_s: float | None = None) -> M:
        """Returns the answer of a POST request as `model`."""
        return self.parse(model, self.request_json("POST", path, body=body, timeout_s=timeout_s))

    def parse(self, model: type[M], answer: Any) -> M:
        """Returns the answer as `model`. Raises Refused if it does not match."""
        try:
            return model.model_validate(answer)
        except ValueError:
            hint = "compare versions with headway version; install the server's version here, or restart the server"
            raise Refused(
                f"this version of headway can't read the answer of the server at {self.url}",
                hint=_RESTART if runs_other_code(self.url) else hint,
            ) from None

    def request_json(self, method: str, path: str, **options: Any) -> Any:
        """Returns the answer of `_request` with these arguments, as JSON."""
        return self._json_of(self._request(method, path, **options))

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        data: bytes | None = None,
        params: Parameters | None = None,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        import httpx

        content = data if body is None else body.model_dump_json()
        headers = _content_type(body, data) or {}
        if method == "POST" and self._several:  # it may be sent again to another server of the same database
            headers[IDEMPOTENCY_KEY] = os.urandom(16).hex()

        def send() -> httpx.Response:
            timeout = timeout_s or self.timeout_s
            where = API_PREFIX + path
            return self._client().request(
                method, where, content=content, params=params, headers=headers, timeout=timeout
            )

        waited_s = 0
        while True:
            try:
                try:
                    answer = send()
                except httpx.TransportError as error:
                    if isinstance(error, httpx.TimeoutException) or not self._switched_server(method):
                        raise
                    answer = send()
            except httpx.HTTPError as error:
                raise self._unreachable(error) from None
            try:
                self._raise_for(answer)
                return answer
            except (TooManyAtOnce, TooManySubmits) as error:
                waited_s += error.retry_after_s
                if not error.retry_after_s or waited_s > MAX_WAIT_S:
                    raise
                _log_wait(error)
                self._sleep(error.retry_after_s)

    def _raise_for(self, answer: httpx.Response) -> None:
        """Raises the server's error if the answer, which has been read, is one. If this machine's server runs other code
        than this process, that is said where it may be the cause: it knows other requests."""
        try:
            _raise_for(answer)
        except HeadwayError as error:
            if answer.status_code in _MISUNDERSTOOD and runs_other_code(self.url):
                error.hint = "\n".join(filter(None, (error.hint, _RESTART)))
            raise

    def _json_of(self, answer: httpx.Response) -> Any:
        try:
            return answer.json() if answer.content else None
        except ValueError:
            raise Refused(
                f"the program that answers at {self.url} is not a Headway server", hint=WRONG_URL_HINT
            ) from None

    @contextmanager
    def stream(
        self,
        path: str,
        params: Parameters | None,
        read_timeout_s: float | None,
        *,
        method: str = "GET",
        body: Any = None,
    ) -> Iterator[httpx.Response]:
        """Yields the response of a request, to be read in pieces. Raises the server's errors and Unreachable."""
        import httpx

        timeout = httpx.Timeout(self.timeout_s, read=read_timeout_s)
        try:
            content = None if body is None else body.model_dump_json()
            headers = {"content-type": "application/json"} if content else None
            with self._client().stream(
                method, API_PREFIX + path, params=params, timeout=timeout, content=content, headers=headers
            ) as answer:
                if answer.status_code >= 400:
                    answer.read()
                    self._raise_for(answer)
                yield answer
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    @contextmanager
    def forward(
        self, method: str, path: str, *, query: str = "", headers: Mapping[str, str], content: bytes = b""
    ) -> Iterator[httpx.Response]:
        """Yields the response of a request as it is, also an error, to be read in pieces. Raises Unreachable."""
        import httpx

        client = self._client()
        url = client.base_url.join(API_PREFIX + path).copy_with(query=query.encode() or None)
        try:
            with client.stream(method, url, headers=headers, content=content, timeout=self.timeout_s) as answer:
                yield answer
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def send_piece(self, path: str, piece: bytes) -> bool:
        """Posts a piece of standard input; returns whether the command still reads it."""
        import httpx

        try:
            timeout = httpx.Timeout(self.timeout_s, read=None)
            return self._client().post(API_PREFIX + path, content=piece, timeout=timeout).status_code < 400
        except (httpx.HTTPError, RuntimeError):  # the client was closed: the command has ended
            return False

    def _client(self) -> httpx.Client:
        if self._http is None:
            import httpx

            from headway.sdk.tls_trust import tls_context

            pins = pinned_fingerprints(self.url) if self._pins is None else self._pins
            self._http = httpx.Client(
                base_url=self.url,
                headers={"authorization": f"Bearer {self._token}"},
                timeout=self.timeout_s,
                limits=_limits(),
                transport=self._transport,
                verify=tls_context(self.url, pins),
                trust_env=False,
            )
        return self._http

    def reconnect(self) -> None:
        """Looks up the server's address again after a lost connection; the next call goes there."""
        if self._refresh is None:
            return
        try:
            url, token = self._refresh()
        except HeadwayError:
            return  # no server yet
        if (url.rstrip("/"), token) != (self.url, self._token):
            self.close()
            self.url, self._token = url.rstrip("/"), token

    def _switched_server(self, method: str) -> bool:
        """Returns whether another server answers now and the request may be sent to it."""
        before = self.url
        if self._several and method in ("GET", "POST"):
            self.reconnect()
        return self.url != before

    def _unreachable(self, error: Exception) -> Unreachable:
        import httpx

        if isinstance(error, httpx.ConnectError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
            why = str(error).partition("verify failed: ")[2].partition(" (_ssl")[0]
            return Unreachable(
                f"the TLS certificate of the server at {self.url} can't be verified: {why}",
                hint="set HEADWAY_CA_FILE to its certificate authority's file, or pin the certificate: headway login URL",
            )
        if isinstance(error, httpx.ConnectError):
            by = address_source(self.url)
            hint = WRONG_URL_HINT.replace("HEADWAY_URL", by) if by else start_command()
            return Unreachable(f"{NO_SERVER} at {self.url}", hint=hint)
        if isinstance(error, httpx.TimeoutException):
            return Unreachable(f"the server at {self.url} did not answer in time", hint="headway server logs")
        return Unreachable(f"the connection to {self.url} broke: {error}", hint="headway server status")


def _limits() -> httpx.Limits:
    """Returns connection limits. The server closes a connection that was idle for 5 s; connections are dropped after
    3 s here, so that a request is not sent on a connection that is being closed."""
    import httpx

    return httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=3.0)


def _content_type(body: Any, data: bytes | None) -> dict[str, str] | None:
    if body is not None:
        return {"content-type": "application/json"}
    return {"content-type": "application/gzip"} if data is not None else None


def path_segment(value: str) -> str:
    """Returns the value quoted as one URL path segment.

    Raises NotFound for an empty one, so that a missing name can't turn into another endpoint."""
    from urllib.parse import quote

    if not value or value in {".", ".."}:
        raise NotFound("the name is missing")
    return quote(value, safe="")


def cluster_path(cluster: str, *segments: str) -> str:
    """Returns /clusters/CLUSTER/SEGMENT/..., quoted. Raises NotFound for an empty segment."""
    return "/".join(["/clusters", *map(path_segment, (cluster, *segments))])


def _raise_for(answer: httpx.Response) -> None:
    """Raises the server's error if the answer, which has been read, is one."""
    status, body = answer.status_code, answer.content
    if status < 400:
        return
    try:
        problem = Problem.model_validate_json(body)
        out = ErrorOut(kind=problem.kind, message=problem.detail, hint=problem.hint, faults=problem.faults)
    except ValueError:  # not a Headway answer: a proxy, or another program
        body_text = " ".join(body[:200].decode(errors="replace").split())
        kind = "unreachable" if status in _PROXY_ERRORS else "refused"
        out = ErrorOut(
            kind=kind, message=f"no Headway server answered, but HTTP {status}: {body_text}", hint=WRONG_URL_HINT
        )
    error = error_from_answer(out)
    wait = answer.headers.get("retry-after", "")
    error.retry_after_s = int(wait) if wait.isascii() and wait.isdigit() else 0
    raise error


def _log_wait(error: HeadwayError) -> None:
    """Logs why the client waits; a program that configures no logging gets it on standard error."""
    import logging

    logging.getLogger("headway.sdk").warning("%s; trying again in %d s", error.message, error.retry_after_s)


def non_empty(params: dict[str, str]) -> dict[str, str]:
    """Returns the query parameters that have a value."""
    return {name: value for name, value in params.items() if value}


class Resource:
    """One part of the API, such as `client.jobs`, over the client's connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def reconnect(self) -> None:
        """Looks up the server's address again after a lost connection."""
        self._connection.reconnect()
