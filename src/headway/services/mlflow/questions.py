"""Requests of jobs that only the MLflow server can answer: searches, models, downloads. They are fetched from the job's receiver
over a tunnel to its socket, and answered in the workspace of the job's team."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import h11

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, NotAllowed, Unreachable
from headway.services.app_state import AppState
from headway.services.mlflow.journals import journal_states, repeat_journals, team_api
from headway.services.mlflow.mlflow_api import ARTIFACTS, WORKSPACE_HEADER, MlflowApi, request_path
from headway.services.mlflow.promoted_models import check_change
from headway.services.mlflow.replay import DEFAULT_ID, Replay, artifact_path
from headway.services.mlflow.run_tags import TAGS

if TYPE_CHECKING:
    import httpx

    from headway.jobs.remote.tunnel import Tunnel

IDLE_LOOKS = 8  # looks without a request, of 25 s each, until the tunnel is closed
MOST_BODY = 64 * 1024 * 1024  # bytes of a request
AT_ONCE = 8  # requests of one job
_API = re.compile(
    r"/(ajax-)?api/[23]\.0/mlflow/"
    r"(experiments|runs|metrics|artifacts|registered-models|model-versions|logged-models|traces)(/.+)?"
)
_METHODS = ("GET", "POST", "PATCH", "DELETE")  # of _API
_FILES = re.compile(r"/(ajax-)?api/2\.0/mlflow-artifacts/artifacts(/.*)?")  # only GET


@dataclass(frozen=True)
class _Question:
    number: int
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


async def answer_questions(state: AppState, cluster: Cluster, job: JobState, node: str) -> None:
    """Answers the requests of a job until none came for some minutes, or its receiver has ended. Raises Unreachable."""
    journal = (await asyncio.to_thread(journal_states(state).read, cluster.name, job.id)).path
    socket = f"{journal.removesuffix('.jsonl')}-{node}.sock"
    tunnel = await state.backend.commands.open_tunnel(cluster, node, job.user, socket)
    slots, tasks, idle = asyncio.Semaphore(AT_ONCE), set[asyncio.Task[None]](), 0
    try:
        while idle < IDLE_LOOKS:
            await slots.acquire()
            slots.release()
            question = await _next(tunnel)
            idle = 0 if question is not None else idle + 1
            if question is not None:
                task = asyncio.create_task(_answer(state, cluster, job, tunnel, question, slots))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await tunnel.close()


async def _next(tunnel: Tunnel) -> _Question | None:
    headers, body = await _exchange(tunnel, "GET", "/next", {})
    said = headers.get("x-request")
    if said is None:
        return None
    known = json.loads(said)
    sent = {str(name).lower(): str(value) for name, value in dict(known["headers"]).items()}
    return _Question(int(known["number"]), str(known["method"]), str(known["target"]), sent, body)


async def _answer(
    state: AppState, cluster: Cluster, job: JobState, tunnel: Tunnel, question: _Question, slots: asyncio.Semaphore
) -> None:
    """Answers one request, after what the job logged before it was repeated."""
    async with slots:
        try:
            repeated = await repeat_journals(state, cluster, [job])
            if job.id in repeated.failed:
                raise repeated.failed[job.id]
            answer = await _ask(state, cluster, job, question)
        except HeadwayError as error:
            code = "PERMISSION_DENIED" if not isinstance(error, Unreachable) else "TEMPORARILY_UNAVAILABLE"
            said = json.dumps({"error_code": code, "message": error.message}).encode()
            with contextlib.suppress(HeadwayError, OSError):
                status = 503 if isinstance(error, Unreachable) else 403
                await _pass_on(tunnel, question, status, "application/json", len(said), _one(said))
            return
        try:
            size = int(answer.headers["content-length"])
            kind = answer.headers.get("content-type", "application/json")
            with contextlib.suppress(HeadwayError, OSError):
                await _pass_on(tunnel, question, answer.status_code, kind, size, answer.aiter_bytes())
        finally:
            await answer.aclose()


async def _pass_on(
    tunnel: Tunnel, question: _Question, status: int, kind: str, size: int, pieces: AsyncIterator[bytes]
) -> None:
    headers = {"X-Status": str(status), "X-Type": kind}
    await _exchange(tunnel, "POST", f"/answers/{question.number}", headers, size, pieces)


async def _ask(state: AppState, cluster: Cluster, job: JobState, question: _Question) -> httpx.Response:
    """Returns MLflow's answer, whose length is known."""
    import httpx

    api = await team_api(state, cluster.name, job.account)
    http = state.mlflow.http
    parts = urlsplit(question.target)
    path = unquote(parts.path)
    if http is None:
        raise Unreachable(f"the MLflow server is {state.mlflow.state}", hint="headway mlflow status")
    reads_file = question.method == "GET" and _FILES.fullmatch(path)
    if not reads_file and not (question.method in _METHODS and _API.fullmatch(path)):
        raise NotAllowed(f"jobs can't ask MLflow for {question.method} {path}")
    request_path(path)
    known = await asyncio.to_thread(journal_states(state).read, cluster.name, job.id)
    said = _parse_body(question.body)
    query_rows = parse_qsl(parts.query, keep_blank_values=True)
    if _names_tag_of_headway([said, *({key: value} for key, value in query_rows)]):
        raise NotAllowed(f"jobs can't change tags that begin with {TAGS}")
    if question.method != "GET":
        sent = [*query_rows, *(said.items() if isinstance(said, dict) else ())]
        await check_change(state, cluster, job, known, path.rpartition("/mlflow/")[2].strip("/"), sent)
    replay = Replay(api, known, {}, _no_file)
    if path.startswith(ARTIFACTS):
        path = ARTIFACTS + await artifact_path(api, path.removeprefix(ARTIFACTS))
    query = [(key, await _real(value, api, replay, key)) for key, value in query_rows]
    body = json.dumps(await _real(said, api, replay)).encode() if question.body else b""
    headers = {
        WORKSPACE_HEADER: api.workspace,
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
    }
    url = httpx.URL(path=request_path(path), query=urlencode(query).encode() or None)
    try:
        answer = await http.send(http.build_request(question.method, url, content=body, headers=headers), stream=True)
        if "content-length" not in answer.headers:
            answer.headers["content-length"] = str(len(await answer.aread()))
    except httpx.HTTPError as error:
        raise Unreachable(f"the MLflow server does not answer: {error!r}") from None
    return answer


