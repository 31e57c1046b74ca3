"""Sends notifications to the Alertmanager of a cluster's head, which forwards them by the channels of the cluster file.
It listens on the head's loopback only, so it is reached through the pinned SSH connection."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus

from headway.cluster.monitoring.prometheus import Forwards
from headway.domain.billing import Notification
from headway.domain.machine import Machine
from headway.errors import HeadwayError, Unreachable
from headway.render.monitoring.prometheus import ALERTS_PORT, NEWS

ANSWER_S = 10.0
ALERT_S = 86_400  # Alertmanager remembers a notification for this long and does not send it again


async def send_alerts(connections: Forwards, head: Machine, news: Sequence[Notification], now: float) -> None:
    """Sends the notifications. Sending the same ones again causes no second message. Raises Unreachable if Alertmanager
    or the head does not answer, HeadwayError if Alertmanager refuses."""
    import httpx

    path = await connections.forward_port(head, ALERTS_PORT)
    transport = httpx.AsyncHTTPTransport(uds=path)
    async with httpx.AsyncClient(transport=transport, base_url="http://alertmanager", timeout=ANSWER_S) as client:
        try:
            answer = await client.post("/api/v2/alerts", json=[_alert(head.cluster, one, now) for one in news])
        except (httpx.TimeoutException, httpx.TransportError) as error:
            raise Unreachable(
                f"Alertmanager on {head.name} does not answer",
                hint=f"headway exec {head.cluster} -- systemctl status prometheus-alertmanager",
            ) from error
    if answer.status_code != HTTPStatus.OK:
        raise HeadwayError(f"Alertmanager on {head.name} refused an alert: {answer.text[:200]}")


def _alert(cluster: str, one: Notification, now: float) -> dict[str, object]:
    return {
        "labels": {"alertname": one.kind, "cluster": cluster, "severity": one.severity, NEWS: one.key},
        "annotations": {"title": one.title, "summary": one.text},
        "startsAt": _moment(one.at),
        "endsAt": _moment(now + ALERT_S),
    }


def _moment(at: float) -> str:
    """Returns the time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat()
