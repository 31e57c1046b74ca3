"""A batch script for Slurm that starts the sized training."""

from __future__ import annotations

from math import ceil

from headway.sizing.sized_training import SizedTraining

_MOST_HOURS = 7 * 24


def batch_script(sized: SizedTraining) -> str:
    """Returns the script: its layout is in variables and in arguments as Megatron-LM names them; the program is yours."""
    run = sized.best.run
    layout, shape = run.layout, run.shape
    per_node = min(run.gpus, run.gpus_per_node)
    hours = min(_MOST_HOURS, ceil(sized.seconds / 3600)) if sized.seconds else 24
    interval = max(1, round(sized.checkpoints.interval_s / sized.best.step.total))
    arguments = [
        f"--num-layers {shape.layers}", f"--hidden-size {shape.width}", f"--num-attention-heads {shape.heads}",
        f"--ffn-hidden-size {shape.ffn_width}", f"--seq-length {run.sequence}",
        f"--tensor-model-parallel-size {layout.tensor}", f"--pipeline-model-parallel-size {layout.pipeline}",
        f"--context-parallel-size {layout.context}", f"--micro-batch-size {layout.microbatch}",
        f"--global-batch-size {layout.microbatch * layout.microbatches * run.data_parallel}", f"--save-interval {interval}",
    ]  # fmt: skip
    if sized.tokens:
        arguments.append(f"--train-iters {ceil(sized.tokens / run.tokens_per_step)}")
    if shape.kv_heads < shape.heads:
        arguments.append(f"--group-query-attention --num-query-groups {shape.kv_heads}")
    if shape.gated:
        arguments.append("--swiglu")
    if shape.experts:
        arguments.append(
            f"--num-experts {shape.experts} --moe-router-topk {shape.experts_of_token} "
            f"--expert-model-parallel-size {layout.expert}"
        )
    if layout.tensor > 1:
        arguments.append("--sequence-parallel")
    if layout.virtual_stages > 1:
        arguments.append(
            f"--num-layers-per-virtual-pipeline-stage {shape.layers // layout.pipeline // layout.virtual_stages}"
        )
    if layout.recompute == "full":
        arguments.append("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
    arguments.append({"fsdp": "--use-torch-fsdp2", "zero1": "--use-distributed-optimizer"}.get(layout.shard, ""))
    arguments.append(
        {"bf16": "--bf16", "fp8": "--bf16 --fp8-format hybrid", "fp4": "--bf16 --fp4-format e2m1"}.get(
            run.precision, ""
        )
    )
    lines = " \\\n  ".join(one for one in arguments if one)
    name = "".join(each if each.isalnum() or each in "-_." else "-" for each in shape.name) or "training"
    return f"""#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={run.nodes}
#SBATCH --gpus-per-node={per_node}
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time={hours}:00:00
#SBATCH --requeue
#SBATCH --output=%x-%j.out

# {run.gpus} {run.gpu.name}; predicted {sized.tokens_s:,.0f} tokens/s (plus or minus {sized.band:.0%}),
# {sized.best.memory.total / 2**30:.0f} GiB of a GPU.
# Add the paths of your data, tokenizer and checkpoints. The arguments are Megatron-LM's: other programs name them otherwise.
TRAIN=${{TRAIN:-pretrain_gpt.py}}
head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

srun torchrun --nnodes {run.nodes} --nproc-per-node {per_node} --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d \\
  --rdzv-endpoint "$head_node:29500" "$TRAIN" \\
  {lines} \\
  "$@"
"""
