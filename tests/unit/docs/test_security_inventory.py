"""The inventory of connections, data, logs and sign-ins has the figures of the code."""

from __future__ import annotations

import re
import runpy

import pytest

from headway.domain.access.session_validity import SESSION_IDLE_S, SESSION_S, SIGNIN_CODE_S
from headway.domain.access.token_lifetime import DEFAULT_TOKEN_DAYS
from headway.domain.jobs.bundle_limits import MAX_ARCHIVE, MAX_FILES, MAX_UNPACKED
from headway.domain.serving.service_proxy import SERVICE_PORT
from headway.render.monitoring.prometheus import ALERTS_PORT, PROMETHEUS_PORT
from headway.render.system.agent_config import AGENT_PORT, METRICS_PORT
from headway.render.system.package_sources import PROXY_PORT
from headway.server.listen_settings import DEFAULT_PORT, NOTEBOOK_PORT
from headway.server.logging_config import KEEP_BYTES
from headway.services.access.role_rights import RECENT_SIGN_IN_S
from tests.unit.docs.test_docs import DOCS, ROOT

PAGE = (DOCS / "reference" / "security-inventory.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    "port",
    [DEFAULT_PORT, NOTEBOOK_PORT, AGENT_PORT, METRICS_PORT, PROXY_PORT, PROMETHEUS_PORT, ALERTS_PORT, SERVICE_PORT],
)
def test_connections_have_the_ports_of_the_code(port: int) -> None:
    assert re.search(rf"\b{port}\b", section("Connections"))


def test_every_destination_of_the_servers_environment_is_a_connection() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/headway/server").glob("*.py"))
    names = r"\bHEADWAY_(?:DATABASE_URL|OIDC_ISSUER|OFFERS_URL|AUDIT_SYSLOG|LOG_SYSLOG|AUDIT_OTLP|[A-Z_]*ENDPOINT)\b"
    named = set(re.findall(names, text))
    assert len(named) == 6
    assert {name for name in named if name not in section("Connections")} == set()


def test_sign_ins_have_the_lifetimes_of_the_code() -> None:
    text = section("Sign-ins and sessions")
    for words in (
        f"{SIGNIN_CODE_S / 60:.0f} minutes", f"{SESSION_S / 86400:.0f} days", f"{SESSION_IDLE_S / 3600:.0f} hours",
        f"{DEFAULT_TOKEN_DAYS} days", f"last {RECENT_SIGN_IN_S / 60:.0f} minutes",
    ):  # fmt: skip
        assert words in text, words


def test_logs_and_uploads_have_the_limits_of_the_code() -> None:
    assert f"{KEEP_BYTES >> 20} MiB" in section("Logs")
    bundles = runpy.run_path(str(ROOT / "node/user_helper/bundles.py"))
    assert (bundles["MOST_FILES"], bundles["MOST_UNPACKED"]) == (MAX_FILES, MAX_UNPACKED)
    for words in (
        f"{MAX_ARCHIVE >> 20} MiB",
        f"{bundles['MOST_FILES']} files",
        f"{bundles['MOST_UNPACKED'] >> 20} MiB",
    ):
        assert words in section("Uploads"), words
