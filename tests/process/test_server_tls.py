"""A real server applies the TLS, reverse proxy and address settings of its environment."""

from __future__ import annotations

from headway.api.auth.sign_in import flow_cookie
from tests.support.servers.server_fakes import Server
from tests.support.servers.server_process import start, state_dir

__all__ = ["start", "state_dir"]  # fixtures


def test_oidc_flow_cookie_has_no_host_prefix(server: Server) -> None:
    object.__setattr__(server.state.settings, "cookie", "__Host-headway_x")
    assert flow_cookie(server.state) == "headway_x_oidc"
