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

from headway.cluster.machine_steps import STAGES
from headway.domain.cluster import Cluster
from headway.domain.machines.managed_file import File
from headway.domain.storage.folders import Dataset, StorageFolders
from headway.errors import InvalidSpec
from headway.render.files_by_role import render_files
from headway.render.slurm import conf_syntax
from headway.render.system.unit_list import units_by_role
from tests.support.clusters.render_cases import cpu_cluster, gpu_cluster, old_gpu_cluster, site_of, slurm_conf
from tests.support.property_examples import examples

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


@settings(max_examples=examples(150))
@given(st.sampled_from(PLACES), st.text(max_size=15), st.sampled_from("\n\r\x0b\x0c\x85\u2028\u2029"))
def test_line_ends_in_spec_do_not_reach_files(place: tuple[str, tuple[Any, ...]], text: str, end: str) -> None:
    rendered = try_render(*place, f"{text}{end}HACK")
    for files in (rendered or {}).values():
        for path, file in files.items():
            assert f"{end}HACK" not in file.text, path
            assert f"{end}HACK" not in path


@pytest.mark.parametrize("cluster", [GPU, old_gpu_cluster(), cpu_cluster()], ids=["24.11", "22.05", "own"])
def test_units_reference_only_rendered_files(cluster: Cluster) -> None:
    rendered, roles = render_files(cluster, site_of(cluster)), units_by_role(cluster, site_of(cluster))
    maybe = {
        "/etc/slurm/gres.conf",
        "/etc/slurm/topology.conf",
        "/etc/slurm/job_submit.lua",  # of the site
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
    assert [unit.stage for unit in roles["head"]] == sorted((unit.stage for unit in roles["head"]), key=STAGES.index)


def test_rendered_files_contain_no_secrets() -> None:
    for files in render_files(GPU, site_of(GPU)).values():
        for path, file in files.items():
            if file.secret:
                assert file.text == ""
                assert file.mode & 0o077 == 0, path
    slurmdbd = render_files(GPU, site_of(GPU))["head"]["/etc/slurm/slurmdbd.conf"]
    assert (slurmdbd.mode, slurmdbd.owner) == (0o600, "slurm")
    assert "StoragePass" not in slurmdbd.text


def test_ten_thousand_nodes_render_within_five_seconds() -> None:
    cluster = gpu_cluster(leaves=100, per_leaf=100)
    site = site_of(cluster)
    started = time.process_time()
    rendered = render_files(cluster, site)
    assert time.process_time() - started <= 5.0  # 0.4 s on an idle machine
    assert rendered["node"]["/etc/hosts"].text.count("lab-") == 10_001
    assert sum(line.first == "nodename" for line in conf_syntax.parse_lines(slurm_conf(cluster))) == 100


def test_only_slurm_22_05_prolog_creates_output_folders() -> None:
    assert "setpriv" not in render_files(GPU, site_of(GPU))["node"]["/etc/headway/prolog"].text
    old = render_files(old_gpu_cluster(), site_of(old_gpu_cluster()))["node"]["/etc/headway/prolog"].text
    assert "setpriv --reuid" in old


def test_dataset_mounts_are_readonly_by_default() -> None:
    sets = (Dataset("a", "/x", "/a"), Dataset("b", "/x", "/b", read_only=False), Dataset("c", "", "/c"))
    cluster = replace(GPU, storage=StorageFolders(datasets=sets))
    files = render_files(cluster, site_of(cluster))["node"]
    assert "Options=bind,ro" in files["/etc/systemd/system/a.mount"].text
    assert "Options=bind\n" in files["/etc/systemd/system/b.mount"].text
    assert "/etc/systemd/system/c.mount" not in files


def test_refuses_unknown_slurm_version() -> None:
    with pytest.raises(InvalidSpec, match=r"23\.02"):
        render_files(replace(GPU, slurm_version="23.02"), site_of(GPU))


@settings(max_examples=examples(100))
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
