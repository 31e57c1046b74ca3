"""Hugging Face Accelerate: FSDP2 with activation checkpointing on GPUs, gradient accumulation, checkpoints of headway_train.

On a machine without GPUs Accelerate has no FSDP: the same loop runs under DDP, and the first line says so. A run that
starts again continues from its newest checkpoint, also with another number of ranks.

    torchrun --nproc_per_node=8 train_accelerate.py --width 2048 --layers 24 --heads 16 --context 2048 --batch 8
    accelerate launch --num_processes 8 train_accelerate.py
"""

from __future__ import annotations

import time

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from headway_train import Checkpointer, report
from tiny_llm import Tokens, build_model, build_tokenizer, parser


def accelerator(accumulate: int) -> Accelerator:
    """Returns the accelerator: FSDP2 and bfloat16 on GPUs, DDP on CPUs."""
    if not torch.cuda.is_available():
        return Accelerator(gradient_accumulation_steps=accumulate, cpu=True)
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["LlamaDecoderLayer"],
        activation_checkpointing=True,
    )
    return Accelerator(gradient_accumulation_steps=accumulate, mixed_precision="bf16", fsdp_plugin=plugin)


def main() -> None:
    flags = parser("Train a small Llama with Accelerate.")
    flags.add_argument("--accumulate", type=int, default=2, help="batches per step")
    options = flags.parse_args()
    accelerate = accelerator(options.accumulate)
    rank, ranks = accelerate.process_index, accelerate.num_processes
    tokenizer = build_tokenizer(options.data)
    tokens = Tokens(tokenizer, options.data)
    model = build_model(
        tokenizer, width=options.width, layers=options.layers, heads=options.heads, context=options.context
    )
    weights = sum(part.numel() for part in model.parameters())
    model, optimizer = accelerate.prepare(model, torch.optim.AdamW(model.parameters(), lr=options.lr))
    parts = [part.to_local() if hasattr(part, "to_local") else part for part in model.parameters()]
    how = "FSDP2" if accelerate.is_fsdp2 else "DDP (Accelerate has no FSDP for CPUs)"
    held = sum(part.numel() for part in parts)
    print(f"{how}: rank {rank} of {ranks} holds {held:,} of {weights:,} weights", flush=True)

    checkpoints = Checkpointer(options.checkpoint_dir, keep=2)
    state = {"model": model, "optimizer": optimizer.optimizer}
    first = checkpoints.load(state)
    accelerate.print(f"continues after step {first}" if first else "begins", flush=True)
    tokens_per_step = ranks * options.batch * options.context * options.accumulate
    since, at = first, time.monotonic()
    for step in range(first + 1, options.steps + 1):
        for part in range(options.accumulate):
            ids = tokens.batch(step * options.accumulate + part, rank, options.batch, options.context)
            ids = ids.to(accelerate.device)
            with accelerate.accumulate(model):
                loss = model(input_ids=ids, labels=ids).loss
                accelerate.backward(loss)
                if accelerate.sync_gradients:
                    accelerate.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        if step % options.log_every == 0 or step in (first + 1, options.steps):
            shown = accelerate.reduce(loss.detach(), "mean").item()
            rate = (step - since) * tokens_per_step / (time.monotonic() - at)
            report(step=step, loss=shown, tokens=step * tokens_per_step)
            accelerate.print(f"step {step} loss {shown:.3f} {rate:,.0f} tokens/s", flush=True)
            since, at = step, time.monotonic()
        warned = checkpoints.warned()
        if warned or step % options.checkpoint_every == 0 or step == options.steps:
            checkpoints.save(step, state, background=True)
        if warned:
            break
    checkpoints.wait()
    accelerate.end_training()


if __name__ == "__main__":
    main()
