"""MariaDB of the head. It only holds the accounting database and is reached through its socket only."""

from __future__ import annotations

PATH = "/etc/mysql/mariadb.conf.d/90-headway.cnf"
DATADIR = "/srv/headway-state/mysql"


def mariadb_cnf() -> str:
    """Returns MariaDB's settings."""
    return f"""\
# Written by Headway from the cluster file; changes made here are lost.
[mariadbd]
# On the head's volume, so that a new head keeps the accounting data.
datadir = {DATADIR}
# Only programs on the head connect, through the socket. Users are identified by their uid.
skip-networking
skip-name-resolve
# Sized for Slurm accounting: little memory when idle, but enough for long purges and archive queries.
innodb_buffer_pool_size = 256M
innodb_log_file_size = 64M
innodb_lock_wait_timeout = 900
max_allowed_packet = 64M
max_connections = 50
performance_schema = OFF
# A crash may lose the records of the last second, which slurmctld sends again. Commits take a tenth of the time.
innodb_flush_log_at_trx_commit = 2
# MariaDB 11.6 and later abort a transaction that meets a newer row (error 1020). slurmdbd does not repeat it, and a slurmctld
# that registers at that moment ends, for example at a reconfigure in a cluster's first minute.
loose-innodb-snapshot-isolation = OFF
"""
