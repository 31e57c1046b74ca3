"""The PTX kernels of the node tests do what their descriptions say."""

from __future__ import annotations

import re
import struct

import pytest

from agent.node_tests import kernels
from tests.support.machines.ptx import run_kernel

WORDS = 700  # more than the threads of the launch: each takes several words
GRID = {"blocks": 2, "threads": 64}
PATTERN, FACTOR = 0x5BD1E995, 0x9E3779B1
RESULT = 4 * 1024


def filled(factor: int) -> bytearray:
    memory = bytearray(RESULT + 24)
    run_kernel(
        kernels.MEMORY, "fill", memory, {"data": 0, "words": WORDS, "pattern": PATTERN, "factor": factor}, **GRID
    )
    return memory


def found(memory: bytearray, factor: int) -> tuple[int, ...]:
    memory[RESULT:] = struct.pack("<3Q", 0, 2**64 - 1, 0)
    run_kernel(
        kernels.MEMORY,
        "check",
        memory,
        {"data": 0, "words": WORDS, "pattern": PATTERN, "factor": factor, "result": RESULT},
        **GRID,
    )
    return struct.unpack("<3Q", memory[RESULT:])


@pytest.mark.parametrize("factor", [0, FACTOR])
def test_fill_writes_every_word_and_nothing_after_the_last(factor: int) -> None:
    memory = filled(factor)
    words = struct.unpack(f"<{WORDS}I", memory[: 4 * WORDS])
    assert words == tuple((number * factor & 0xFFFFFFFF) ^ PATTERN for number in range(WORDS))
    assert not any(memory[4 * WORDS :])


def test_check_counts_wrong_words_and_names_the_first_and_the_bits() -> None:
    memory = filled(FACTOR)
    assert found(memory, FACTOR) == (0, 2**64 - 1, 0)
    memory[4 * 650] ^= 0x01
    memory[4 * 130 + 2] ^= 0x80
    assert found(memory, FACTOR) == (2, 130, 0x00800001)


def digests(rounds: int, seed: int = 7) -> tuple[list[tuple[int, ...]], list[int]]:
    memory = bytearray(4 * 128 + 4 * 4)
    arguments = {"digests": 0, "multiprocessors": 512, "rounds": rounds, "seed": seed}
    run_kernel(kernels.BURN_FMA, "burn_fma", memory, arguments, blocks=2, threads=64)
    values = struct.unpack("<128I", memory[:512])
    return [values[at : at + 32] for at in range(0, 128, 32)], list(struct.unpack("<4I", memory[512:]))


def test_all_warps_of_a_burn_compute_the_same_and_name_their_multiprocessor() -> None:
    rows, multiprocessors = digests(5)
    assert len(set(rows)) == 1
    assert len(set(rows[0])) == 32  # each lane computes something else
    assert multiprocessors == [0, 0, 1, 1]
    assert digests(6)[0] != rows
    assert digests(5, seed=8)[0] != rows


def test_tensor_burn_has_a_product_for_each_set_of_registers() -> None:
    products = re.findall(r"mma\.sync\S+ \{(%d\d+), .*?\}, \{(%a\d+), ", kernels.BURN_TENSOR)
    assert products == [(f"%d{4 * one}", f"%a{4 * one}") for one in range(8)]
    assert kernels.BURN_TENSOR.count("xor.b32 %r22, %r22") == 32  # every accumulator is in the digest
