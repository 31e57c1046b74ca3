"""Files of the operating system: systemd units, users, sshd, shells, firewall, NFS exports, hosts, MariaDB, the agent's
configuration."""
