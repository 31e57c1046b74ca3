"""Where Python packages come from: the configuration of pip and uv on all machines, and the proxy on the head. The proxy's
program is node/agent/package_proxy.py."""

from __future__ import annotations

from urllib.parse import urlsplit

from headway.domain.cluster import HEAD_PROXY, Cluster
from headway.domain.machines.managed_file import File
from headway.domain.machines.site import Site
from headway.domain.machines.systemd_unit import Unit
from headway.render.escaping import MARK, one_line, require_word, script
from headway.render.machine_paths import AGENT_COMMAND, AGENT_PROGRAM
from headway.render.system.daemon_units import UNITS

PIP = "/etc/pip.conf"
UV = "/etc/uv/uv.toml"
PROXY_UNIT = "headway-packages.service"
PROXY_PORT = 6824
# PyPI, and PyTorch's own index
_USUAL_HOSTS = ("pypi.org", "files.pythonhosted.org", ".pytorch.org")


def files(cluster: Cluster) -> dict[str, File]:
    """Returns the configuration of pip and uv; {} without an index in the cluster file."""
    url = one_line(cluster.packages.index, "packages.index")
    if not url:
        return {}
    parts = urlsplit(url)
    trusted = (f"trusted-host = {parts.netloc}",) if parts.scheme == "http" else ()
    return {
        PIP: File(script("[global]", f"index-url = {url}", *trusted)),
        UV: File(script("[[index]]", f'url = "{url}"', "default = true")),
    }


def head_files(cluster: Cluster, site: Site) -> dict[str, File]:
    """Returns the unit of the proxy on the head; {} without one."""
    if cluster.packages.proxy != HEAD_PROXY:
        return {}
    hosts = " ".join(
        require_word(host.replace(":", "="), "packages.hosts").replace("=", ":") for host in proxy_hosts(cluster)
    )
    text = f"""\
# {MARK}
[Unit]
Description=Headway package proxy
After=network-online.target
Wants=network-online.target
[Service]
ExecStart={AGENT_COMMAND} packages {require_word(site.head_address, "address")} {PROXY_PORT} {hosts}
DynamicUser=yes
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
MemoryMax=512M
Nice=10
OOMScoreAdjust=500
Restart=always
RestartSec=2
[Install]
WantedBy=multi-user.target
"""
    return {f"{UNITS}/{PROXY_UNIT}": File(text)}


def head_units(cluster: Cluster) -> tuple[Unit, ...]:
    """Returns the proxy's unit. The cluster works without it."""
    if cluster.packages.proxy != HEAD_PROXY:
        return ()
    return (Unit(PROXY_UNIT, restart_on=(f"{UNITS}/{PROXY_UNIT}", AGENT_PROGRAM), stage="outside", may_fail=True),)


def proxy_hosts(cluster: Cluster) -> tuple[str, ...]:
    """Returns the hosts to which the proxy connects."""
    parts = urlsplit(cluster.packages.index)
    own = (parts.netloc if parts.port else parts.hostname or "",) if cluster.packages.index else ()
    return tuple(dict.fromkeys((*own, *_USUAL_HOSTS, *cluster.packages.hosts)))
