"""Files of the operating system: systemd units, firewall, NFS exports, hosts, MariaDB, the agent's configuration.

Not here: users and their sessions (`render.system.login`), Slurm's files (`render.slurm`)."""
