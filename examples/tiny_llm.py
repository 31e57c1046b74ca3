"""A small Llama with its tokenizer and its text, made on the spot for the examples: nothing is downloaded.

For a model of your own replace `build_model` and `build_tokenizer` by `from_pretrained(FOLDER)` of
AutoModelForCausalLM and AutoTokenizer, and `Tokens` by your data.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SEED = 20
DATA = Path(__file__).parent / "data"


def parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser with the flags that all train_*.py have."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--steps", type=int, default=50)
    found.add_argument("--data", type=Path, default=DATA, help="folder with *.txt")
    found.add_argument("--checkpoint-dir", type=Path, default=None, help="default: $HEADWAY_CHECKPOINT_DIR")
    found.add_argument("--checkpoint-every", type=int, default=25, metavar="STEPS")
    found.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    found.add_argument("--batch", type=int, default=4, help="sequences per rank and step")
    found.add_argument("--context", type=int, default=64, help="tokens per sequence")
    found.add_argument("--width", type=int, default=64)
    found.add_argument("--layers", type=int, default=4)
    found.add_argument("--heads", type=int, default=4)
    found.add_argument("--lr", type=float, default=3e-3)
    return found


def read_text(folder: Path) -> str:
    """Returns the text of all *.txt files of a folder."""
    files = sorted(folder.glob("*.txt"))
    if not files:
        sys.exit(f"no *.txt in {folder}; give the folder with --data")
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def build_tokenizer(folder: Path = DATA, size: int = 512) -> PreTrainedTokenizerFast:
    """Returns a byte-level BPE tokenizer of `size` symbols, learned from the folder's text."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "<eos>"]
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(read_text(folder).splitlines(), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>", eos_token="<eos>")


def build_model(
    tokenizer: PreTrainedTokenizerFast, *, width: int = 64, layers: int = 4, heads: int = 4, context: int = 128
) -> LlamaForCausalLM:
    """Returns a Llama with random weights, the same on every rank."""
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=context,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        use_cache=False,
    )
    return AutoModelForCausalLM.from_config(config)


class Tokens:
    """The text as token ids. The batch of a step follows from step and rank alone, so a training that continues from a
    checkpoint sees the same data as one that was never stopped."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
        self._ids = torch.tensor(tokenizer(read_text(folder))["input_ids"])

    def batch(self, step: int, rank: int, size: int, context: int) -> torch.Tensor:
        """Returns `size` x `context` token ids. A Llama shifts them itself: they are its `input_ids` and its `labels`."""
        draw = torch.Generator().manual_seed((SEED * 1_000_003 + step) * 1_009 + rank)
        starts = torch.randint(len(self._ids) - context, (size,), generator=draw)
        return torch.stack([self._ids[start : start + context] for start in starts.tolist()])
