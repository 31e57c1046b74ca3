"""Calls of the MLflow server's REST API, in the workspace of one team. A workspace contains the team's experiments, runs, models
and files, and a call sees nothing outside of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headway.errors import HeadwayError, NotAllowed, Unreachable

if TYPE_CHECKING:
    import httpx

API = "/api/2.0/mlflow/"
WORKSPACES = "/api/3.0/mlflow/workspaces"
ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts/"
WORKSPACE_HEADER = "X-MLFLOW-WORKSPACE"
RUN_HEADER = "X-Headway-Run"  # the id of a new run, see node/programs/mlflow_app.py
TIMEOUT_S = 60.0
MOST_FILES = 10_000  # of one folder with all below it


class MlflowRefused(HeadwayError):
    """The MLflow server refused a request. `code`: its error code, such as RESOURCE_DOES_NOT_EXIST."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(f"MLflow refused a request: {text}" if text else f"MLflow answered {status}")
        self.status, self.code = status, code


def workspace_name(cluster: str, team: str) -> str:
    """Returns the workspace of a team. Workspaces may have lower-case letters, digits and hyphens, at most 63."""
    digest = hashlib.sha256(f"{cluster}/{team}".encode()).hexdigest()[:8]
    readable = f"{cluster}-{team}".replace("_", "-")[:50].strip("-")
    return f"{readable}-{digest}"


def request_path(path: str) -> str:
    """Returns a decoded path in the form in which it is sent. The MLflow server decodes it to the same text. Raises NotAllowed
    for a path that a server may read as another one."""
    parts = path.removeprefix("/").split("/")
    if "%" in path or "." in parts or ".." in parts or "" in parts[:-1]:
        raise NotAllowed(f"MLflow is not asked for {path!r}", hint="leave %, . and .. out of the path")
    return quote(path)


class MlflowApi:
    """Calls in one workspace. `http` is connected to the MLflow server."""

    def __init__(self, http: httpx.AsyncClient, workspace: str) -> None:
        self._http, self.workspace = http, workspace

    @property
    def is_closed(self) -> bool:
        """Returns whether the connection to the MLflow server was closed."""
        return self._http.is_closed

    async def ensure_workspace(self, description: str) -> None:
        """Creates the workspace if it does not exist."""
        try:
            await self._call("POST", WORKSPACES, {"name": self.workspace, "description": description}, {})
        except MlflowRefused as error:
            if error.code != "RESOURCE_ALREADY_EXISTS":
                raise

    async def get(self, name: str, /, **params: str) -> dict[str, Any]:
        """Returns the answer of a GET request, such as `runs/get`. Raises MlflowRefused, and Unreachable."""
        return await self._call("GET", API + name, None, {WORKSPACE_HEADER: self.workspace}, params)

    async def post(self, name: str, body: Mapping[str, Any], *, run: str = "") -> dict[str, Any]:
        """Returns the answer of a POST request. `run`: the id of the run that it creates."""
        headers = {WORKSPACE_HEADER: self.workspace, **({RUN_HEADER: run} if run else {})}
        return await self._call("POST", API + name, body, headers)

    async def upload(self, path: str, content: AsyncIterator[bytes], size: int) -> None:
        """Stores a file of `size` bytes in the artifact store. Raises MlflowRefused, also if `content` has another size, and
        Unreachable."""
        import h11
        import httpx

        headers = {WORKSPACE_HEADER: self.workspace, "Content-Length": str(size)}
        try:
            url = httpx.URL(path=quote(ARTIFACTS + path))
            answer = await self._http.put(url, content=content, headers=headers)
        except h11.LocalProtocolError as error:
            raise MlflowRefused(400, "INVALID_PARAMETER_VALUE", f"the file changed: {error}") from None
        except httpx.HTTPError as error:
            raise Unreachable(f"the MLflow server does not answer: {error!r}") from None
        _check(answer)

    async def list_files(self, folder: str) -> list[tuple[str, int]]:
        """Returns (path below the folder, bytes) of all files of a folder of the artifact store, sorted; [] if there is no such
        folder. Raises MlflowRefused, also if there are more than MOST_FILES, and Unreachable."""
        found: list[tuple[str, int]] = []
        folders = [""]
        while folders:
            below = folders.pop()
            params = {"path": f"{folder}/{below}".rstrip("/")}
            answer = await self._call("GET", ARTIFACTS.rstrip("/"), None, {WORKSPACE_HEADER: self.workspace}, params)
            for one in answer.get("files", []):
                path = f"{below}/{one['path']}".lstrip("/")
                if one.get("is_dir"):
                    folders.append(path)
                else:
                    found.append((path, int(one.get("file_size") or 0)))
            if len(found) + len(folders) > MOST_FILES:
                raise MlflowRefused(400, "INVALID_PARAMETER_VALUE", f"{folder} has more than {MOST_FILES:,} files")
        return sorted(found)

    async def download(self, path: str) -> AsyncIterator[bytes]:
        """Yields the content of a file of the artifact store. Raises MlflowRefused, and Unreachable."""
        import httpx

        headers = {WORKSPACE_HEADER: self.workspace, "Accept-Encoding": "identity"}
        try:
            async with self._http.stream("GET", httpx.URL(path=quote(ARTIFACTS + path)), headers=headers) as answer:
                if not answer.is_success:
                    await answer.aread()
                    _check(answer)
                async for piece in answer.aiter_bytes(1 << 20):
                    yield piece
        except httpx.HTTPError as error:
            raise Unreachable(f"the MLflow server does not answer: {error!r}") from None

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        params: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        import httpx

        sent = json.dumps(body).encode() if body is not None else None
        all_headers = {"Content-Type": "application/json", **headers}
        try:
            answer = await self._http.request(method, path, content=sent, headers=all_headers, params=params)
        except httpx.HTTPError as error:
            raise Unreachable(f"the MLflow server does not answer: {error!r}") from None
        return _check(answer)


def _check(answer: httpx.Response) -> dict[str, Any]:
    """Returns the answer's JSON. Raises MlflowRefused, or Unreachable for an answer that another try may change."""
    try:
        said = answer.json() if answer.content else {}
    except ValueError:
        said = {}
    if answer.is_success:
        return dict(said) if isinstance(said, dict) else {}
    said = said if isinstance(said, dict) else {}
    code, text = str(said.get("error_code", "")), str(said.get("message", ""))[:500]
    if answer.status_code in (429, 502, 503, 504) or code in ("TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED"):
        raise Unreachable(f"the MLflow server is busy: {text or answer.status_code}")
    raise MlflowRefused(answer.status_code, code, text)
