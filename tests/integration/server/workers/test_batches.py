"""The worker submits the job of a batch once, follows its progress, and has the output added as a dataset version."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.domain.dataset import DatasetVersion
from headway.errors import NotAllowed, NotFound, Refused, Unanswered
from headway.schemas.submission.exec_commands import ExecOut
from headway.schemas.submission.submit_request import SubmitOut
from headway.server.workers.row_rounds import BatchWorker
from headway.services.batches import rounds
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

BATCHES = "/api/v1/clusters/lab/batches"
REQUEST: dict[str, Any] = {
    "input": "/scratch/eve/rows.jsonl",
    "output": "answers",
    "program": "predict.py",
    "model": "m1",
    "workers": 4,
    "job": {"gpus": 1, "time": "60"},
}
OUTPUT = {"part-00000.jsonl": b'{"n": 1}\n' * 1000, "batch.json": b"{}\n"}


class Lab:
    """A server with a cluster on which the test decides about tasks and progress."""

    def __init__(self, server: Server, clock: builders.Clock) -> None:
        self.server, self.clock = server, clock
        self.tasks: dict[str, str] = {}
        self.progress: dict[str, Any] = {"rows": None, "shards": None, "workers": []}
        self.submitted: dict[str, int] = {}
        self.listed: dict[str, bytes] = dict(OUTPUT)
        server.backend.answers |= {
            "submit": self.submit,
            "read": lambda *_: server_fakes.reading(),
            "machines": (),
            "array_states": lambda *_: dict(self.tasks),
            "run_command": self.run_command,
            "run_interactive": self.run_interactive,
            "cancel": None,
        }

    def submit(self, _: Any, request: Any, user: str, *__: Any) -> SubmitOut:
        number = self.submitted.setdefault(self.server.backend.tags[-1], 41 + len(self.submitted))
        self.tasks = dict.fromkeys("0123", "PENDING")
        return SubmitOut(job_id=number, cluster="lab", user=user, workdir=request.chdir)

    def run_command(self, _: Any, request: Any, user: str) -> ExecOut:
        assert user == "eve"
        if request.argv[0] == "find":
            text = "".join(f"{len(content)} 1.5 {name}\0" for name, content in self.listed.items())
        else:
            assert request.argv[2] == "status"
            text = json.dumps(self.progress)
        return ExecOut(code=0, stdout_b64=base64.b64encode(text.encode()).decode())

    async def run_interactive(self, _: Any, argv: Any, user: str, __: Any) -> AsyncIterator[tuple[str, bytes]]:
        assert (argv[:2], user) == (["cat", "--"], "eve")
        async for piece in self.read(argv[2].rpartition("/")[2]):
            yield "out", piece
        yield "code", b"0"

    async def read(self, name: str) -> AsyncIterator[bytes]:
        """Yields the content of a file of the output."""
        yield OUTPUT[name]

    async def round(self) -> None:
        """Does a round of each batch, with new readings."""
        self.clock.now += 10
        await BatchWorker(self.server.state).advance_all()


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    clock = builders.Clock()
    clock.now = 1e6
    made = await server_fakes.start(tmp_path, clock)
    await made.apply()
    yield Lab(made, clock)
    await made.close()


async def start(lab: Lab, **change: Any) -> tuple[httpx.AsyncClient, str]:
    eve = await lab.server.client("eve", "member")
    answer = await eve.post(BATCHES, json={**REQUEST, **change})
    assert answer.status_code == 201, answer.text
    return eve, answer.json()["id"]


async def show(eve: httpx.AsyncClient, batch: str) -> Any:
    return (await eve.get(f"{BATCHES}/{batch}")).json()


async def test_output_becomes_a_dataset_version(lab: Lab) -> None:
    eve, batch = await start(lab)
    await lab.round()
    (call,) = lab.server.backend.named("submit")
    request, stage = call[1], call[3]
    assert "--array=0-3" in request.args
    settings = json.loads(request.env["HEADWAY_BATCH"])
    assert (settings["program"], settings["server"], settings["model"]) == ("predict.py", "", "m1")
    assert settings["folder"] == f"{request.chdir}/batch"
    assert any("batch_worker" in text for text in stage.files.values())
    lab.tasks = dict.fromkeys("0123", "RUNNING")
    lab.progress = {
        "rows": 1000,
        "shards": 10,
        "done_shards": 4,
        "done_rows": 400,
        "errors": 1,
        "seconds": 7200,
        "workers": [],
    }
    await lab.round()
    found = await show(eve, batch)
    assert (found["state"], found["done_rows"], found["rows"], found["errors"]) == ("running", 400, 1000, 1)
    assert float(found["usd"]) > 0
    lab.progress |= {"done_shards": 10, "done_rows": 1000, "output": True}
    await lab.round()
    assert (await show(eve, batch))["state"] == "adding"
    await lab.server.work_off()
    await lab.round()
    found = await show(eve, batch)
    assert (found["state"], found["dataset"], found["why"], found["ended_at"]) == ("done", "answers@1", "", None)
    (version,) = await lab.server.store.datasets.versions("lab")
    assert (version.label, version.files, version.source, version.person) == ("answers@1", 2, f"batch:{batch}", "eve")
    assert version.bytes == sum(map(len, OUTPUT.values()))
    await lab.round()
    assert [call[1] for call in lab.server.backend.named("cancel")] == ["41"], "workers that hang hold no nodes"
    lab.tasks = dict.fromkeys("0123", "CANCELLED")
    await lab.round()
    found = await show(eve, batch)
    assert (found["state"], found["why"], found["ended_at"]) == ("done", "", lab.clock.now)
    assert await lab.server.store.batches.unfinished() == ()


async def test_killed_server_submits_the_job_once(lab: Lab) -> None:
    _, batch = await start(lab)
    lab.server.backend.answers["submit"] = Unanswered("cut off")
    await lab.round()
    lab.server.backend.answers["submit"] = lab.submit
    await lab.round()
    await lab.round()
    assert len(set(lab.server.backend.tags)) == 1
    assert (await lab.server.store.batches.get("lab", batch)).job_id == 41


async def test_batch_whose_workers_have_ended_has_failed_and_can_be_retried(lab: Lab) -> None:
    eve, batch = await start(lab)
    await lab.round()
    lab.tasks = dict.fromkeys("0123", "FAILED")
    lab.progress = {
        "rows": 9,
        "shards": 3,
        "done_shards": 1,
        "workers": [{"task": "41_0", "node": "n", "error": "no GPU"}],
    }
    await lab.round()
    found = await show(eve, batch)
    assert (found["state"], found["why"]) == ("failed", "its workers ended before 2 shards were done: no GPU")
    assert (await eve.post(f"{BATCHES}/{batch}/stop")).status_code == 409
    assert (await eve.post(f"{BATCHES}/{batch}/retry")).json()["state"] == "submitting"
    await lab.round()
    found = await show(eve, batch)
    assert (found["state"], found["job_id"]) == ("running", 42)
    first, second = lab.server.backend.named("submit")
    assert first[1].env["HEADWAY_BATCH"] == second[1].env["HEADWAY_BATCH"]


async def test_stopped_batch_is_cancelled_until_its_job_has_ended(lab: Lab) -> None:
    eve, batch = await start(lab)
    await lab.round()
    assert (await eve.post(f"{BATCHES}/{batch}/stop")).json()["state"] == "stopped"
    await lab.round()
    assert [call[1] for call in lab.server.backend.named("cancel")] == ["41"]
    assert (await show(eve, batch))["ended_at"] is None
    lab.tasks = dict.fromkeys("0123", "CANCELLED")
    await lab.round()
    assert (await show(eve, batch))["ended_at"] is not None


async def test_dataset_of_another_person_gets_no_version(lab: Lab) -> None:
    await lab.server.store.datasets.add(DatasetVersion("lab", "answers", 1, "0" * 64, 1, 1, "/data", "ann", 1.0))
    eve = await lab.server.client("eve", "member")
    answer = await eve.post(BATCHES, json=REQUEST)
    assert answer.status_code == 403
    assert "dataset answers has versions of ann" in answer.text
    assert (await eve.get(BATCHES)).json() == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"program": "", "model": ""}, "give program, or model for vLLM, or server"),
        ({"server": "vllm serve"}, "give program or server, not both"),
        ({"job": {"launcher": "torchrun"}}, "a worker is one process"),
        ({"input": "../x"}, "pattern"),
    ],
)
async def test_fault_of_a_request_is_named(lab: Lab, change: dict[str, Any], fault: str) -> None:
    eve = await lab.server.client("eve", "member")
    answer = await eve.post(BATCHES, json={**REQUEST, **change})
    assert answer.status_code == 422
    assert fault in answer.text


async def test_dry_run_returns_the_script_and_stores_nothing(lab: Lab) -> None:
    eve = await lab.server.client("eve", "member")
    answer = (await eve.post(BATCHES, json={**REQUEST, "dry_run": True})).json()
    assert (answer["id"], answer["state"]) == ("", "planned")
    assert "#SBATCH --gpus-per-node=1" in [line["text"] for line in answer["script"]]
    assert (await eve.get(BATCHES)).json() == []


async def test_progress_that_is_no_progress_is_named_and_shown_to_all(lab: Lab) -> None:
    eve, batch = await start(lab)
    await lab.round()
    lab.progress = {"rows": "many", "workers": []}
    await lab.round()
    found = await show(eve, batch)
    assert (found["state"], found["rows"]) == ("running", None)
    assert found["why"].startswith("the progress can't be read: ")
    lab.progress = {"rows": 5, "shards": 1, "workers": []}
    await lab.round()
    found = await show(eve, batch)
    assert (found["why"], found["rows"]) == ("", 5)


async def test_only_those_who_may_act_on_a_batch_see_its_rows(lab: Lab) -> None:
    eve, batch = await start(lab)
    await lab.round()
    lab.progress = {"rows": 5, "shards": 1, "workers": [], "errors": 1, "some_errors": ['{"row": "private"}']}
    await lab.round()
    assert (await show(eve, batch))["some_errors"] == ['{"row": "private"}']
    other = await lab.server.client("vera", "viewer")
    assert (await show(other, batch))["some_errors"] == []
    assert "private" not in (await other.get(BATCHES)).text


async def test_batch_that_is_stopped_before_its_submission_was_answered_leaves_no_job(lab: Lab) -> None:
    eve, batch = await start(lab)
    lab.server.backend.answers["submit"] = Unanswered("cut off")
    await lab.round()
    assert (await eve.post(f"{BATCHES}/{batch}/stop")).status_code == 200
    lab.server.backend.answers["submit"] = lab.submit
    await lab.round()
    await lab.round()
    assert [call[1] for call in lab.server.backend.named("cancel")] == ["41"]
    assert "--hold" in lab.server.backend.named("submit")[-1][1].args


async def test_secret_in_the_environment_is_refused(lab: Lab) -> None:
    eve = await lab.server.client("eve", "member")
    answer = await eve.post(
        BATCHES, json={**REQUEST, "job": {"env": {"API_TOKEN": "0123456789abcdef0123456789abcdef"}}}
    )
    assert answer.status_code == 400
    assert "env.API_TOKEN looks like a secret" in answer.text


async def add_output(lab: Lab) -> tuple[httpx.AsyncClient, str]:
    """Starts a batch whose output is complete, and does the rounds to its operation."""
    eve, batch = await start(lab)
    await lab.round()
    lab.progress = {"rows": 1000, "shards": 1, "done_shards": 1, "done_rows": 1000, "workers": [], "output": True}
    await lab.round()
    return eve, batch


async def test_batch_whose_output_is_named_like_the_id_of_another_does_not_hide_it(lab: Lab) -> None:
    _, victim = await start(lab)
    store = lab.server.store.batches
    (row,) = await store.recent("lab")
    lab.clock.now += 10
    other = await store.save("lab", victim, person="mallory", user="mallory", document=row.document)
    assert (await store.get("lab", victim)).person == "eve"
    assert (await store.by_id("lab", other.id)).person == "mallory"
    with pytest.raises(NotFound):
        await store.by_id("lab", "answers")


async def test_output_that_looks_like_the_id_of_a_batch_is_refused(lab: Lab) -> None:
    eve = await lab.server.client("eve", "member")
    answer = await eve.post(BATCHES, json={**REQUEST, "output": "b-6fc8d672"})
    assert answer.status_code == 400
    assert "b-6fc8d672 looks like the id of a batch" in answer.text


async def test_dataset_that_another_person_has_made_meanwhile_gets_no_version(lab: Lab) -> None:
    eve, batch = await add_output(lab)

    async def read(name: str) -> AsyncIterator[bytes]:
        if name == "batch.json":
            made = DatasetVersion("lab", "answers", 1, "0" * 64, 1, 1, "/data", "ann", 1.0)
            await lab.server.store.datasets.add(made)
        yield OUTPUT[name]

    lab.read = read  # type: ignore[method-assign]
    await lab.server.work_off()
    await lab.round()
    found = await show(eve, batch)
    assert (found["state"], found["dataset"]) == ("failed", "")
    assert found["why"].endswith("dataset answers has versions of ann")
    assert [one.person for one in await lab.server.store.datasets.versions("lab")] == ["ann"]


async def test_only_files_that_workers_write_become_the_version(lab: Lab) -> None:
    lab.listed = {"y\n5 1.0 /x": b"12345", "../up.jsonl": b"1", "notes.txt": b"1", "part-0.jsonl": b"1", **OUTPUT}
    await add_output(lab)
    await lab.server.work_off()
    (version,) = await lab.server.store.datasets.versions("lab")
    assert (version.files, version.bytes) == (2, sum(map(len, OUTPUT.values())))


async def test_file_that_grows_without_end_is_not_stored(lab: Lab) -> None:
    eve, batch = await add_output(lab)
    read_pieces = 0

    async def read(name: str) -> AsyncIterator[bytes]:
        nonlocal read_pieces
        while read_pieces < 100:
            read_pieces += 1
            yield b"0" * 100_000

    lab.read = read  # type: ignore[method-assign]
    await lab.server.work_off()
    await lab.round()
    assert "more than the 3 bytes that were listed" in (await show(eve, batch))["why"]
    assert read_pieces < 3


@pytest.mark.parametrize(
    "progress",
    [
        '{"seconds": 1e999, "workers": []}',
        '{"seconds": NaN, "workers": []}',
        '{"done_shards": 3, "workers": []}',
        '{"rows": 5, "shards": 1, "done_rows": 6, "workers": []}',
        '{"rows": -1, "workers": []}',
        '{"errors": 100000000000000000000000000000, "workers": []}',
        '{"workers": [{"task": "1", "node": "n", "seconds": 1e999}]}',
        '{"some_errors": ["' + "x" * 2**20 + '"]}',
    ],
)
async def test_impossible_progress_is_refused_and_ends_a_batch_whose_job_has_ended(lab: Lab, progress: str) -> None:
    eve, batch = await start(lab)
    await lab.round()
    answer = ExecOut(code=0, stdout_b64=base64.b64encode(progress.encode()).decode())
    lab.server.backend.answers["run_command"] = answer
    await lab.round()
    (found,) = (await eve.get(BATCHES)).json()
    assert (found["state"], found["done_rows"], found["usd"]) == ("running", 0, 0)
    assert found["why"].startswith("the progress can't be read: ")
    lab.tasks = dict.fromkeys("0123", "COMPLETED")
    await lab.round()
    found = await show(eve, batch)
    assert (found["state"], found["ended_at"]) == ("failed", lab.clock.now)
    assert found["why"].startswith("the progress can't be read: ")


async def test_stored_progress_that_is_not_valid_does_not_hide_other_batches(lab: Lab) -> None:
    eve, batch = await start(lab)
    lab.clock.now += 10
    await start(lab, output="labels")
    await lab.server.store.batches.change(batch, of_state="submitting", progress={"seconds": -1, "rows": "x"})
    assert [one["name"] for one in (await eve.get(BATCHES)).json()] == ["labels", "answers"]
    first = await eve.get(BATCHES, params={"limit": 1})
    assert [one["name"] for one in first.json()] == ["labels"]
    assert [one["name"] for one in (await eve.get(first.links["next"]["url"])).json()] == ["answers"]


async def test_rounds_of_others_go_on_while_a_program_hangs(lab: Lab) -> None:
    eve, batch = await start(lab)
    ann = await lab.server.client("ann", "member")
    answer = await ann.post(BATCHES, json={**REQUEST, "output": "labels"})
    assert answer.status_code == 201, answer.text
    await lab.round()
    hangs, goes_on = asyncio.Event(), asyncio.Event()

    async def run_command(_: Any, request: Any, user: str) -> ExecOut:
        if user == "eve":
            hangs.set()
            await goes_on.wait()
        text = json.dumps({"rows": 7, "shards": 1, "workers": []})
        return ExecOut(code=0, stdout_b64=base64.b64encode(text.encode()).decode())

    lab.server.backend.answers["run_command"] = run_command
    worker = BatchWorker(lab.server.state)
    for _ in range(2):
        await worker.advance_all(wait_s=0)
    await hangs.wait()
    while not (rows := (await ann.get(f"{BATCHES}/labels")).json()["rows"]):
        await worker.advance_all(wait_s=0)
    assert (rows, (await show(eve, batch))["rows"]) == (7, None)
    goes_on.set()
    await worker.advance_all()
    assert (await show(eve, batch))["rows"] == 7


async def test_program_that_does_not_answer_is_named(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    eve, batch = await start(lab)
    await lab.round()

    async def run_command(*_: Any) -> ExecOut:
        await asyncio.Event().wait()
        raise AssertionError

    lab.server.backend.answers["run_command"] = run_command
    monkeypatch.setattr(rounds, "READ_S", 0.01)
    await lab.round()
    found = await show(eve, batch)
    assert (found["state"], found["why"]) == ("running", "the progress can't be read: no answer in 0.01 s")
    monkeypatch.setattr(rounds, "LAST_READ_S", 0.02)
    lab.tasks = dict.fromkeys("0123", "COMPLETED")
    await lab.round()
    found = await show(eve, batch)
    assert (found["state"], found["ended_at"]) == ("failed", lab.clock.now)
    assert found["why"].startswith("the progress can't be read: no answer in 0.02 s; look into /")
    assert found["why"].endswith(f"/batch, then headway batch retry {batch}")


@pytest.mark.parametrize(
    "error",
    [
        Refused("python3 ended with exit code 0, but its output is longer than 8 MiB, the limit"),
        NotAllowed("eve has no access to this cluster any more"),
        NotFound("there is no user eve on lab-head"),
    ],
)
async def test_batch_whose_program_is_refused_ends_with_its_job(lab: Lab, error: Exception) -> None:
    eve, batch = await start(lab)
    await lab.round()
    lab.server.backend.answers["run_command"] = error
    await lab.round()
    found = await show(eve, batch)
    assert (found["state"], found["why"]) == ("running", f"the progress can't be read: {error.args[0]}")
    lab.tasks = dict.fromkeys("0123", "COMPLETED")
    await lab.round()
    found = await show(eve, batch)
    assert (found["state"], found["ended_at"]) == ("failed", lab.clock.now)
    assert found["why"].startswith(f"the progress can't be read: {error.args[0]}; look into /")


async def test_batch_of_a_head_that_is_away_goes_on_when_its_job_has_ended(lab: Lab) -> None:
    eve, batch = await start(lab)
    await lab.round()
    lab.tasks = dict.fromkeys("0123", "COMPLETED")
    lab.server.backend.answers["run_command"] = Unanswered("lab-head is away")
    await lab.round()
    found = await show(eve, batch)
    assert (found["state"], found["ended_at"]) == ("running", None)


async def test_same_request_is_stored_once_although_prices_have_changed(lab: Lab) -> None:
    store = lab.server.store.batches
    who: dict[str, Any] = {"person": "eve", "user": "eve", "key": "k", "sent": {"input": "rows"}}
    first = await store.save("lab", "answers", document={"usd_per_hour": 1.0}, **who)
    assert await store.save("lab", "answers", document={"usd_per_hour": 2.0}, **who) == first
    other = await store.save("lab", "answers", document={"usd_per_hour": 1.0}, **{**who, "sent": {"input": "other"}})
    assert other.id != first.id


async def test_secret_in_the_command_of_a_server_is_shown_to_no_one(lab: Lab) -> None:
    eve, batch = await start(lab, program="", server="serve --port {port} --api-key sk-0123456789abcdef")
    assert (await show(eve, batch))["server"] == "serve --port {port} --api-key ********"
    await lab.round()
    settings = json.loads(lab.server.backend.named("submit")[0][1].env["HEADWAY_BATCH"])
    assert settings["about"]["program"] == "serve --port {port} --api-key ********"
    assert settings["server"].endswith("sk-0123456789abcdef")
