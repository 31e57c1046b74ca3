"""Rendered files resist injected lines and keys, systemd units reference rendered files only, and 10,000 nodes render
quickly."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.domain.cluster import Cluster, Dataset, Storage
from headway.domain.machines.managed_file import File
from headway.domain.machines.site import Site
from headway.errors import InvalidSpec
from headway.render.files import render_files
from headway.render.slurm import conf_syntax
from headway.render.slurm.node_hardware import hardware_of
from headway.render.system.unit_list import units_by_role
from tests.support.clusters.render_cases import cpu_cluster, gpu_cluster, old_gpu_cluster, site_of

GPU = gpu_cluster()


def strings(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of every string inside dataclasses, tuples and mappings (keys too)."""
    if isinstance(value, str):
        yield path
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from strings(getattr(value, field.name), (*path, field.name))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from strings(item, (*path, index))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield (*path, ("key", key))
            yield from strings(item, (*path, key))


def put(value: Any, path: tuple[Any, ...], text: str) -> Any:
    """`value` with the string at `path` replaced."""
    if not path:
        return text
    head, *rest = path
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{head: put(getattr(value, head), tuple(rest), text)})
    if isinstance(value, tuple):
        return (*value[:head], put(value[head], tuple(rest), text), *value[head + 1 :])
    if isinstance(head, tuple):
        return {text if key == head[1] else key: item for key, item in value.items()}
    return {**value, head: put(value[head], tuple(rest), text)}


PLACES = [("cluster", path) for path in strings(GPU)] + [("site", path) for path in strings(site_of(GPU))]


def try_render(where: str, path: tuple[Any, ...], text: str) -> dict[str, dict[str, File]] | None:
    cluster, site = GPU, site_of(GPU)
    if where == "cluster":
        cluster = put(cluster, path, text)
    else:
        site = put(site, path, text)
    try:
        return render_files(cluster, site)
    except (InvalidSpec, KeyError):
        return None


def lines_of(files: Mapping[str, File]) -> Iterator[str]:
    for file in files.values():
        yield from (line.strip() for line in file.text.replace("\r", "\n").split("\n"))


@pytest.mark.parametrize("text", ["x\nHACK=1", "x\r\nHACK=1\r", "/x\nHACK=1", "x\n\nHACK=1 #", 'x"\nHACK=1 "'])
def test_spec_strings_cannot_add_lines_to_files(text: str) -> None:
    assert len(PLACES) > 70
    for where, path in PLACES:
        rendered = try_render(where, path, text)
        for role, files in (rendered or {}).items():
            bad = [line for line in lines_of(files) if line.startswith("HACK")]
            assert not bad, (where, path, role)


@settings(max_examples=150)
@given(st.sampled_from(PLACES), st.text(max_size=15), st.sampled_from("\n\r\x0b\x0c\x85\u2028\u2029"))
def test_line_ends_in_spec_do_not_reach_files(place: tuple[str, tuple[Any, ...]], text: str, end: str) -> None:
    rendered = try_render(*place, f"{text}{end}HACK")
    for files in (rendered or {}).values():
        for path, file in files.items():
            assert f"{end}HACK" not in file.text, path
            assert f"{end}HACK" not in path


@settings(max_examples=100)
@given(
    st.sampled_from(PLACES), st.sampled_from(["a b", "a=b", "a b=c", "a#b", "a,b", "a:b", "$(x)", "`x`", "../x", "%n"])
)
def test_special_characters_add_no_slurm_conf_keys(place: tuple[str, tuple[Any, ...]], text: str) -> None:
    where, path = place
    if where == "cluster" and "slurm" in path:
        return  # keys there are the user's own, from an allowlist
    rendered = try_render(where, path, text)
    if rendered is None:
        return
    known = {key.lower() for line in conf_syntax.parse_lines(baseline()) for key, _ in line.pairs}
    now = {
        key.lower()
        for line in conf_syntax.parse_lines(rendered["head"]["/etc/slurm/slurm.conf"].text)
        for key, _ in line.pairs
    }
    assert now <= known


def baseline() -> str:
    return render_files(GPU, site_of(GPU))["head"]["/etc/slurm/slurm.conf"].text


