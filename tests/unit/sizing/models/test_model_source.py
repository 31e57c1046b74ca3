"""Shapes of sizes, names, config.json and figures; what is impossible is refused with the way out."""

from __future__ import annotations

from typing import Any

import pytest

from headway.errors import InvalidSpec, Refused
from headway.sizing.models.model_source import parse_count, parse_tokens, shape_of_config, shape_of_name, with_figures
from headway.sizing.models.usual_shapes import KNOWN_SHAPES

LLAMA: dict[str, Any] = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "vocab_size": 128256, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "count"),
    [("70b", 70e9), ("1.4T", 1.4e12), ("300_000", 3e5), ("2e12", 2e12), ("350M", 350e6), ("x", None), ("", None), ("-1b", None),
     ("1e400", None), ("nan", None)],
)  # fmt: skip
def test_counts(text: str, count: float | None) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["300", "many", "0", "1e17"])
def test_tokens_that_cannot_be_meant(text: str) -> None:
    with pytest.raises(Refused):
        parse_tokens(text)


def test_a_forgotten_unit_is_named() -> None:
    with pytest.raises(Refused, match="for billions write 300B"):
        parse_tokens("300")
    with pytest.raises(Refused, match="for billions write 70b, for millions 70m"):
        shape_of_name("70k")


@pytest.mark.parametrize("text", ["0b", "banana", "8x3b", "5t", "70"])
def test_names_that_are_no_models(text: str) -> None:
    with pytest.raises(Refused):
        shape_of_name(text)


def test_names_and_sizes() -> None:
    assert shape_of_name("8x7b") == KNOWN_SHAPES["mixtral-8x7b"]
    assert shape_of_name("70b").parameters == pytest.approx(70e9, rel=0.01)


def test_config_of_llama() -> None:
    assert shape_of_config(LLAMA, "llama-3-8b") == KNOWN_SHAPES["llama-3-8b"]
    assert shape_of_config({"text_config": LLAMA, "vision_config": {}}, "llama-3-8b") == KNOWN_SHAPES["llama-3-8b"]


def test_config_of_gpt2_and_of_a_mixture() -> None:
    gpt2 = {"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "activation_function": "gelu_new"}
    assert shape_of_config(gpt2, "gpt2") == KNOWN_SHAPES["gpt2"]
    mixtral = {**LLAMA, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
    assert shape_of_config(mixtral, "mixtral-8x7b") == KNOWN_SHAPES["mixtral-8x7b"]


def test_all_faults_of_a_config_at_once() -> None:
    with pytest.raises(InvalidSpec) as raised:
        shape_of_config({"hidden_size": "wide", "num_hidden_layers": -1, "vocab_size": True}, "config.json")
    assert sorted(fault.path for fault in raised.value.faults) == [
        "hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [{"num_attention_heads": 33}, {"num_key_value_heads": 5}, {"num_local_experts": 4, "num_experts_per_tok": 8}],
)
def test_contradictions_of_a_config(change: dict[str, int]) -> None:
    with pytest.raises(InvalidSpec):
        shape_of_config({**LLAMA, **change}, "config.json")


def test_impossible_sizes_of_a_config() -> None:
    with pytest.raises(Refused, match="parameters"):
        shape_of_config({**LLAMA, "num_hidden_layers": 10**7, "hidden_size": 2**20}, "config.json")


def test_figures_replace_those_of_a_name() -> None:
    changed = with_figures(KNOWN_SHAPES["llama-3-8b"], {"layers": 64})
    assert (changed.layers, changed.width, changed.kv_heads) == (64, 4096, 8)
    assert with_figures(KNOWN_SHAPES["llama-3-8b"], {}) == KNOWN_SHAPES["llama-3-8b"]
