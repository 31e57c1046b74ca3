"""Names and paths that a cluster file can't use, because the machines, Slurm or Headway use them."""

from __future__ import annotations

from headway.domain.environment import FOLDER as ENVIRONMENTS

# fmt: off
# Users and groups of a node image or of Headway. User names must differ from both, because each user also gets a group
# of the same name.
SYSTEM_USERS = frozenset((
    "default",  # Headway's default team; a user of this name would have a group of the same name
    "root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy", "www-data",
    "backup", "list", "irc", "gnats", "nobody", "nogroup", "sshd", "messagebus", "polkitd", "tss", "uuidd",
    "dnsmasq", "avahi", "chrony", "ntp", "statd", "rpc", "sssd", "nslcd", "postfix", "munge", "slurm",
    "slurmrestd", "mysql", "mariadb", "prometheus", "alertmanager", "headway", "adm", "tty", "disk", "dialout",
    "fax", "voice", "cdrom", "floppy", "tape", "sudo", "audio", "dip", "operator", "src", "shadow", "utmp",
    "video", "sasl", "plugdev", "staff", "users", "kmem", "input", "sgx", "kvm", "render", "crontab", "netdev",
    "ssl-cert", "docker", "podman", "wheel", "lpadmin", "ssh", "systemd-network", "systemd-resolve",
    "systemd-timesync", "systemd-journal", "systemd-coredump", "systemd-oom",
))
# Words with a special meaning to Slurm where an account or a QOS is named ("normal" is the QOS that Slurm creates).
RESERVED_TEAMS = frozenset({"root", "all", "none", "normal", "default_qos"})
RESERVED_PARTITIONS = frozenset({"default", "all", "none"})

SYSTEM_PATHS = (
    "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/lost+found", "/proc",
    "/root", "/run", "/sbin", "/scratch", "/srv", "/sys", "/tmp", "/usr", "/var",
    "/opt/modulefiles",  # = render.system.login.module_files.MODULES
    ENVIRONMENTS,
)
# fmt: on
