"""Groups that share their GPUs: what a GPU can be divided into, and the faults of the file otherwise."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from headway.catalog.mig_profiles import lay_out, profiles_of
from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import check_cluster_file, resolve_cluster_file
from headway.domain.machines.gpu_parts import WHOLE, GpuParts, share_of_type
from headway.errors import Fault
from headway.validation.yaml_parser import parse_yaml

CATALOGUE = load_catalogue({})
H200 = CATALOGUE["h200-8"]


def faults(text: str) -> list[Fault]:
    return check_cluster_file(parse_yaml(text), CATALOGUE, owner="ann")[1]


def only(text: str) -> Fault:
    (found,) = faults(text)
    return found


def test_short_form_and_groups_divide_gpus() -> None:
    short = resolve_cluster_file(
        parse_yaml('{name: lab, plan: h200-8, nodes: 1, mig: {"3g.71gb": 2}}'), CATALOGUE, owner="ann"
    )[0]
    assert short.groups[0].parts == GpuParts(mig=lay_out(H200, {"3g.71gb": 2}))
    assert short.groups[0].parts.description == "2 x 3g.71gb"
    text = """
name: lab
groups:
  small: {plan: h200-8, nodes: 1, shards: 4}
  cuda: {plan: l40s-4, nodes: 1, mps: true}
  big: {plan: h200-8, nodes: 1}
