"""Each row of a batch has one result, whichever worker dies at whichever step, and however late another one is."""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_worker.part_file import whole_lines
from batch_worker.program import CallEnded, CallFailed
from batch_worker.results import Results
from batch_worker.shared_files import SharedFiles
from batch_worker.worker import Worker
from tests.unit.node.batch_worker.simulation import BAD_ROW, LEASE_S, Batch

OWNERS = ("7_0", "7_1", "7_2")


@pytest.fixture(autouse=True, scope="module")
def _no_fsync() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)  # the disk of a test need not survive a power failure
        yield


@contextmanager
def new_batch() -> Iterator[Batch]:
    folder = Path(tempfile.mkdtemp())
    batch = Batch(folder / "batch")
    try:
        yield batch
    finally:
        batch.kill_all()
        shutil.rmtree(folder)


def test_one_worker_computes_each_row_once() -> None:
    with new_batch() as batch:
        batch.start("7_0")
        batch.finish()
        batch.check()
        assert {number for number, times in batch.counted.items() if times > 1} == {3, BAD_ROW}  # they shared a call
        assert list((batch.folder / "objects").iterdir()) == []
        assert list((batch.folder / "parts").iterdir()) == []


def steps_of_a_worker() -> int:
    with new_batch() as batch:
        player, count = batch.start("7_0"), 0
        while not player.ended:
            player.step()
            count += 1
        return count


@pytest.mark.parametrize(("successor", "every"), [("7_0", 2), ("7_1", 7)])
def test_worker_that_dies_at_any_step_is_followed(successor: str, every: int) -> None:
    for step in range(0, steps_of_a_worker(), every):
        with new_batch() as batch:
            player = batch.start("7_0")
            for _ in range(step):
                player.step()
            player.step(kill=True)
            batch.start(successor)
            batch.finish()
            batch.check()


def test_requeued_task_continues_its_shard_without_waiting_for_its_lease() -> None:
    with new_batch() as batch:
        player = batch.start("7_0")
        while sum(batch.counted.values()) < 2:
            player.step()
        player.step()  # the results of the first call are written
        player.step(kill=True)
        before = batch.storage.now
        batch.start("7_0")
        while not (batch.folder / "output").exists():
            batch.players[-1].step()
        batch.check()
        assert batch.storage.now == before
        assert max(times for number, times in batch.counted.items() if number not in (3, BAD_ROW)) == 1


def test_two_workers_of_one_shard_commit_it_once() -> None:
    with new_batch() as batch:
        late = batch.start("7_0")
        while not batch.counted:
            late.step()
        batch.storage.now += LEASE_S + 1
        batch.start("7_1")
        while not (batch.folder / "output").exists():
            batch.players[-1].step()
        batch.finish()  # the late worker continues
        batch.check()


def test_lease_that_is_given_back_is_taken_at_once() -> None:
    with new_batch() as batch:
        player = batch.start("7_0")
        while not batch.counted:
            player.step()
        player.worker.end()
        player.worker.renew()
        player.step(kill=True)
        before = batch.storage.now
        batch.start("7_1")
        while not (batch.folder / "output").exists():
            batch.players[-1].step()
        batch.check()
        assert batch.storage.now == before


def test_shard_whose_workers_die_at_its_commit_has_no_more_lines_than_rows() -> None:
    with new_batch() as batch:
        for attempt in range(1, batch.settings["tries"] + 3):  # type: ignore[operator]
            player = batch.start("7_0")
            while not any(
                len(whole_lines(part.read_bytes())) == 3 for part in (batch.folder / "parts").glob(f"*.{attempt}")
            ):
                player.step()
            player.step(kill=True)
        batch.start("7_0")
        batch.finish()
        batch.check()


def test_lease_is_renewed_after_a_fault_of_the_storage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with new_batch() as batch:
        player = batch.start("7_0")
        while not batch.counted:
            player.step()
        with monkeypatch.context() as patch:
            patch.setattr(SharedFiles, "replace", full)
            player.worker.renew()
        assert "the lease was not renewed: [Errno 28] No space left" in capsys.readouterr().err
        batch.storage.now += 10
        player.worker.renew()
        assert batch.storage.now in batch.storage.touched.values()
        batch.finish()
        batch.check()


