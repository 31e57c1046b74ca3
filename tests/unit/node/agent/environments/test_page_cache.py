from __future__ import annotations

from pathlib import Path

from agent.environments import page_cache
from agent.environments.local_copies import Version


def test_pytorch_comes_first_and_the_images_version_uses_the_machines_packages() -> None:
    versions = [Version("vision", 2, 40, 20), Version("vision", 1, 40, 10), Version("pytorch", 1, 0, 5)]
    assert page_cache.folders(versions, "/e") == [page_cache.IMAGE_PACKAGES, "/e/vision/2/lib"]


def test_files_that_an_import_reads_are_found_without_the_others(tmp_path: Path) -> None:
    for name in ("a/b.py", "a/b.pyc", "a/c.so", "a/libc10.so.2.6", "a/data.bin", "a/header.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = {path.removeprefix(f"{tmp_path}/") for path in page_cache.files(str(tmp_path))}
    assert found == {"a/b.py", "a/b.pyc", "a/c.so", "a/libc10.so.2.6"}


def test_reading_ends_before_the_limit_and_skips_links_and_missing_files(tmp_path: Path) -> None:
    paths = []
    for number in range(4):
        paths.append(str(tmp_path / str(number)))
        Path(paths[-1]).write_bytes(b"x" * 1000)
    (tmp_path / "link").symlink_to(paths[0])
    assert page_cache.read_into_memory([str(tmp_path / "link"), str(tmp_path / "gone"), *paths], 2500) == 2000


def test_available_memory_is_read_from_meminfo(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       16000 kB\nMemAvailable:   12000 kB\n")
    assert page_cache.available_bytes(str(tmp_path)) == 12000 * 1024
    assert page_cache.available_bytes(str(tmp_path / "none")) == 0
