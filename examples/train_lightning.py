"""PyTorch Lightning: FSDP2 with activation checkpointing by its ModelParallelStrategy, checkpoints of headway_train.

Lightning's batch is the number of the step, and the module draws the data of that step: so a training that continues from
a checkpoint needs no position in a data loader. It also continues with another number of ranks.

    torchrun --nproc_per_node=8 train_lightning.py --width 2048 --layers 24 --heads 16 --context 2048 --batch 8
"""

from __future__ import annotations

import argparse
import os
import time

import lightning
import torch
from headway_train import Checkpointer, report
from lightning.pytorch.strategies import ModelParallelStrategy
from tiny_llm import Tokens, build_model, build_tokenizer, parser
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Training(lightning.LightningModule):
    """The model, its data, and its checkpoints."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.options, self.first = options, 0
        self.tokenizer = build_tokenizer(options.data)
        self.tokens = Tokens(self.tokenizer, options.data)
        self.model: torch.nn.Module | None = None

    def configure_model(self) -> None:
        """Makes the model and divides it over all ranks, a layer at a time."""
        if self.model is not None:
            return
        options = self.options
        self.model = build_model(
            self.tokenizer, width=options.width, layers=options.layers, heads=options.heads, context=options.context
        ).to(self.device)
        self.model.activation_checkpointing_enable()
        weights = sum(part.numel() for part in self.model.parameters())
        halves = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        policy = {"mp_policy": halves} if self.device.type == "cuda" else {}
        mesh = self.device_mesh["data_parallel"]
        for layer in self.model.model.layers:
            fully_shard(layer, mesh=mesh, **policy)
        fully_shard(self.model, mesh=mesh, **policy)
        held = sum(part.to_local().numel() for part in self.model.parameters())
        rank, ranks = self.global_rank, self.trainer.world_size
        print(f"FSDP2 on {self.device.type}: rank {rank} of {ranks} holds {held:,} of {weights:,} weights", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=self.options.lr)

    def on_fit_start(self) -> None:
        """Continues from the newest checkpoint."""
        self.checkpoints = Checkpointer(self.options.checkpoint_dir, keep=2)
        self.state = {"model": self.model, "optimizer": self.optimizers().optimizer}
        self.first = self.checkpoints.load(self.state)
        if self.first:
            self.print(f"continues after step {self.first}", flush=True)
        self.since, self.at = self.first, time.monotonic()

    def train_dataloader(self) -> range:
        return range(self.first + 1, self.options.steps + 1)

    def training_step(self, step: int, _: int) -> torch.Tensor:
        ids = self.tokens.batch(step, self.global_rank, self.options.batch, self.options.context).to(self.device)
        return self.model(input_ids=ids, labels=ids).loss

    def on_train_batch_end(self, outputs: dict[str, torch.Tensor], step: int, _: int) -> None:
        """Logs, reports and saves."""
        options = self.options
        last = step == options.steps
        if last or step % options.log_every == 0 or step == self.first + 1:
            loss, now = outputs["loss"].item(), time.monotonic()
            tokens_per_step = self.trainer.world_size * options.batch * options.context
            rate = (step - self.since) * tokens_per_step / (now - self.at)
            report(step=step, loss=loss, tokens=step * tokens_per_step)
            self.print(f"step {step} loss {loss:.3f} {rate:,.0f} tokens/s", flush=True)
            self.since, self.at = step, now
        warned = self.checkpoints.warned()
        if warned or last or step % options.checkpoint_every == 0:
            self.checkpoints.save(step, self.state, background=True)
        self.trainer.should_stop = self.trainer.should_stop or warned

    def on_fit_end(self) -> None:
        self.checkpoints.wait()


def main() -> None:
    options = parser("Train a small Llama with Lightning.").parse_args()
    ranks, local = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    trainer = lightning.Trainer(
        strategy=ModelParallelStrategy(data_parallel_size=ranks, tensor_parallel_size=1),
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=local,
        num_nodes=ranks // local,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Training(options))


if __name__ == "__main__":
    main()
