"""The banners of a cluster explain its state and old figures."""

from __future__ import annotations

import pytest

from headway.schemas.clusters import DriftOut
from headway.web.views.banners import Banner, cluster_banners
from tests.support.clusters import builders


def test_banner_says_why_figures_are_old() -> None:
    banners = cluster_banners(builders.cluster_out(state="degraded", stale="no answer"))
    assert banners == (Banner("warning", "These figures are old:", "no answer"),)


@pytest.mark.parametrize("state", ["failed", "down", "creating", "changing"])
def test_banner_explains_cluster_that_is_not_ready(state: str) -> None:
    (banner,) = cluster_banners(builders.cluster_out(state=state))
    assert banner.text


def test_drift_has_a_banner_until_an_apply() -> None:
    drift = DriftOut(checked_at=1.0, changes=5, objects=["a", "b", "c", "d"], disturbs_work=False)
    (banner,) = cluster_banners(builders.cluster_out(state="ready", drift=drift))
    assert (banner.level, banner.title) == ("warning", "The cluster differs from its file:")
    assert banner.text.startswith("a; b; c; and 1 more. headway plan shows")
    assert cluster_banners(builders.cluster_out(state="ready", drift=DriftOut(checked_at=1.0, changes=0))) == ()
    assert len(cluster_banners(builders.cluster_out(state="changing", drift=drift))) == 1
