"""Shapes of known models, and usual shapes for a number of parameters."""

from __future__ import annotations

import re
from dataclasses import replace

from headway.sizing.models.model_shape import ModelShape


def _dense(name: str, layers: int, width: int, heads: int, kv_heads: int, ffn: int, vocabulary: int) -> ModelShape:
    return ModelShape(name, layers, width, heads, kv_heads, width // heads, ffn, vocabulary)


# From the config.json that each model's publisher ships.
_KNOWN = (
    ModelShape("gpt2", 12, 768, 12, 12, 64, 3072, 50257, gated=False, tied_embeddings=True),
    ModelShape("gpt3-175b", 96, 12288, 96, 96, 128, 49152, 51200, gated=False, tied_embeddings=True),
    _dense("llama-2-7b", 32, 4096, 32, 32, 11008, 32000),
    _dense("llama-2-13b", 40, 5120, 40, 40, 13824, 32000),
    _dense("llama-2-70b", 80, 8192, 64, 8, 28672, 32000),
    replace(_dense("llama-3.2-1b", 16, 2048, 32, 8, 8192, 128256), tied_embeddings=True),
    replace(_dense("llama-3.2-3b", 28, 3072, 24, 8, 8192, 128256), tied_embeddings=True),
    _dense("llama-3-8b", 32, 4096, 32, 8, 14336, 128256),
    _dense("llama-3-70b", 80, 8192, 64, 8, 28672, 128256),
    _dense("llama-3-405b", 126, 16384, 128, 8, 53248, 128256),
    _dense("mistral-7b", 32, 4096, 32, 8, 14336, 32000),
    _dense("qwen2.5-7b", 28, 3584, 28, 4, 18944, 152064),
    _dense("qwen2.5-32b", 64, 5120, 40, 8, 27648, 152064),
    _dense("qwen2.5-72b", 80, 8192, 64, 8, 29568, 152064),
    replace(_dense("mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000), experts=8, experts_of_token=2),
    replace(_dense("mixtral-8x22b", 56, 6144, 48, 8, 16384, 32768), experts=8, experts_of_token=2),
    ModelShape("qwen3-30b-a3b", 48, 2048, 32, 4, 128, 768, 151936, experts=128, experts_of_token=8),
    ModelShape("qwen3-235b-a22b", 94, 4096, 64, 4, 128, 1536, 151936, experts=128, experts_of_token=8),
    # Its latent attention is described by an equal number of parameters, its first dense layers as mixtures.
    ModelShape(
        "deepseek-v3", 61, 7168, 128, 128, 52, 2048, 129280, experts=256, experts_of_token=8, shared_experts=1, latent_width=576
    ),
)  # fmt: skip

KNOWN_SHAPES: dict[str, ModelShape] = {shape.name: shape for shape in _KNOWN}

# Parameters -> layers, width, heads, kv heads: shapes of dense models that were published at these sizes. The feed-forward part
# is 3.5 times as wide as the model (Llama 3), below 3 billion parameters 4 times.
_USUAL = (
    (60e6, 8, 512, 8, 8), (125e6, 12, 768, 12, 12), (350e6, 24, 1024, 16, 16), (760e6, 24, 1536, 12, 12),
    (1.2e9, 16, 2048, 32, 8), (3.2e9, 28, 3072, 24, 8), (8e9, 32, 4096, 32, 8), (14e9, 40, 5120, 40, 8),
    (32e9, 64, 5120, 40, 8), (70e9, 80, 8192, 64, 8), (120e9, 88, 10240, 80, 8), (180e9, 96, 12288, 96, 8),
    (405e9, 126, 16384, 128, 8), (1000e9, 144, 24576, 192, 16),
)  # fmt: skip
_VOCABULARY = 128256
_LEAST, _MOST = 1e7, 2e12
_SMALL, _SMALL_VOCABULARY = 800e6, 50304


def find_known_shape(name: str) -> ModelShape | None:
    """Returns the shape of a model that a name contains ("meta-llama/Llama-3-8B-Instruct"), the longest match; or None."""
    word = re.sub(r"[ _/]+", "-", name.lower())
    word = re.sub(r"llama-?([23])(\.1)?(?=-|$)", r"llama-\1", word)
    matches = [shape for key, shape in KNOWN_SHAPES.items() if re.search(rf"(^|-){re.escape(key)}($|-)", word)]
    return max(matches, key=lambda shape: len(shape.name), default=None)


def usual_shape(parameters: float) -> ModelShape | None:
    """Returns a dense shape with about that many parameters: the nearest usual one, its feed-forward width adjusted so that
    the number of parameters is right within the step of 64 elements; None below 10 million and above 2 trillion."""
    if not _LEAST <= parameters <= _MOST:
        return None
    _, layers, width, heads, kv_heads = min(_USUAL, key=lambda row: abs(row[0] - parameters) / max(row[0], parameters))
    tied = parameters < 2.5e9
    shape = ModelShape(
        _size_text(parameters),
        layers,
        width,
        heads,
        kv_heads,
        width // heads,
        4 * width,
        _VOCABULARY,
        tied_embeddings=tied,
    )
    if parameters < _SMALL:  # a vocabulary of 128 thousand words would be most of a small model
        shape = replace(shape, vocabulary=_SMALL_VOCABULARY, gated=False)
    found = with_parameters(shape, parameters)
    return found if abs(found.parameters / parameters - 1) < 0.2 else None


def with_parameters(shape: ModelShape, parameters: float) -> ModelShape:
    """Returns the shape with the feed-forward width that gives it about `parameters` parameters, at least half and at most
    eight times the width of a gated one; beyond that the number of layers gives way."""
    for layers in sorted(
        range(max(1, shape.layers // 4), shape.layers * 2 + 1), key=lambda each: abs(each - shape.layers)
    ):
        tried = replace(shape, layers=layers)
        copies = max(1, tried.experts + tried.shared_experts)
        matrices = (3 if tried.gated else 2) * copies * tried.width
        others = tried.attention_parameters + tried.width * (tried.experts + 2)
        rest = tried.embedding_parameters + tried.width + layers * others
        ffn = (parameters - rest) / layers / matrices
        if tried.experts or 1.5 * tried.width <= ffn <= 5.5 * tried.width:
            return replace(tried, ffn_width=max(64, round(ffn / 64) * 64))
    return shape


def _size_text(parameters: float) -> str:
    return f"{parameters / 1e9:.3g}b" if parameters >= 1e9 else f"{parameters / 1e6:.3g}m"
