"""The page of sizes: its form is in the address, and anything may be typed into it."""

from __future__ import annotations

import pytest

from tests.support.servers.server_fakes import Server


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("", 200, "No model yet"),
        ("model=&task=pretrain&tokens=&gpu=h100&gpus=", 200, "No model yet"),
        ("model=llama-3-8b&gpus=64&tokens=1T", 200, "#SBATCH --nodes=8"),
        ("model=llama-3-8b&gpus=64&tokens=1T", 200, "2104.04473"),
        ("model=8b&task=qlora&gpu=l40s&gpus=1", 200, "GiB</span>"),
        ("model=8b&gpus=64&tokens=1T&deadline=1d", 200, "The deadline is missed by"),
        ("model=70b&gpus=8", 400, "It fits with 16 GPUs"),
        ("model=8b&deadline=1d", 400, "A deadline needs tokens"),
        ("model=nothing", 400, "not a known model"),
        ("model=8b&gpus=many&precision=int3", 422, "f-precision"),
        ("model=%3Cscript%3E", 400, "&lt;script&gt;: not a known model"),
    ],
)
async def test_the_page_answers_the_address(server: Server, query: str, status: int, text: str) -> None:
    page = await (await server.client("victor", "viewer")).get(f"/size?{query}")
    assert page.status_code == status
    assert text in page.text


async def test_each_figure_names_its_source(server: Server) -> None:
    page = await (await server.client("ann")).get("/size?model=llama-3-8b&gpus=64&tokens=1T")
    figures = page.text.split('<details class="size__figure">')[1:]
    assert len(figures) == 9
    assert all(len(one.split("<p>")[1].split("</p>")[0]) > 40 for one in figures)