@pytest.mark.parametrize("cluster", [GPU, old_gpu_cluster(), cpu_cluster()], ids=["24.11", "22.05", "own"])
def test_units_reference_only_rendered_files(cluster: Cluster) -> None:
    rendered, roles = render_files(cluster, site_of(cluster)), units_by_role(cluster, site_of(cluster))
    maybe = {
        "/etc/slurm/gres.conf",
        "/etc/slurm/topology.conf",
        "/etc/slurm/oci.conf",  # of Slurm releases that run bundles
        "/usr/lib/headway/leads",
        "/usr/lib/headway/take-back",  # both of two heads: they go with the unit that runs them
        "/usr/lib/headway/state-folder",  # of machines one owns, the same
        "/usr/lib/headway/agent.pyz",
    }  # the last: cluster.agent_bundle
    for role, rows in roles.items():
        for unit in rows:
            for path in (*unit.restart_on, *unit.reload_on):
                assert path in rendered[role] or path in maybe, (role, unit.name, path)
            assert bool(unit.reload_on) == bool(unit.reload)
    assert [unit.stage for unit in roles["head"]] == sorted(
        (unit.stage for unit in roles["head"]), key=["base", "database", "accounting", "controller", "node"].index
    )


def test_rendered_files_contain_no_secrets() -> None:
    for files in render_files(GPU, site_of(GPU)).values():
        for path, file in files.items():
            if file.secret:
                assert file.text == ""
                assert file.mode & 0o077 == 0, path
    slurmdbd = render_files(GPU, site_of(GPU))["head"]["/etc/slurm/slurmdbd.conf"]
    assert (slurmdbd.mode, slurmdbd.owner) == (0o600, "slurm")
    assert "StoragePass" not in slurmdbd.text


@pytest.mark.parametrize("cluster", [GPU, old_gpu_cluster()])
def test_slurmdbd_listens_only_on_private_address(cluster: Cluster) -> None:
    lines = render_files(cluster, site_of(cluster))["head"]["/etc/slurm/slurmdbd.conf"].text.splitlines()
    assert "CommunicationParameters=NoInAddrAny" in lines
    assert f"DbdAddr={site_of(cluster).head_address}" in lines


def test_ten_thousand_nodes_render_within_five_seconds() -> None:
    cluster = gpu_cluster(leaves=100, per_leaf=100)
    site = site_of(cluster)
    started = time.process_time()
    rendered = render_files(cluster, site)
    assert time.process_time() - started <= 5.0  # 0.4 s on an idle machine
    assert rendered["node"]["/etc/hosts"].text.count("lab-") == 10_001
    assert sum(line.first == "nodename" for line in conf_syntax.parse_lines(slurm_conf(cluster))) == 100


def slurm_conf(cluster: Cluster, site: Site | None = None) -> str:
    return render_files(cluster, site or site_of(cluster))["head"]["/etc/slurm/slurm.conf"].text


def one(text: str, kind: str) -> conf_syntax.Line:
    return next(line for line in conf_syntax.parse_lines(text) if line.first == kind)


def test_cluster_file_keys_override_defaults_case_insensitively() -> None:
    keys = [key.lower() for line in conf_syntax.parse_lines(slurm_conf(GPU)) for key, _ in line.pairs]
    assert keys.count("priorityweightage") == 1
    found = conf_syntax.settings(conf_syntax.parse_lines(slurm_conf(GPU)))
    assert found["priorityweightage"] == "2000"
    assert found["maxstepcount"] == "50000"


def test_unkillable_step_timeout_is_at_least_five_message_timeouts() -> None:
    """slurmctld says "error:" to less, and a candidate with errors is not taken up."""
    for said, least in ((None, 120), ("24", 120), ("25", 125), ("100", 500)):
        cluster = replace(GPU, slurm={} if said is None else {"MessageTimeout": said})
        assert conf_syntax.settings(conf_syntax.parse_lines(slurm_conf(cluster)))["unkillablesteptimeout"] == str(least)


def test_eight_single_gpu_jobs_fit_one_node() -> None:
    text = slurm_conf(GPU)
    found, node = conf_syntax.settings(conf_syntax.parse_lines(text)), one(text, "nodename")
    assert 8 * int(found["defmempergpu"]) <= int(node.get("RealMemory") or 0)
    assert 8 * int(found["defcpupergpu"]) <= int(node.get("CPUs") or 0)


def test_whole_node_billing_equals_its_gpus() -> None:
    weights = dict(
        word.split("=") for word in (one(slurm_conf(GPU), "partitionname").get("TRESBillingWeights") or "").split(",")
    )
    node = one(slurm_conf(GPU), "nodename")
    gib = int(node.get("RealMemory") or 0) / 1024
    assert int(float(weights["Mem"].removesuffix("G")) * gib) == 8000
    assert int(float(weights["CPU"]) * int(node.get("CPUs") or 0)) == 8000


def test_job_folders_are_removed_at_boot() -> None:
    node = render_files(GPU, site_of(GPU))["node"]
    for place in ("/var/lib/headway/job-tmp", "/var/lib/headway/containers"):
        assert f"{place} " in node["/etc/headway/epilog"].text
        assert f"R! {place}/*\n" in node["/etc/tmpfiles.d/headway.conf"].text


