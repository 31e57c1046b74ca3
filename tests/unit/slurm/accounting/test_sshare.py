"""sshare's output is parsed, as Slurm 24.11 printed it on a cluster where one job had held 16 GPUs for 151
seconds."""

from __future__ import annotations

from headway.slurm.accounting import sshare

ANSWER = """\
root||0.000000|1.000000||cpu=1193,mem=13037791,energy=0,node=7,billing=49735,gres/gpu=49,gres/gpumem=0
 root|root|0.009709|0.000000|1.000000|cpu=0,mem=0,energy=0,node=0,billing=0,gres/gpu=0,gres/gpumem=0
 speech||0.388350|0.160658||cpu=191,mem=2094630,energy=0,node=0,billing=7990,gres/gpu=7,gres/gpumem=0
  speech|bob|1.000000|1.000000|0.666667|cpu=191,mem=2094630,energy=0,node=0,billing=7990,gres/gpu=7,gres/gpumem=0
 vision||0.582524|0.808543||cpu=965,mem=10541614,energy=0,node=5,billing=40213,gres/gpu=40,gres/gpumem=0
  vision|ann|0.500000|1.000000|0.333333|cpu=965,mem=10541614,energy=0,node=5,billing=40213,gres/gpu=40,gres/gpumem=0
  vision|cleo|0.500000|0.000000|0.500000|cpu=0,mem=0,energy=0,node=0,billing=0,gres/gpu=0,gres/gpumem=0
"""


def test_parses_shares_usage_and_gpu_hours_of_accounts() -> None:
    speech, vision = sshare.parse_shares(ANSWER)
    assert (vision.account, vision.norm_shares, vision.effective_usage, vision.fair_share) == (
        "vision", 0.582524, 0.808543, 0.5,
    )  # fmt: skip
    assert vision.gpu_hours == 40 / 60  # 16 GPUs for 151 s are 40 GPU-minutes
    assert vision.user_gpu_hours == {"ann": 40 / 60, "cleo": 0.0}
    assert (speech.account, speech.gpu_hours) == ("speech", 7 / 60)


def test_parts_of_nested_accounts_are_those_of_the_cluster() -> None:
    nested = """\
root||0.000000|1.000000||
 science||0.600000|0.500000||gres/gpu=60
  science|ann|0.250000|0.000000|0.5|
  physics||0.750000|1.000000||gres/gpu=60
   physics|bob|1.000000|1.000000|0.2|gres/gpu=60
 it||0.400000|0.500000||
"""
    it, physics, science = sshare.parse_shares(nested)
    assert (science.norm_shares, physics.norm_shares, it.norm_shares) == (0.6, 0.6 * 0.75, 0.4)
    assert (science.effective_usage, physics.effective_usage, it.effective_usage) == (0.5, 0.5, 0.5)
