"""slurmdbd.conf."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.machines.site import Site
from headway.render.escaping import MARK, commented_setting, slurm_text
from headway.render.machine_paths import JWT_KEY
from headway.render.slurm.conf_syntax import ConfLine
from headway.render.slurm.slurm_conf import PRIVATE


def slurmdbd_conf(cluster: Cluster, site: Site) -> str:
    """Returns slurmdbd.conf."""
    return slurm_text(
        [
            ConfLine(comment=MARK),
            *commented_setting("AuthType", "auth/munge"),
            *commented_setting("AuthAltTypes", "auth/jwt"),
            *commented_setting("AuthAltParameters", f"jwt_key={JWT_KEY}"),
            *commented_setting("DbdHost", cluster.head),
            *commented_setting("DbdAddr", site.head_address),
            *commented_setting(
                "CommunicationParameters",
                "NoInAddrAny",
                "Listens only on the address of this machine's name, the private one, not on all addresses.",
            ),
            *commented_setting("SlurmUser", "slurm"),
            *commented_setting("StorageType", "accounting_storage/mysql"),
            *commented_setting(
                "StorageHost",
                "localhost",
                "Connects through the socket. MariaDB identifies the user slurm by its uid, without a password.",
            ),
            *commented_setting("StorageUser", "slurm"),
            *commented_setting("StorageLoc", "slurm_acct_db"),
            *commented_setting("PidFile", "/run/slurmdbd/slurmdbd.pid"),
            *commented_setting("PrivateData", PRIVATE),
            *commented_setting("PurgeEventAfter", "24months", "Jobs and usage are never purged; other records are."),
            *commented_setting("PurgeResvAfter", "24months"),
            *commented_setting("PurgeStepAfter", "12months"),
            *commented_setting("PurgeSuspendAfter", "12months"),
            *commented_setting("PurgeTXNAfter", "24months"),
        ],
        "slurmdbd.conf",
    )