"""
    assert faults(text) == []
    small, cuda, big = resolve_cluster_file(parse_yaml(text), CATALOGUE, owner="ann")[0].groups
    assert (small.parts, cuda.parts, big.parts) == (GpuParts(shards=4), GpuParts(mps=True), WHOLE)


def test_the_example_is_valid() -> None:
    text = (Path(__file__).parents[4] / "examples" / "gpu-parts.yaml").read_text()
    assert faults(text) == []


def test_unknown_profile_names_the_gpus_profiles() -> None:
    fault = only('{name: lab, plan: h200-8, nodes: 1, mig: {"3g.40gb": 2}}')
    assert fault.path == "mig.3g.40gb"
    assert fault.message == "is not a MIG profile of NVIDIA H200"
    assert "3g.71gb" in fault.hint


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ('{"4g.71gb": 2}', "needs 8 compute slices, and a GPU has 7"),
        ('{"3g.71gb": 2, "1g.18gb": 1}', "needs 9 memory slices, and a GPU has 8"),
        ('{"2g.35gb": 3, "1g.35gb": 1}', ""),
        ('{"4g.71gb": 1, "3g.71gb": 1}', ""),
        ('{"1g.18gb": 7}', ""),
        ('{"3g.71gb": 1, "2g.35gb": 2}', ""),
        ('{"7g.141gb": 1}', ""),
    ],
)
def test_layout_has_to_fit_into_one_gpu(layout: str, message: str) -> None:
    found = faults(f"{{name: lab, groups: {{gpu: {{plan: h200-8, nodes: 1, mig: {layout}}}}}}}")
    assert [(fault.path, fault.message) for fault in found] == ([("groups.gpu.mig", message)] if message else [])


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ('{"2g.12gb": 1, "1g.6gb": 2}', ""),
        ('{"4g.24gb": 1}', ""),
        ('{"2g.12gb": 2, "1g.6gb": 1}', "needs 5 compute slices, and a GPU has 4"),
    ],
)
def test_an_a30_has_four_slices(layout: str, message: str) -> None:
    plan = replace(H200, name="a30-4", gpu_type="a30", gpu_memory_mib=24 * 1024, gpu_product="NVIDIA A30")
    text = f"{{name: lab, plan: a30-4, nodes: 1, mig: {layout}}}"
    found = check_cluster_file(parse_yaml(text), {**CATALOGUE, "a30-4": plan}, owner="ann")[1]
    assert [(fault.path, fault.message) for fault in found] == ([("mig", message)] if message else [])


def test_instances_of_an_a30_are_quarters_of_it() -> None:
    plan = replace(H200, gpu_type="a30", gpu_memory_mib=24 * 1024)
    parts = GpuParts(mig=lay_out(plan, {"2g.12gb": 1, "1g.6gb": 2}))
    assert [(one.profile, one.gpu_instance, one.memory_mib) for one in parts.mig] == [
        ("2g.12gb", 1, 12 * 1024), ("1g.6gb", 5, 6 * 1024), ("1g.6gb", 6, 6 * 1024),
    ]  # fmt: skip
    assert parts.units_per_gpu == 4
    assert share_of_type("2g.12gb") == Fraction(1, 2)
    assert share_of_type("1g.12gb") == Fraction(1, 7), "of a 94 GB H100"


def test_gpus_without_mig_and_plans_without_gpus_are_refused() -> None:
    assert only('{name: lab, plan: l40s-4, nodes: 1, mig: {"1g.6gb": 2}}').message == (
        "NVIDIA L40S of plan l40s-4 has no MIG profiles that Headway knows"
    )
    assert only("{name: lab, plan: cpu-64, nodes: 1, shards: 4}").message == "needs GPUs, and plan cpu-64 has none"


def test_gpus_are_divided_in_one_way() -> None:
    fault = only('{name: lab, plan: h200-8, nodes: 1, mig: {"3g.71gb": 2}, shards: 8}')
    assert (fault.path, fault.message) == ("shards", "can't be combined with mig")


def test_a_shard_is_the_same_in_all_groups() -> None:
    text = "{name: lab, groups: {a: {plan: h200-8, nodes: 1, shards: 4}, b: {plan: h200-8, nodes: 1, shards: 8}}}"
    assert only(text).path == "groups.b.shards"


def test_fields_of_the_short_form_are_refused_next_to_groups() -> None:
    text = '{name: lab, mig: {"3g.71gb": 2}, groups: {a: {plan: h200-8, nodes: 1}}}'
    assert [fault.path for fault in faults(text)] == ["mig"]


def test_partition_with_whole_gpus_and_instances_is_warned_about() -> None:
    groups = 'groups: {a: {plan: h200-8, nodes: 1, mig: {"3g.71gb": 2}}, b: {plan: h200-8, nodes: 1}}'
    found = only(f"{{name: lab, {groups}}}")
    assert found.level == "warning"
    assert "may get either" in found.message
    assert faults(f"{{name: lab, {groups}, partitions: {{small: {{groups: [a]}}, big: {{groups: [b]}}}}}}") == []


def test_places_and_numbers_are_those_of_the_driver() -> None:
    """The example of NVIDIA's MIG user guide: profiles 3g, 2g, 1g and 1g of an A100 get the GPU instances 2, 3, 9
    and 10, whose device files follow /proc/driver/nvidia-caps/mig-minors: gpu1/gi0/access is 138."""
    a100 = replace(CATALOGUE["a100-8"], gpu_memory_mib=40_960)
    instances = lay_out(a100, {"1g.5gb": 2, "3g.20gb": 1, "2g.10gb": 1})
    assert {(one.profile, one.gpu_instance) for one in instances} == {
        ("3g.20gb", 2),
        ("2g.10gb", 3),
        ("1g.5gb", 9),
        ("1g.5gb", 10),
    }
    (whole,) = lay_out(a100, {"7g.40gb": 1})
    assert whole.device_files(1) == (
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap138",
        "/dev/nvidia-caps/nvidia-cap139",
    )


def test_every_profile_fits_as_often_as_the_driver_allows() -> None:
    most = {"1g.18gb": 7, "1g.35gb": 4, "2g.35gb": 3, "3g.71gb": 2, "4g.71gb": 1, "7g.141gb": 1}
    for name in profiles_of(H200):
        counts = [count for count in range(1, 9) if lay_out(H200, {name: count})]
        assert counts == list(range(1, most[name] + 1)), name


def test_teams_may_be_limited_in_parts() -> None:
    text = """
name: lab
groups: {{a: {{plan: h200-8, nodes: 1, mig: {{"3g.71gb": 2}}}}, b: {{plan: h200-8, nodes: 1, shards: 8}}}}
partitions: {{a: {{groups: [a]}}, b: {{groups: [b]}}}}
teams: {{vision: {{users: [ann], limits: {{gpus: 8, gpu_parts: {{{}}}}}}}}}
"""
    fine = text.format('"3g.71gb": 4, shard: 16')
    assert faults(fine) == []
    (team,) = resolve_cluster_file(parse_yaml(fine), CATALOGUE, owner="ann")[0].teams
    assert team.gpu_parts == {"3g.71gb": 4, "shard": 16}
    fault = only(text.format("mps: 50"))
    assert (fault.path, fault.message) == ("teams.vision.limits.gpu_parts.mps", "is no part of the cluster's GPUs")
    assert fault.hint == "use 3g.71gb or shard"
