"""alertmanager.yml: who receives which alert, and which alerts silence others."""

from __future__ import annotations

import json

from headway.domain.cluster import Alerts, Cluster
from headway.render.escaping import MARK, require_word

NOTIFICATION = "notification"  # label of a message that is sent once; its value is the message's key
_TITLE = "{{ .CommonAnnotations.title }}"


def alertmanager_yml(cluster: Cluster) -> str:
    """Returns Alertmanager's configuration."""
    settings = {
        "route": {
            "receiver": "people",
            "group_by": ["alertname", "node"],
            "group_wait": "5s",
            "group_interval": "1m",
            "repeat_interval": "4h",
            "routes": [
                {
                    "matchers": [f'{NOTIFICATION}!=""'],
                    "receiver": "notifications",
                    "group_by": [NOTIFICATION],
                    "group_wait": "1s",
                    "repeat_interval": "96h",  # longer than such an alert lasts, so that it is sent once
                }
            ],
        },
        "inhibit_rules": [
            {
                "source_matchers": ["severity=critical"],
                "target_matchers": ["severity=warning", f'{NOTIFICATION}=""'],
                "equal": ["node", "gpu"],
            }
        ],
        "receivers": [
            {"name": "people", **_ways(cluster, cluster.alerts)},
            {"name": "notifications", **_ways(cluster, cluster.alerts, sent_once=True)},
        ],
    }
    return as_yaml(settings)


def _ways(cluster: Cluster, alerts: Alerts, *, sent_once: bool = False) -> dict[str, object]:
    """Returns the receivers. The end of an alert is sent too; a message that is sent once has no end, and a title of
    its own."""
    ways: dict[str, object] = {}
    if alerts.webhook:
        ways["webhook_configs"] = [{"url": alerts.webhook, "send_resolved": not sent_once}]
    text = "{{ range .Alerts }}{{ .Annotations.summary }}\n{{ end }}"
    if alerts.chat:
        title = f"[{{{{ .Status }}}}] {cluster.name}: {{{{ .CommonLabels.alertname }}}} {{{{ .CommonLabels.node }}}}"
        title = _TITLE if sent_once else title
        ways["slack_configs"] = [{"api_url": alerts.chat, "send_resolved": not sent_once, "title": title, "text": text}]
    if alerts.mail:
        ways["email_configs"] = [
            {
                "to": alerts.mail,
                "from": f"headway@{require_word(cluster.name, 'name')}",
                "smarthost": cluster.mail_relay,
                "hello": cluster.head,
                "require_tls": False,
                "send_resolved": not sent_once,
                **({"headers": {"Subject": _TITLE}, "html": "", "text": text} if sent_once else {}),
            }
        ]
    return ways


def as_yaml(value: object) -> str:
    """Returns JSON, which is valid YAML 1.2, so that no value can change the structure."""
    return f"# {MARK}\n{json.dumps(value, indent=2)}\n"
