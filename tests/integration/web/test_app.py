"""The dashboard serves its static files, and does not start without the browser libraries."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from headway.errors import Refused
from headway.web import app as web
from headway.web import rendering


@pytest.fixture(autouse=True)
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The static files with stand-ins for the browser libraries: these tests need no npm."""
    folder = tmp_path / "static"
    shutil.copytree(rendering.STATIC, folder, ignore=shutil.ignore_patterns("vendor"))
    (folder / "vendor").mkdir()
    for name in rendering.VENDOR:
        (folder / "vendor" / name).write_text("")
    monkeypatch.setattr(rendering, "STATIC", folder)
    rendering.asset_url.cache_clear()
    return folder / "vendor"


async def test_versioned_static_files_are_cached_permanently() -> None:
    app = FastAPI()
    web.mount(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://page") as page:
        kept = await page.get(rendering.asset_url("app.css"))
        plain = await page.get("/static/app.css")
    assert "immutable" in kept.headers["cache-control"]
    assert plain.headers["cache-control"] == "no-cache"


def test_refuses_to_start_without_the_browser_libraries(vendor: Path) -> None:
    (vendor / "htmx.min.js").unlink()
    with pytest.raises(Refused, match=r"htmx\.min\.js") as caught:
        web.mount(FastAPI())
    assert "make setup" in caught.value.hint
