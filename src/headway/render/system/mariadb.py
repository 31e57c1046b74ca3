"""MariaDB of the head. It only holds the accounting database and is reached through its socket only."""

from __future__ import annotations

PATH = "/etc/mysql/mariadb.conf.d/90-headway.cnf"
DATADIR = "/srv/headway-state/mysql"


def mariadb_cnf() -> str:
    """Returns MariaDB's settings."""
    return f"""\
# Written by Headway from the cluster file; changes made here are lost.
[mariadbd]
# On the head's own volume, so that a new head finds the accounting.
datadir = {DATADIR}
# Only programs of the head speak to it, through the socket; users are known by their uid.
skip-networking
skip-name-resolve
# Sized for Slurm accounting: small when idle, long purges and archive queries still pass.
innodb_buffer_pool_size = 256M
innodb_log_file_size = 64M
innodb_lock_wait_timeout = 900
max_allowed_packet = 64M
max_connections = 50
performance_schema = OFF
# A crash may lose the last second of records, which slurmctld sends again; commits cost a tenth.
innodb_flush_log_at_trx_commit = 2
# MariaDB 11.6 and later refuse a transaction that meets a newer row (error 1020); slurmdbd does not try again, and a
# slurmctld that registers just then ends: a reconfigure in a cluster's first minute failed so.
loose-innodb-snapshot-isolation = OFF
"""
