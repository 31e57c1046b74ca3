"""The agent of every machine: its unit, and its knowledge of the cluster. The program itself is part of the code that
runs on machines, see node/agent."""

from __future__ import annotations

import json

from headway.catalog.xid import draining_codes
from headway.domain.cluster import Cluster, Group, Plan
from headway.domain.machines.gpu_parts import GpuParts
from headway.domain.machines.managed_file import File
from headway.domain.machines.site import Site
from headway.render.escaping import MARK, path, require_word
from headway.render.machine_paths import AGENT_COMMAND
from headway.render.slurm.hardware.node_hardware import hardware_is_simulated, hardware_of
from headway.render.system import nfs_exports
from headway.render.system.daemon_units import TRIES, UNITS
from headway.render.system.volume_mounts import provided_volumes

AGENT = "headway-agent.service"
CONFIG = "/etc/headway/agent.json"
AGENT_PORT = 6821  # of a head, for messages and the secrets of jobs; as in node/agent/roles/head.py
METRICS_PORT = 6822
SIMULATED_LOG = "/run/headway/kmsg"
# For a second head, see node/agent/failover/unreachable_first_head.py.
_LETS_IN = """\
# Firewall rules against a first head that does not answer are removed with the agent that added them.
ExecStopPost=-/usr/sbin/ip rule del pref 6817
"""
GPU_PARTS = "headway-gpu-parts.service"
_PARTS_UNIT = f"""\
# {MARK}
# MIG instances are gone after a boot. slurmd does not start without their device files.
[Unit]
Description=MIG instances of the GPUs
After=nvidia-persistenced.service systemd-tmpfiles-setup.service
Before=slurmd.service {AGENT} nvidia-dcgm.service
{TRIES}
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={AGENT_COMMAND} parts
TimeoutStartSec=300
[Install]
WantedBy=multi-user.target
"""
UNFIT = "/run/headway/unfit"  # exists while the agent finds the machine unfit for new jobs
LOOKED = "/run/headway/looked"  # exists once the agent has checked the machine after its boot


def node_files(cluster: Cluster, site: Site, group: Group) -> dict[str, File]:
    """Returns the agent's files on a node."""
    return {f"{UNITS}/{AGENT}": File(_unit("node")), CONFIG: File(config(cluster, site, group))}


def parts_files(site: Site, group: Group) -> dict[str, File]:
    """Returns the unit that makes the group's MIG instances, {} if no node of the group has any."""
    return {f"{UNITS}/{GPU_PARTS}": File(_PARTS_UNIT)} if has_mig(site, group) else {}


def has_mig(site: Site, group: Group) -> bool:
    """Returns whether a node of the group has MIG instances."""
    return bool(group.parts.mig) or any(site.parts_now[name].mig for name in group.slots if name in site.parts_now)


def head_files(cluster: Cluster, site: Site, head: str) -> dict[str, File]:
    """Returns the agent's files on a head."""
    settings = config(cluster, site, cluster.groups[0], head=head)
    unit = _unit("head", _LETS_IN if head != cluster.head else "")
    return {f"{UNITS}/{AGENT}": File(unit), CONFIG: File(settings)}


def _unit(role: str, more: str = "") -> str:
    return f"""\
# {MARK}
[Unit]
Description=Headway agent
After=munge.service
{TRIES}
[Service]
ExecStart={AGENT_COMMAND} {role}
{more}# The agent must not slow down jobs: low CPU priority, and the OOM killer prefers it to the daemons.
Nice=10
OOMScoreAdjust=300
NoNewPrivileges=yes
Restart=always
RestartSec=2
[Install]
WantedBy=multi-user.target
"""


