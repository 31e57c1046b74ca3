"""The verdict on a job names each resource that was used badly, and what to change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.jobs.explain.efficiency import Use, assess, headline

GOOD = Use(ran_s=3600, completed=True, gpus=8, gpu_percent=93.4, gpu_memory_share=0.8, cpus=64, cpus_busy=20.0, nodes=1,
           memory_mib=512 * 1024, memory_used_mib=200 * 1024.0, limit_s=7200)  # fmt: skip
CPU_JOB = Use(ran_s=3600, completed=True, cpus=64, cpus_busy=8.0, memory_mib=64 * 1024, memory_used_mib=5 * 1024.0)


def test_well_used_resources_need_no_advice() -> None:
    found = assess(GOOD)
    assert [(one.level, one.resource) for one in found] == [
        ("ok", "GPUs"), ("ok", "GPU memory"), ("ok", "CPUs"), ("ok", "Memory"), ("ok", "Time"),
    ]  # fmt: skip
    assert not any(one.advice for one in found)
    assert headline(found, ended=True) == "Well used"
    assert found[0].text == "93 % busy on average"


@pytest.mark.parametrize(
    ("use", "resource", "advice"),
    [
        (replace(GOOD, gpu_percent=40.0), "GPUs", "more workers"),
        (replace(GOOD, gpu_percent=40.0, cpus_busy=60.0), "GPUs", "--cpus-per-gpu"),
        (replace(GOOD, gpu_memory_share=0.1), "GPU memory", "A larger batch fits"),
        (replace(GOOD, ran_s=600), "Time", "--time=15"),
        (CPU_JOB, "CPUs", "Request about 10 in all"),
        (CPU_JOB, "Memory", "--mem=7G"),
    ],
)
def test_resource_that_could_be_smaller_has_advice(use: Use, resource: str, advice: str) -> None:
    [found] = [one for one in assess(use) if one.resource == resource]
    assert found.level == "warn"
    assert advice in found.advice


def test_idle_gpus_and_full_memory_are_bad() -> None:
    idle = assess(replace(GOOD, gpu_percent=0.4))
    assert headline(idle, ended=True) == "Its GPUs did nothing"
    for full in (replace(CPU_JOB, memory_used_mib=63 * 1024.0), replace(GOOD, memory_used_mib=500 * 1024.0)):
        assert headline(assess(full), ended=True) == "Its memory was nearly full"
        assert headline(assess(full), ended=False) == "Its memory is about to run out"


def test_memory_below_a_gib_is_in_mib() -> None:
    small = next(
        one for one in assess(replace(CPU_JOB, memory_mib=400, memory_used_mib=380.0)) if one.resource == "Memory"
    )
    assert small.text == "at most 380 of 400 MiB on a node"
    large = next(one for one in assess(CPU_JOB) if one.resource == "Memory")
    assert large.text == "at most 5.0 of 64.0 GiB on a node"


def test_short_job_and_unmeasured_resources_have_no_findings() -> None:
    assert assess(replace(GOOD, ran_s=60)) == ()
    assert assess(Use(ran_s=600, completed=False, gpus=8, cpus=8)) == ()
