"""The systemd units that load a table of nftables when a machine starts."""

from __future__ import annotations

from headway.domain.machines.systemd_unit import Unit
from headway.render.escaping import MARK


def path_of(service: str) -> str:
    """Returns the path of the unit file of `service`."""
    return f"/etc/systemd/system/{service}"


def unit(service: str, *files: str) -> Unit:
    """Returns the unit `service`, which reloads when one of the files changes: the rules, or the program that loads them."""
    return Unit(service, restart_on=(path_of(service),), reload_on=files, reload=("systemctl", "reload", service))


def unit_text(description: str, rules: str, table: str, before: tuple[str, ...], load: str = "") -> str:
    """Returns the unit file that loads the file `rules` before the network and the units `before` start.

    `table` is family and name of the only table in `rules`: a stop deletes it. `load` is the command that loads them, if
    that is not nft itself."""
    load = load or f"/usr/sbin/nft -f {rules}"
    return f"""\
# {MARK}
[Unit]
Description={description}
Before={" ".join(("network-pre.target", *before))}
Wants=network-pre.target
# nftables.service flushes all tables, also this one, when it starts, stops or reloads.
After=nftables.service
PartOf=nftables.service
ReloadPropagatedFrom=nftables.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={load}
ExecReload={load}
ExecStop=-/usr/sbin/nft delete table {table}
[Install]
WantedBy=multi-user.target
"""
