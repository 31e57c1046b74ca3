"""Offers of clouds: the shipped prices, and newer ones from a server that publishes them as gpuhunt does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from tests.support.billing.published_catalogs import catalog, files_of, published
from tests.support.servers.server_fakes import Server

P5 = "p5.48xlarge,us-east-1,50.5,192,2048.0,8,H100,80.0,False,,nvidia,,x86,{}"
OFFERS = "/api/v1/offers"
REFRESH = "/api/v1/offers/refresh"


@pytest.fixture
async def ann(server: Server) -> httpx.AsyncClient:
    return await server.client("ann")


def _use(server: Server, url: str) -> None:
    server.state.settings = replace(server.state.settings, offers_url=url)


@pytest.fixture
def aws_only(server: Server) -> Iterator[None]:
    """A publisher that has AWS, a broken zip file of Azure, and nothing of the other clouds."""
    broken = {"azure/version": b"20261120-1", "azure/20261120-1/catalog.zip": b"no zip"}
    with published(files_of("aws", catalog(P5)) | broken) as url:
        _use(server, url)
        yield


async def test_sixteen_gpus_are_priced_in_whole_machines_the_cheapest_first(ann: httpx.AsyncClient) -> None:
    query = {"gpu": "H100", "count": "16", "gpus_per_node": "8", "purchase": "on-demand"}
    found = (await ann.get(OFFERS, params=query)).json()
    totals = [offer["usd_per_hour"] for offer in found["offers"]]
    assert totals == sorted(totals)
    assert {offer["machines"] for offer in found["offers"]} == {2}
    aws = next(offer for offer in found["offers"] if offer["cloud"] == "aws")
    assert (aws["usd_per_machine_hour"], aws["usd_per_gpu_hour"], aws["usd_per_hour"]) == (55.04, 6.88, 110.08)
    assert (aws["region"], aws["network"], aws["network_gbit_s"]) == ("us-east-1", "efa", 3200)
    assert (found["oldest"], found["newest"], found["refreshed_at"]) == ("2025-03-06", "2026-11-09", 0)


async def test_groups_of_a_cluster_are_compared_at_the_prices_of_its_file(
    server: Server, ann: httpx.AsyncClient
) -> None:
    await server.apply("lab")
    query = {"gpu": "h100", "count": "16", "cloud": "aws", "cluster": "lab"}
    found = (await ann.get(OFFERS, params=query)).json()["offers"]
    (own,) = [offer for offer in found if offer["cloud"] == "lab"]
    group = (await ann.get("/api/v1/clusters/lab")).json()["groups"][0]
    assert (own["instance_type"], own["usd_per_machine_hour"]) == (
        group["plan"],
        float(group["price_usd_per_node_hour"]),
    )
    assert (own["machines"], own["age"], own["source"]) == (2, "today", "")
    assert "group main of this cluster" in own["note"]
    assert "SIMULATED" in own["note"]
    totals = [offer["usd_per_hour"] for offer in found]
    assert totals == sorted(totals)
    assert (await ann.get(OFFERS, params={"cluster": "none"})).status_code == 404


async def test_the_age_of_a_price_is_said(server: Server, ann: httpx.AsyncClient) -> None:
    server.state.clock = lambda: 1795000000.0  # 2026-11-18
    found = (await ann.get(OFFERS, params={"cloud": "gcp", "gpu": "h100", "gpus_per_node": "8"})).json()
    assert {offer["age"] for offer in found["offers"]} == {"20 months old"}


async def test_a_limit_says_how_many_are_left_off(ann: httpx.AsyncClient) -> None:
    found = (await ann.get(OFFERS, params={"limit": "5"})).json()
    assert (len(found["offers"]), found["left_off"] > 50) == (5, True)


async def test_csv_has_a_line_per_offer(ann: httpx.AsyncClient) -> None:
    lines = (await ann.get(OFFERS, params={"cloud": "crusoe", "format": "csv"})).text.splitlines()
    assert lines[0].startswith("cloud,instance_type,region")
    assert len(lines) == 6


@pytest.mark.parametrize(
    "query", [{"count": "-1"}, {"count": "x"}, {"purchase": "gift"}, {"limit": "0"}, {"gpu": "x" * 65}]
)
async def test_an_impossible_query_is_refused(ann: httpx.AsyncClient, query: dict[str, str]) -> None:
    assert (await ann.get(OFFERS, params=query)).status_code == 422


@pytest.mark.usefixtures("aws_only")
async def test_a_refresh_replaces_what_it_can_fetch_and_says_what_it_cannot(
    server: Server, ann: httpx.AsyncClient
) -> None:
    done = await ann.post(REFRESH)
    clouds = {cloud["cloud"]: cloud for cloud in done.json()["clouds"]}
    assert (clouds["aws"]["offers"], clouds["aws"]["as_of"], clouds["aws"]["error"]) == (1, "2026-11-20", "")
    assert "is not a zip file with azure.csv" in clouds["azure"]["error"]
    assert "gcp/version answers 404" in clouds["gcp"]["error"]

    found = (await ann.get(OFFERS, params={"cloud": "aws"})).json()
    (offer,) = found["offers"]
    assert (offer["usd_per_hour"], offer["as_of"], offer["network"]) == (50.5, "2026-11-20", "efa")
    assert offer["source"].endswith("/aws/20261120-77/catalog.zip")
    assert found["refreshed_at"] == int(server.state.clock())
    azure = (await ann.get(OFFERS, params={"cloud": "azure"})).json()["offers"]
    assert {offer["as_of"] for offer in azure} == {"2026-11-09"}, "what could not be fetched stays"
    lines = (await ann.get("/api/v1/audit", params={"action": "offers.refresh"})).json()["lines"]
    assert [(line["result"], line["detail"]) for line in lines] == [("ok", {"clouds": "aws"})]


@pytest.mark.usefixtures("aws_only")
async def test_prices_that_were_fetched_before_stay_when_another_cloud_is_fetched(
    server: Server, ann: httpx.AsyncClient
) -> None:
    await ann.post(REFRESH)
    row = "8x,eu,20,208,1800.0,8,H100,80.0,False,,nvidia,,x86,{}"
    with published(files_of("lambdalabs", catalog(row))) as url:
        _use(server, url)
        assert (await ann.post(REFRESH)).status_code == 200
    for cloud, price in (("aws", 50.5), ("lambda", 20.0)):
        (offer,) = (await ann.get(OFFERS, params={"cloud": cloud})).json()["offers"]
        assert offer["usd_per_hour"] == price


async def test_without_a_way_out_the_error_says_what_failed_and_the_prices_stay(
    server: Server, ann: httpx.AsyncClient
) -> None:
    before = (await ann.get(OFFERS)).json()
    with published({}) as url:
        gone = url
    _use(server, gone)
    answer = await ann.post(REFRESH)
    assert (answer.status_code, answer.json()["kind"]) == (503, "unreachable")
    assert f"{gone}/aws/version can't be read" in answer.json()["detail"]
    assert "the prices of before are kept and shown" in answer.json()["detail"]
    assert "HEADWAY_OFFERS_URL" in answer.json()["hint"]
    assert (await ann.get(OFFERS)).json() == before
    lines = (await ann.get("/api/v1/audit", params={"action": "offers.refresh"})).json()["lines"]
    assert [line["result"] for line in lines] == ["failed"]


async def test_a_damaged_file_of_fetched_prices_counts_as_none(server: Server, ann: httpx.AsyncClient) -> None:
    before = (await ann.get(OFFERS)).json()
    (server.state.settings.data / "offers.json").write_text('{"fetched_at": 1, "offers": [{}]}')
    assert (await ann.get(OFFERS)).json() == before


async def test_only_admins_refresh(server: Server) -> None:
    assert (await (await server.client("oleg", "operator")).post(REFRESH)).status_code == 403
