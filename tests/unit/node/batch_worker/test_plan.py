"""The input is divided into shards of whole lines, the same ones each time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch_worker.plan import InputFault, input_files, make_plan, read_shard

LINES = st.lists(st.sampled_from([b'{"n": 1}', b"7", b"", b"  ", b'"\xc3\xa4"']), min_size=1, max_size=20)


@given(LINES, st.integers(1, 5), st.booleans())
def test_shards_have_each_line_with_content_once(lines: list[bytes], shard_rows: int, ends: bool) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_bytes(b"\n".join(lines) + b"\n" * ends)
        wanted = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
        if not wanted:
            with pytest.raises(InputFault, match="has no rows"):
                make_plan(str(path), shard_rows)
            return
        plan = make_plan(str(path), shard_rows)
        assert plan == make_plan(str(path), shard_rows)
        shards = [read_shard(plan, number) for number in range(len(plan["shards"]))]
        assert [row for shard in shards for row in shard] == wanted
        assert all(len(shard) == shard_rows for shard in shards[:-1])
        assert plan["rows"] == len(wanted)


def test_errors_of_another_batch_are_no_rows(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a/c.jsonl", "a/errors-00000.jsonl", "a/batch.json", "errors-1.jsonl", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
    found = [str(Path(path).relative_to(tmp_path)) for path in input_files(str(tmp_path))]
    assert found == ["a/c.jsonl", "b.jsonl", "errors-1.jsonl"]


def test_input_that_has_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("1\n2\n3\n")
    plan = make_plan(str(path), 2)
    path.write_text("1\n2\n")
    with pytest.raises(InputFault, match="has changed"):
        read_shard(plan, 1)


def test_input_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputFault, match=r"nowhere does not exist"):
        make_plan(str(tmp_path / "nowhere"), 2)
    with pytest.raises(InputFault, match="has no files"):
        make_plan(str(tmp_path), 2)
