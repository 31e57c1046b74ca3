"""Parameters and operations of shapes are those that papers and model cards name."""

from __future__ import annotations

import pytest

from headway.sizing.models.usual_shapes import KNOWN_SHAPES, find_known_shape, usual_shape


@pytest.mark.parametrize(
    ("name", "billions", "active_billions"),
    [("gpt3-175b", 174.6, 174.6), ("llama-2-7b", 6.74, 6.61), ("llama-3-8b", 8.03, 7.5), ("llama-3-70b", 70.6, 69.5),
     ("llama-3-405b", 405.9, 403.7), ("mixtral-8x7b", 46.7, 12.8), ("mixtral-8x22b", 140.6, 39.0), ("qwen2.5-72b", 72.7, 71.5),
     ("qwen3-235b-a22b", 235.1, 21.6)],
)  # fmt: skip
def test_parameters_of_known_models(name: str, billions: float, active_billions: float) -> None:
    shape = KNOWN_SHAPES[name]
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.005)
    assert shape.active_parameters / 1e9 == pytest.approx(active_billions, rel=0.01)


@pytest.mark.parametrize(
    ("text", "name"),
    [("meta-llama/Llama-3-8B-Instruct", "llama-3-8b"), ("llama3.1-405b", "llama-3-405b"), ("Llama-3.1-70B", "llama-3-70b"),
     ("Mixtral 8x7B", "mixtral-8x7b"), ("llama2_13b", "llama-2-13b")],
)  # fmt: skip
def test_known_models_by_usual_names(text: str, name: str) -> None:
    assert find_known_shape(text) == KNOWN_SHAPES[name]


def test_other_names_are_not_known_models() -> None:
    assert find_known_shape("mpt-7b") is None
    assert find_known_shape("") is None


@pytest.mark.parametrize("parameters", [50e6, 125e6, 1e9, 1.3e9, 2e9, 7e9, 13e9, 34e9, 52e9, 70e9, 180e9, 530e9, 1e12])
def test_usual_shape_has_the_number_of_parameters(parameters: float) -> None:
    shape = usual_shape(parameters)
    assert shape is not None
    assert shape.parameters == pytest.approx(parameters, rel=0.01)
    assert 1.5 <= shape.ffn_width / shape.width <= 5.5


@pytest.mark.parametrize("parameters", [0, 1e6, 1e14])
def test_no_usual_shape_for_impossible_sizes(parameters: float) -> None:
    assert usual_shape(parameters) is None


def test_flops_per_token_are_those_of_palm() -> None:
    shape = KNOWN_SHAPES["gpt3-175b"]
    assert shape.flops_per_token(2048) == 6 * shape.active_parameters + 12 * 96 * 12288 * 2048