class Echo:
    """Returns rows as they are."""

    def call(self, texts: list[bytes]) -> list[bytes]:
        return texts


class Ending:
    """Answers one row of a call, and ends at row 5 before it has answered the others."""

    def call(self, texts: list[bytes]) -> list[bytes | CallFailed]:
        ends = b'{"n":5}' in texts
        return [
            CallEnded("it ended") if ends and (place or len(texts) == 1) else text for place, text in enumerate(texts)
        ]


def plain_worker(batch: Batch, caller: Echo | Ending) -> Worker:
    files = SharedFiles(str(batch.folder / "tmp"))
    return Worker(files, str(batch.folder), batch.settings, caller, "7_0", "0", "n1")


def test_row_that_ends_a_call_fails_alone() -> None:
    with new_batch() as batch:
        batch.settings.update(call_rows=8, shard_rows=8)
        plain_worker(batch, Ending()).work()
        results = (batch.folder / "output" / "part-00000.jsonl").read_text().splitlines()
        assert results == [f'{{"n":{number}}}' for number in range(8) if number != 5]
        (error,) = (batch.folder / "output" / "errors-00000.jsonl").read_text().splitlines()
        assert json.loads(error) == {"file": "rows.jsonl", "line": 6, "error": "it ended", "tries": 2}


def test_odd_rows_are_given_as_plain_json_and_errors_have_no_content() -> None:
    rows = [b'\xef\xbb\xbf{"n": 1}', b'"\xed\xa0\x80"', b"[" * 100_000, b"\xff", '"ä"'.encode()]
    with new_batch() as batch:
        (batch.folder / "rows.jsonl").write_bytes(b"\n".join(rows))
        plain_worker(batch, Echo()).work()
        text = (batch.folder / "output" / "part-00000.jsonl").read_bytes().decode()
        assert text.splitlines() == ['{"n":1}', '"\\ud800"', '"ä"']
        errors = (batch.folder / "output" / "errors-00000.jsonl").read_text().splitlines()
        found = [json.loads(line) for line in errors]
        assert [(one["file"], one["line"]) for one in found] == [("rows.jsonl", 3), ("rows.jsonl", 4)]
        assert {tuple(one) for one in found} == {("file", "line", "error", "tries")}


def test_output_for_which_the_disk_has_no_space_leaves_no_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with new_batch() as batch:
        monkeypatch.setattr(Results, "_fill", full)
        worker = plain_worker(batch, Echo())
        with pytest.raises(OSError, match="No space"):
            worker.work()
        assert [path for path in (batch.folder / "tmp").iterdir() if path.is_dir()] == []


ACTIONS = st.one_of(
    st.tuples(st.just("step"), st.sampled_from(OWNERS), st.integers(1, 25)),
    st.tuples(st.just("kill"), st.sampled_from(OWNERS), st.integers(0, 40)),
    st.tuples(st.just("renew"), st.sampled_from(OWNERS), st.just(0)),
    st.tuples(st.just("late"), st.sampled_from(OWNERS), st.integers(1, 2 * LEASE_S)),
)


@settings(max_examples=10, deadline=None)
@given(st.lists(ACTIONS, max_size=25))
def test_each_row_has_one_result_in_any_order_of_steps_and_deaths(actions: list[tuple[str, str, int]]) -> None:
    with new_batch() as batch:
        living = {owner: batch.start(owner) for owner in OWNERS}
        for action, owner, number in actions:
            player = living[owner]
            if player.ended:
                continue
            if action == "step":
                for _ in range(number):
                    if not player.ended:
                        player.step()
            elif action == "renew":
                player.worker.renew()
            elif action == "late":
                batch.storage.now += number
            else:
                player.step(kill=True)
                for part in (batch.folder / "parts").iterdir():  # what the dead worker had not synced
                    if part.name.endswith(f".{number % 3 + 1}"):
                        part.write_bytes(part.read_bytes()[: -number or None])
                living[owner] = batch.start(owner)
        batch.finish()
        batch.check()
        shards, shard_rows = 3, batch.settings["shard_rows"]
        repeated = sum(batch.counted.values()) - batch.rows
        assert (
            repeated <= (batch.attempts() - shards) * (shard_rows + 3) + 3
        )  # the bad row is tried twice, and once with others
