"""The digest of a version's files."""

from __future__ import annotations

from headway.services.models.model_versions import digest_of_files


def test_digest_differs_for_other_files_and_names() -> None:
    first, second = "0" * 64, "1" * 64
    found = {
        digest_of_files(files)
        for files in ({"a": first, "b": second}, {"a": second, "b": first}, {f"a\n{second}  b": first}, {"a": first})
    }
    assert len(found) == 4
    assert digest_of_files({"b": second, "a": first}) == digest_of_files({"a": first, "b": second})
