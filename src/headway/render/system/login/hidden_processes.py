"""Users see only their own processes, because arguments of commands may contain passwords.

/proc shows the processes of others to root and to the members of adm, Debian's group for monitoring. systemd answers over
D-Bus which processes a unit has, which a policy allows for root only."""

from __future__ import annotations

from headway.domain.machines.managed_file import File
from headway.domain.machines.systemd_unit import Unit
from headway.render.escaping import MARK
from headway.render.system.daemon_units import UNITS, drop_in

SERVICE = "headway-hidden-processes.service"
GROUP, GROUP_ID = "adm", 4  # the same number in every Debian. mount does not accept the name in a second remount.
_UNIT = f"{UNITS}/{SERVICE}"
_BUS = "/etc/dbus-1/system.d/headway.conf"
# Daemons without CAP_SYS_PTRACE that look at processes of users.
_LOOKING = ("systemd-logind.service", "polkit.service")
_KINDS = ("Service", "Scope", "Slice", "Socket", "Mount", "Swap")


def files() -> dict[str, File]:
    """Returns the files of every machine."""
    looks = f"# {MARK}\n[Service]\n# It looks at processes of users, which /proc hides.\nSupplementaryGroups={GROUP}\n"
    return {_UNIT: File(_unit()), _BUS: File(_bus_policy()), **{drop_in(name): File(looks) for name in _LOOKING}}


def units() -> tuple[Unit, ...]:
    """Returns the unit that hides processes."""
    return (Unit(SERVICE, restart_on=(_UNIT, *map(drop_in, _LOOKING))),)


def _unit() -> str:
    return f"""\
# {MARK}
[Unit]
Description=Users see only their own processes
Before=ssh.service slurmd.service {" ".join(_LOOKING)}
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/mount -o remount,hidepid=invisible,gid={GROUP_ID} /proc
# They get their group by a restart.
ExecStartPost=-/usr/bin/systemctl --no-block try-restart {" ".join(_LOOKING)}
ExecStop=-/usr/bin/mount -o remount,hidepid=off /proc
[Install]
WantedBy=multi-user.target
"""


def _bus_policy() -> str:
    calls = [("Manager", "GetUnitProcesses"), *((kind, "GetProcesses") for kind in _KINDS)]
    systemd = "org.freedesktop.systemd1"
    rules = "\n".join(
        f'    <deny send_destination="{systemd}" send_interface="{systemd}.{kind}" send_member="{call}"/>'
        for kind, call in calls
    )
    return f"""\
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<!-- {MARK} -->
<busconfig>
  <!-- Otherwise systemd answers every user which processes a unit has, with their arguments. Rules for root have priority. -->
  <policy context="default">
{rules}
  </policy>
</busconfig>
"""
