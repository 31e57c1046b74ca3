"""A service on a real cluster: keys open it, and no request fails while a new version replaces its replicas."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import threading
from pathlib import Path
from urllib.parse import urlsplit

from tests.cluster.lab import Lab
from tests.support.request_loop import RequestLoop

from headway.schemas.serving.services import ServiceOut

EXAMPLE = Path(__file__).parents[3] / "examples" / "serve_echo"


def answer(url: str, key: str, path: str = "/") -> tuple[int, bytes]:
    """Returns status and body of a request to the service."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=300)
    try:
        connection.request("GET", parts.path + path, headers={"Authorization": f"Bearer {key}"})
        found = connection.getresponse()
        return found.status, found.read()
    finally:
        connection.close()


def test_no_request_fails_while_replicas_change_and_keys_open_and_close(lab: Lab, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "echo"))
    file = folder / "service.yaml"

    def shown() -> ServiceOut:
        return lab.client.services.get("lab", "echo")

    def said(_: Lab) -> str:
        return lab.cli("serve", "show", "echo").out + lab.cli("server", "logs", "-n", "10").out

    assert "#SBATCH --job-name=echo-1" in lab.cli("serve", "up", str(file), "--as", "vera", "--dry-run").out
    lab.cli("serve", "up", str(file), "--as", "vera")
    key = lab.cli("serve", "key", "create", "echo").out.strip()
    lab.wait(lambda: shown().healthy == 2, "two healthy replicas", seen=said)
    url = shown().url
    lab.wait(lambda: answer(url, key)[0] == 200, "the key to open the service", seen=said)
    assert answer(url, "hws_wrong")[0] == 401
    assert answer(url.replace("/vision/", "/speech/"), key)[0] == 403
    assert b'"path": "/v1/models?a=b"' in answer(url, key, "/v1/models?a=b")[1]
    assert answer(url, key, "/stream?n=2")[1] == b"data: 0\n\ndata: 1\n\n"

    slow = lab.client.services.create_key("lab", "echo", "slow", per_minute=3).key
    lab.wait(lambda: answer(url, slow)[0] == 200, "the second key to open the service", seen=said)
    assert [answer(url, slow)[0] for _ in range(4)] == [200, 200, 429, 429]

    with RequestLoop(url, key) as loop:
        loop.wait_for_more()
        file.write_text(file.read_text() + "env: {GREETING: hello}\n")
        lab.cli("serve", "up", str(file), "--as", "vera")
        lab.wait(
            lambda: [one.version for one in shown().replicas if one.ended_at is None] == [2, 2],
            "two replicas of the new version",
            seen=said,
        )
        loop.wait_for_more()
        lab.client.services.scale("lab", "echo", 1, 1)
        lab.wait(lambda: len([one for one in shown().replicas if one.ended_at is None]) == 1, "one replica", seen=said)
        loop.wait_for_more()
    assert loop.failed == []
    assert set(loop.answers) == {"1", "2", "3", "4"}, "replicas of both versions have answered"

    lab.client.services.revoke_key("lab", "echo", lab.client.services.keys("lab", "echo")[0].id)
    lab.wait(lambda: answer(url, key)[0] == 401, "the key to be refused", seen=said)
    jobs = [one.job_id for one in shown().replicas]
    lab.client.services.stop("lab", "echo")
    lab.wait(lambda: shown().ended_at is not None, "the end of the service", seen=said)
    assert {lab.state_of(job) for job in jobs} == {"CANCELLED"}
    assert lab.head("systemctl", "is-active", "headway-serve", check=False).out.strip() == "inactive"


def test_held_request_is_answered_although_another_service_starts(lab: Lab, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "echo"))

    def up(name: str, *lines: str) -> None:
        (folder / "service.yaml").write_text("\n".join((f"name: {name}", "time: 60", *lines)) + "\n")
        lab.cli("serve", "up", str(folder / "service.yaml"), "--as", "vera")

    def shown(name: str) -> ServiceOut:
        return lab.client.services.get("lab", name)

    def said(_: Lab) -> str:
        return lab.cli("serve", "show", "late").out + lab.cli("server", "logs", "-n", "10").out

    lab.head("rm", "-f", "/home/vera/begin", user="vera")
    begin = "until [ -e ~/begin ]; do sleep 0.1; done; exec python3 server.py $HEADWAY_SERVE_PORT"
    up("late", f"run: [sh, -c, '{begin}']", "replicas: {min: 0, max: 1}", "hold_s: 300")
    key = lab.cli("serve", "key", "create", "late").out.strip()
    lab.wait(lambda: shown("late").url, "the address of the service", seen=said)
    url = shown("late").url
    answers: list[tuple[int, bytes]] = []

    def ask() -> None:
        found = (0, b"")
        while found[0] in (0, 401):  # until the proxy runs and has the key
            with contextlib.suppress(ConnectionRefusedError):
                found = answer(url, key)
        answers.append(found)

    client = threading.Thread(target=ask)
    client.start()
    lab.wait(lambda: answers or shown("late").active == 1, "the held request", seen=said)
    processes = lab.head("pgrep", "-x", "haproxy").out
    up("other", "run: python3 server.py {port}")
    lab.wait(lambda: shown("other").healthy == 1, "the other service", seen=said)
    lab.head("touch", "/home/vera/begin", user="vera")
    client.join()
    assert [status for status, _ in answers] == [200], answers
    assert lab.head("pgrep", "-x", "haproxy").out == processes, "HAProxy was not reloaded"
    for name in ("late", "other"):
        lab.client.services.stop("lab", name)
    lab.wait(lambda: all(shown(name).ended_at for name in ("late", "other")), "the end of both", seen=said)
