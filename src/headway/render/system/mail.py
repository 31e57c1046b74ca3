"""Mail from the head: the relay that sends the messages of sbatch --mail-type (msmtp)."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.render.escaping import require_word, script


def msmtprc(cluster: Cluster) -> str:
    """Returns the configuration for mail of --mail-type. Raises InvalidSpec for a relay that is not host:port."""
    host, _, port = cluster.mail_relay.partition(":")
    return script(
        "defaults",
        "tls off",
        "auth off",
        "syslog LOG_MAIL",
        "account default",
        f"host {require_word(host, 'mail_relay')}",
        f"port {require_word(port or '25', 'mail_relay')}",
        f"from slurm@{require_word(cluster.name, 'name')}",
    )
