"""slurm.conf."""

from __future__ import annotations

from dataclasses import replace

from headway.catalog.providers import AWS
from headway.domain.jobs.job_qos import JobQos
from headway.render.machine_paths import TASK_PROLOG
from headway.render.slurm import conf_syntax
from headway.render.slurm.hooks import task_prolog
from tests.support.clusters.render_cases import gpu_cluster, slurm_conf

GPU = gpu_cluster()


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


def test_rented_machines_have_no_setting_that_slurm_refuses() -> None:
    """Slurm 24.11 calls NoAddrCache defunct, and a configuration with such an error is not taken up."""
    text = slurm_conf(replace(GPU, provider=AWS))
    assert conf_syntax.settings(conf_syntax.parse_lines(text))["communicationparameters"] == "block_null_hash"


def test_preemption_is_by_qos_where_a_qos_preempts() -> None:
    high = JobQos("high", ("default",), preempts=("standby",))
    text = slurm_conf(replace(gpu_cluster(), qos=(high, JobQos("standby", ("default",)))))
    assert "PreemptType=preempt/qos\n" in text
    assert "PreemptMode=REQUEUE\n" in text


def test_jobs_log_to_mlflow_where_the_file_says_so() -> None:
    found = conf_syntax.settings(conf_syntax.parse_lines(slurm_conf(replace(GPU, mlflow=True))))
    assert found["taskprolog"] == TASK_PROLOG
    assert "TaskProlog" not in slurm_conf(GPU)
    assert task_prolog.files(replace(GPU, mlflow=True))[TASK_PROLOG].mode == 0o755
    assert task_prolog.files(GPU) == {}
