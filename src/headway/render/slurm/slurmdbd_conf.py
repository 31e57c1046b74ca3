"""slurmdbd.conf."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.machines.site import Site
from headway.render.escaping import MARK, pair, slurm_text
from headway.render.machine_paths import JWT_KEY
from headway.render.slurm.conf_syntax import Line
from headway.render.slurm.slurm_conf import PRIVATE


def slurmdbd_conf(cluster: Cluster, site: Site) -> str:
    """Returns slurmdbd.conf."""
    return slurm_text(
        [
            Line(comment=MARK),
            *pair("AuthType", "auth/munge"),
            *pair("AuthAltTypes", "auth/jwt"),
            *pair("AuthAltParameters", f"jwt_key={JWT_KEY}"),
            *pair("DbdHost", cluster.head),
            *pair("DbdAddr", site.head_address),
            *pair(
                "CommunicationParameters",
                "NoInAddrAny",
                "Listens only on the address of this machine's name, the private one, not on all addresses.",
            ),
            *pair("SlurmUser", "slurm"),
            *pair("StorageType", "accounting_storage/mysql"),
            *pair(
                "StorageHost",
                "localhost",
                "Connects through the socket. MariaDB identifies the user slurm by its uid, without a password.",
            ),
            *pair("StorageUser", "slurm"),
            *pair("StorageLoc", "slurm_acct_db"),
            *pair("PidFile", "/run/slurmdbd/slurmdbd.pid"),
            *pair("PrivateData", PRIVATE),
            *pair("PurgeEventAfter", "24months", "Jobs and usage are never purged; other records are."),
            *pair("PurgeResvAfter", "24months"),
            *pair("PurgeStepAfter", "12months"),
            *pair("PurgeSuspendAfter", "12months"),
            *pair("PurgeTXNAfter", "24months"),
        ],
        "slurmdbd.conf",
    )