def config(cluster: Cluster, site: Site, group: Group, *, head: str = "") -> str:
    """Returns the agent's configuration as JSON, which allows no comments. Checks and tests compare the machine with
    it. `head`: name of the head that the file is for; "" for nodes."""
    plan = group.plan
    from_head = () if head else nfs_exports.exported(site)
    mounts = [
        {"path": path(where, "storage"), "source": path(what, "storage"), "read_only": read_only}
        for what, where, read_only in provided_volumes(cluster, site)
    ]
    elsewhere = [(path(where, "storage"), False) for where in from_head]
    elsewhere += [(path(volume.path, "storage.volumes"), volume.read_only) for volume in cluster.storage.volumes]
    mounts += [
        {"path": where, "source": "/", "read_only": read_only, "outside": True} for where, read_only in elsewhere
    ]
    settings = {
        "head": require_word(site.addresses[head] if head else site.head_address, "address"),
        **_second(cluster, site, head),
        **({"cluster": require_word(cluster.name, "name")} if head else {}),
        **({"state": path(cluster.state_folder, "storage.state")} if head and cluster.storage.state else {}),
        "kernel_log": SIMULATED_LOG if cluster.provider.simulates_hardware else "/dev/kmsg",
        "simulated": site.simulated_gpus,
        "oversubscribed_cpus": hardware_is_simulated(cluster, site),
        "own_hardware": not cluster.provider.shares_one_host,
        "gpus": plan.gpus,
        "gpu_type": plan.gpu_type,
        "product": plan.gpu_product,
        "gpu_memory_mib": plan.gpu_memory_mib,
        "memory_mib": plan.memory_mib,
        "expects": dict(sorted(plan.expects.items())),
        "mounts": mounts,
        "offline_response": cluster.health.act,
        "drain_codes": sorted(draining_codes(cluster.health.xid_classes)),
    }
    if not head and group.parts.mig:
        settings["mig"] = _mig(group.parts)
    if not head and group.parts.mps:
        settings["mps"] = True
    machines: dict[str, dict[str, object]] = {}
    for name in () if head else group.slots:
        if name in site.found:
            machines[name] = _machine(cluster, site, name)
        if name in site.parts_now and site.parts_now[name].mig != group.parts.mig:
            machines[name] = {**machines.get(name, {}), "mig": _mig(site.parts_now[name])}
        if name in site.parts_now and site.parts_now[name].mps != group.parts.mps:
            machines[name] = {**machines.get(name, {}), "mps": site.parts_now[name].mps}
    if machines:
        settings["machines"] = machines
    return json.dumps(settings, indent=1) + "\n"


def _mig(parts: GpuParts) -> list[dict[str, object]]:
    """Returns the MIG instances of each GPU as node/agent/gpu/mig.py reads them."""
    return [
        {
            "profile": one.profile,
            "start": one.start,
            "size": one.size,
            "compute": one.compute,
            "number": one.gpu_instance,
            "memory_mib": one.memory_mib,
        }
        for one in parts.mig
    ]


def _machine(cluster: Cluster, site: Site, name: str) -> dict[str, object]:
    """Returns the values of an owned machine that replace the plan's: those found when it was taken over. The plan's
    expected figures only apply to the plan's GPU."""
    found, plan = site.found[name], cluster.group_of[name].plan
    node, gpus = hardware_of(cluster, site, name), found.usable_gpus
    settings: dict[str, object] = {"gpus": node.gpus, "memory_mib": found.memory_mib}
    plans = {plan.gpu_product or gpus[0].product} if gpus else set()
    if {gpu.product for gpu in gpus} != plans or node.gpu_type != plan.gpu_type:
        settings |= {"gpu_type": node.gpu_type, "product": gpus[0].product if gpus else "", "expects": {}}
        settings["gpu_memory_mib"] = max((gpu.memory_mib for gpu in gpus), default=0)
    if plan.gpus and found.gpus and not gpus:
        settings["driverless_gpus"] = len(found.gpus)
    down = {nic.name for nic in found.nics if not nic.up}
    settings["fabric"] = sorted({nic.name for nic in found.nics} - down)
    return settings


def _second(cluster: Cluster, site: Site, head: str) -> dict[str, object]:
    """Returns the entries about a second head. Nodes report to every head; the second head acts only while its
    controller is active."""
    if cluster.controllers == 1:
        return {}
    first, *others = (require_word(site.addresses[name], "addresses") for name in cluster.heads)
    if not head:
        return {"other_heads": others}
    return {"first": True} if head == cluster.head else {"first": False, "first_head": first}


def simulated_gpus(plan: Plan) -> str:
    """Returns the data that nvidia-smi of local machines shows. JSON allows no comments."""
    shown = {"product": plan.gpu_product, "memory_mib": plan.gpu_memory_mib, "count": plan.gpus}
    return json.dumps(shown) + "\n"
