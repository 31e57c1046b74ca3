"""The Debian packages of the node images, and those that an owned machine gets for its role. Pure."""

from __future__ import annotations

from headway.catalog.node_images import IMAGES, Image

_COMMON: list[str] = """
systemd systemd-sysv dbus libpam-systemd libpam-modules openssh-server munge slurmctld slurmd slurmdbd slurmrestd
slurm-client slurm-wlm-basic-plugins slurm-wlm-jwt-plugin slurm-wlm-mysql-plugin libpam-slurm-adopt libnss-extrausers
mariadb-server prometheus prometheus-alertmanager haproxy python3-torch python3-numpy lmod
iproute2 iputils-ping nftables nfs-common nfs-kernel-server procps less rsync perftest
gcc g++ gfortran libc6-dev libslurm-dev openmpi-bin libopenmpi-dev cmake make pkgconf python3-dev python3-venv python3-pip
skopeo umoci squashfs-tools squashfuse fuse3 bubblewrap crun
vim nano tmux screen htop tree jq curl wget unzip git man-db manpages bash-completion
ca-certificates bsd-mailx msmtp-mta msmtp locales tzdata kmod util-linux-extra sudo
""".split()  # noqa: SIM905 (a list of this length reads better as words)


# Packages that JupyterLab needs; node/image/after_packages.sh adds JupyterLab itself. Debian 12 lacks suitable ones.
_JUPYTERLAB = [
    "python3-jupyterlab-server",
    "python3-jupyter-server",
    "python3-notebook-shim",
    "python3-async-lru",
    "python3-ipykernel",
]


# Packages that only heads use. An image has all packages; an owned machine gets only those of its role.
_HEAD_ONLY = frozenset(
    ("slurmctld", "slurmdbd", "slurmrestd", "slurm-wlm-mysql-plugin", "mariadb-server", "prometheus",
     "prometheus-alertmanager", "haproxy", "bsd-mailx", "msmtp-mta", "msmtp")
)  # fmt: skip
# Packages without which the steps on an owned machine can't work; every image has them.
_OWNED_MACHINES = ("libc-bin", "python3")
# Only for owned machines: the head exports folders that the machines do not share.
_NFS = {"head": ("nfs-kernel-server",), "node": ("nfs-common",)}


def image_packages(image: Image) -> tuple[str, ...]:
    """Returns all packages of a node image."""
    return (*_COMMON, *_JUPYTERLAB) if image.has_jupyterlab else tuple(_COMMON)


def packages_for_role(name: str, role: str, *, nfs: bool) -> tuple[str, ...]:
    """Returns the packages that an owned machine gets from its own sources: those of the image that its role ("head" or
    "node") uses. JupyterLab's packages are left out, because JupyterLab itself comes only with the image."""
    listed = (
        package
        for package in image_packages(IMAGES[name])
        if package not in (*_JUPYTERLAB, "nfs-common", "nfs-kernel-server")
        and (role == "head" or package not in _HEAD_ONLY)
    )
    return (*listed, *_OWNED_MACHINES, *(_NFS[role] if nfs else ()))