def _parse_body(body: bytes) -> Any:
    """Returns the JSON of a request's body, None if it is empty. Raises NotAllowed for anything else: it can't be checked."""
    try:
        return json.loads(body) if body else None
    except (ValueError, RecursionError):
        raise NotAllowed("the body of a job's request to MLflow must be JSON") from None


def _names_tag_of_headway(value: Any) -> bool:
    if isinstance(value, dict):
        is_own = str(value.get("key")).startswith(TAGS)
        return is_own or any(_names_tag_of_headway(one) for one in value.values())
    return isinstance(value, list) and any(_names_tag_of_headway(one) for one in value)


async def _real(value: Any, api: MlflowApi, replay: Replay, key: str = "") -> Any:
    """Returns a value of a request, with the ids and paths that hold in the job replaced by those of the MLflow server. `key`:
    its name in the request."""
    if isinstance(value, dict):
        return {name: await _real(one, api, replay, name) for name, one in value.items()}
    if isinstance(value, list):
        return [await _real(one, api, replay, key) for one in value]
    if value == DEFAULT_ID and key in ("experiment_id", "experiment_ids"):
        return await replay.default_experiment()
    if isinstance(value, str) and value.startswith("runs/") and value.count("/") >= 2:
        with contextlib.suppress(HeadwayError):
            return (await artifact_path(api, value if value.count("/") > 2 else f"{value}/")).rstrip("/")
    return await replay.real_experiment(value) if isinstance(value, str) else value


async def _one(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _no_file(_: str) -> None:
    """Finds no file: requests upload none."""


async def _exchange(
    tunnel: Tunnel,
    method: str,
    target: str,
    headers: dict[str, str],
    size: int = 0,
    pieces: AsyncIterator[bytes] | None = None,
) -> tuple[dict[str, str], bytes]:
    """Returns (headers, body) of the receiver's answer to a request on a connection of its own. The receiver is a user's
    program: what it sends is limited."""
    wire = await tunnel.connect()
    try:
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=256 * 1024)
        sent = [("Host", "job"), ("Connection", "close"), ("Content-Length", str(size)), *headers.items()]
        await wire.write(http.send(h11.Request(method=method, target=target, headers=sent)) or b"")
        if pieces is not None:
            async for piece in pieces:
                await wire.write(http.send(h11.Data(data=piece)) or b"")
        await wire.write(http.send(h11.EndOfMessage()) or b"")
        said: dict[str, str] = {}
        body = bytearray()
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await wire.read())
            elif isinstance(event, h11.Response):
                said = {name.decode(): value.decode("latin-1") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MOST_BODY:
                    raise Unreachable("a job's request to MLflow is too large")
            elif isinstance(event, h11.EndOfMessage):
                return said, bytes(body)
            else:
                raise Unreachable("the job's MLflow receiver has ended")
    except h11.ProtocolError as error:
        raise Unreachable(f"the job's MLflow receiver answers nonsense: {error}") from None
    finally:
        await wire.close()