def test_tmpdisk_is_set_only_when_known() -> None:
    assert one(slurm_conf(GPU, site_of(GPU, real_tmp_mib=5000)), "nodename").get("TmpDisk") == "5000"
    assert one(slurm_conf(GPU), "nodename").get("TmpDisk") is None


def test_cgroup_conf_constrains_swap() -> None:
    written = render_files(GPU, site_of(GPU))["head"]["/etc/slurm/cgroup.conf"].text
    assert "ConstrainSwapSpace=yes" in written
    assert "CgroupPlugin=autodetect" in written
    old = render_files(GPU, replace(site_of(GPU), cgroup_v1=True))["head"]["/etc/slurm/cgroup.conf"].text
    assert "CgroupPlugin=cgroup/v1" in old, "what lies on top may be the systemd's own v2"


def test_slurm_daemons_are_protected_from_oom_killer() -> None:
    rendered = render_files(GPU, site_of(GPU))
    for role, name in (("node", "slurmd"), ("node", "munge"), ("head", "munge"), ("head", "slurmctld")):
        text = rendered[role][f"/etc/systemd/system/{name}.service.d/headway.conf"].text
        assert "OOMScoreAdjust=-9" in text, (role, name)


def test_only_real_cores_are_pinned() -> None:
    local = render_files(GPU, site_of(GPU))["head"]
    real = render_files(cpu_cluster(), site_of(cpu_cluster(), real_cpus=64, real_memory_mib=260_000))["head"]
    assert "ConstrainCores=no" in local["/etc/slurm/cgroup.conf"].text
    assert (
        conf_syntax.settings(conf_syntax.parse_lines(local["/etc/slurm/slurm.conf"].text))["taskplugin"]
        == "task/cgroup"
    )
    assert "ConstrainCores=yes" in real["/etc/slurm/cgroup.conf"].text
    assert "task/affinity" in real["/etc/slurm/slurm.conf"].text
    assert "config_overrides" not in real["/etc/slurm/slurm.conf"].text


def test_real_node_advertises_less_memory_than_it_has() -> None:
    cluster = cpu_cluster()
    node = hardware_of(cluster, site_of(cluster, real_cpus=64, real_memory_mib=250_000), cluster.slot_names[0])
    assert not node.pretended
    assert node.memory_mib < 250_000


def test_topology_conf_is_omitted_for_single_switch() -> None:
    one_leaf = render_files(old_gpu_cluster(), site_of(old_gpu_cluster()))["head"]
    assert "/etc/slurm/topology.conf" not in one_leaf
    assert "TopologyPlugin" not in one_leaf["/etc/slurm/slurm.conf"].text
    two = render_files(GPU, site_of(GPU))["head"]["/etc/slurm/topology.conf"].text
    assert "SwitchName=leaf1 Nodes=lab-1-[1-2]" in two
    assert "SwitchName=spine Switches=leaf[1-2]" in two


def test_departed_user_keeps_uid_but_cannot_log_in() -> None:
    files = render_files(GPU, site_of(GPU))["node"]
    assert "bob:x:20099:20099:bob:/home/bob:/usr/sbin/nologin\n" in files["/var/lib/extrausers/passwd"].text
    assert "bob:!:19000:0:99999:7::1:\n" in files["/var/lib/extrausers/shadow"].text
    assert "DenyUsers bob" in files["/etc/ssh/sshd_config.d/10-headway.conf"].text
    assert "/etc/ssh/headway_keys/bob" not in files
    assert "/etc/ssh/headway_keys/alice" in files


def test_only_slurm_22_05_prolog_creates_output_folders() -> None:
    assert "setpriv" not in render_files(GPU, site_of(GPU))["node"]["/etc/headway/prolog"].text
    old = render_files(old_gpu_cluster(), site_of(old_gpu_cluster()))["node"]["/etc/headway/prolog"].text
    assert "setpriv --reuid" in old


def test_dataset_mounts_are_readonly_by_default() -> None:
    sets = (Dataset("a", "/x", "/a"), Dataset("b", "/x", "/b", read_only=False), Dataset("c", "", "/c"))
    cluster = replace(GPU, storage=Storage(datasets=sets))
    files = render_files(cluster, site_of(cluster))["node"]
    assert "Options=bind,ro" in files["/etc/systemd/system/a.mount"].text
    assert "Options=bind\n" in files["/etc/systemd/system/b.mount"].text
    assert "/etc/systemd/system/c.mount" not in files


def test_refuses_unknown_slurm_version() -> None:
    with pytest.raises(InvalidSpec, match=r"23\.02"):
        render_files(replace(GPU, slurm_version="23.02"), site_of(GPU))
