"""The banners of a cluster explain its state and old figures."""

from __future__ import annotations

import pytest

from headway.web.views.banners import Banner, cluster_banner
from tests.support.clusters import builders


def test_banner_says_why_figures_are_old() -> None:
    banners = cluster_banner(builders.cluster_out(state="degraded", stale="no answer"))
    assert banners == (Banner("warning", "These figures are old:", "no answer"),)


@pytest.mark.parametrize("state", ["failed", "down", "creating", "changing"])
def test_banner_explains_cluster_that_is_not_ready(state: str) -> None:
    (banner,) = cluster_banner(builders.cluster_out(state=state))
    assert banner.text
