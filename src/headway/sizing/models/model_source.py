"""A model's shape from what a person gives: a name or size, a config.json, or single figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.errors import Fault, InvalidSpec, Refused
from headway.sizing.models.model_shape import ModelShape
from headway.sizing.models.usual_shapes import KNOWN_SHAPES, find_known_shape, usual_shape

_UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_COUNT = re.compile(r"(\d+(?:_\d+)*(?:\.\d+)?(?:e\d{1,2})?) ?([kmbgt]?)", re.IGNORECASE)
_MOST_PARAMETERS = 1e14
_LARGEST = 10**7  # of any figure of a shape

# A figure of a shape -> its names in config.json of Hugging Face models.
_KEYS = {
    "width": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads",),
    "head_width": ("head_dim",),
    "ffn_width": ("intermediate_size", "n_inner", "ffn_hidden_size"),
    "expert_width": ("moe_intermediate_size",),
    "vocabulary": ("vocab_size",),
    "experts": ("num_local_experts", "n_routed_experts", "num_experts"),
    "experts_of_token": ("num_experts_per_tok", "top_k_experts"),
    "shared_experts": ("n_shared_experts",),
}


def parse_count(text: str) -> float | None:
    """Returns the number of "70b", "1.4T", "300_000" or "2e12"; None if it is none."""
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        return None
    return float(match[1].replace("_", "")) * _UNITS.get(match[2].lower(), 1.0)


def parse_tokens(text: str) -> float:
    """Returns a number of tokens. Raises Refused for what is no number, and for numbers without unit that are too small to be
    meant."""
    found = parse_count(text)
    if found is None:
        raise Refused(f"{text!r} is not a number of tokens", hint="write 300B or 1.4T; B is 1e9, T is 1e12")
    if found < 1e5:
        raise Refused(f"{text} tokens are less than one step of a training", hint=f"for billions write {found:g}B")
    if found > 1e16:
        raise Refused(f"{text} tokens are more than exist", hint="T is 1e12 and B is 1e9")
    return found


def shape_of_name(text: str) -> ModelShape:
    """Returns the shape of "llama-3-70b", or a usual one for "70b". Raises Refused for another text."""
    known = find_known_shape(text)
    if known is not None:
        return known
    if re.fullmatch(r"\d+x\d+b", text.lower()):
        known = find_known_shape(f"mixtral-{text}")
        if known is not None:
            return known
        raise Refused(
            f"{text}: the shape of this mixture is not known",
            hint="give its config.json, or --layers, --width, --experts",
        )
    size = parse_count(text)
    hint = "give a size (70b), a config.json, --layers and --width, or a known model: " + ", ".join(KNOWN_SHAPES)
    if size is None:
        raise Refused(f"{text}: not a known model", hint=hint)
    if size < 1e6:
        number = re.split(r"[ a-zA-Z]", text.strip())[0]
        meant = f"for billions write {number}b, for millions {number}m" if size else "give a size such as 70b"
        raise Refused(f"{text}: a model of {size:,.0f} parameters", hint=meant)
    shape = usual_shape(size)
    if shape is None:
        raise Refused(
            f"{text}: no usual shape has so many parameters", hint="10m to 2t; for others give --layers and --width"
        )
    return shape


def shape_of_config(config: Mapping[str, Any], name: str) -> ModelShape:
    """Returns the shape that a config.json describes. Raises InvalidSpec with everything that is missing or impossible."""
    inner = config.get("text_config")
    if isinstance(inner, Mapping) and "hidden_size" not in config:
        config = inner
    faults: list[Fault] = []
    values: dict[str, int] = {}
    for figure, keys in _KEYS.items():
        key = next((key for key in keys if config.get(key) is not None), "")
        if not key:
            continue
        value = config[key]
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
            faults.append(Fault(key, f"{value!r} is not a whole number", f"0 to {_LARGEST:,}"))
        else:
            values[figure] = value
    activation = str(config.get("hidden_act") or config.get("activation_function") or "silu").lower()
    gated = activation in ("silu", "swish", "swiglu", "geglu", "gelu_pytorch_tanh") and "n_embd" not in config
    tied = bool(config.get("tie_word_embeddings", "n_embd" in config))
    faults += [
        Fault(_KEYS[each][0], "is missing") for each in ("width", "layers", "heads", "vocabulary") if not values.get(each)
        and not any(fault.path in _KEYS[each] for fault in faults)
    ]  # fmt: skip
    if faults:
        raise InvalidSpec(faults, name)
    return shape_of_figures(values, name, gated=gated, tied=tied)


def shape_of_figures(values: Mapping[str, int], name: str, *, gated: bool = True, tied: bool = False) -> ModelShape:
    """Returns the shape of single figures, of which width and layers must be there. Raises InvalidSpec for contradictions."""
    width, layers = values["width"], values["layers"]
    head_width = values.get("head_width") or (
        width // values["heads"] if values.get("heads") else 128 if width % 128 == 0 else 64
    )
    heads = values.get("heads") or max(1, width // max(1, head_width))
    kv_heads = values.get("kv_heads") or heads
    experts = values.get("experts", 0)
    experts = 0 if experts == 1 else experts
    of_token = values.get("experts_of_token") or (2 if experts else 0)
    ffn = (
        (values.get("expert_width") if experts else 0)
        or values.get("ffn_width")
        or (-(-8 * width // 3 // 256) * 256 if gated else 4 * width)
    )
    faults = []
    if heads % kv_heads:
        faults.append(Fault("kv_heads", f"{heads} heads are not a multiple of {kv_heads} key-value heads"))
    if not values.get("head_width") and width % heads:
        faults.append(
            Fault("heads", f"a width of {width} is not a multiple of {heads} heads", "give the width of a head")
        )
    if experts and of_token > experts:
        faults.append(Fault("experts_of_token", f"{of_token} experts for each token are more than {experts} experts"))
    if faults:
        raise InvalidSpec(faults, name)
    found = ModelShape(
        name, layers, width, heads, kv_heads, head_width, ffn, values.get("vocabulary") or 128256, gated, experts,
        of_token if experts else 0, values.get("shared_experts", 0) if experts else 0, tied,
    )  # fmt: skip
    if found.parameters > _MOST_PARAMETERS:
        raise Refused(
            f"{name}: {found.parameters:.2g} parameters", hint="layers and width are numbers such as 80 and 8192"
        )
    return found


def with_figures(shape: ModelShape, values: Mapping[str, int]) -> ModelShape:
    """Returns the shape with single figures replaced. Raises InvalidSpec for contradictions."""
    if not values:
        return shape
    old = {each: getattr(shape, each) for each in _KEYS if hasattr(shape, each)}
    if "heads" in values or "width" in values:
        old.pop("head_width")
    changed = shape_of_figures({**old, **values}, shape.name, gated=shape.gated, tied=shape.tied_embeddings)
    return replace(changed, latent_width=shape.latent_width)
