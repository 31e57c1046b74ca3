"""Runs PTX of the node tests a thread at a time, to check what a kernel means without a GPU. Knows only the instructions
that those kernels use (without mma), and refuses others."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

_MASK = {32: 0xFFFFFFFF, 64: 0xFFFFFFFFFFFFFFFF}
MOST_STEPS = 1_000_000


@dataclass
class Thread:
    """Position of one thread, as the special registers tell it."""

    block: int
    thread: int
    blocks: int
    threads: int
    registers: dict[str, int] = field(default_factory=dict)


def run_kernel(
    text: str, name: str, memory: bytearray, arguments: dict[str, int], *, blocks: int, threads: int
) -> None:
    """Runs all threads of a kernel, one after another, on `memory`, whose addresses start at 0."""
    body = re.search(rf"\.entry {name}\(.*?\)\s*\{{(.*?)\n\}}", text, re.DOTALL)
    assert body is not None, f"no kernel {name}"
    lines = [line.strip().rstrip(";") for line in body.group(1).splitlines()]
    code = [line for line in lines if line and not line.startswith(".reg")]
    labels = {line[:-1]: number for number, line in enumerate(code) if line.endswith(":")}
    for block in range(blocks):
        for thread in range(threads):
            _run_thread(code, labels, memory, arguments, Thread(block, thread, blocks, threads))


def _run_thread(
    code: list[str], labels: dict[str, int], memory: bytearray, arguments: dict[str, int], at: Thread
) -> None:
    line = steps = 0
    while True:
        steps += 1
        assert steps < MOST_STEPS, "the kernel does not end"
        words = code[line]
        line += 1
        if words.endswith(":"):
            continue
        if words.startswith("@"):
            predicate, _, words = words.partition(" ")
            if not at.registers[predicate[1:]]:
                continue
        operation, _, rest = words.partition(" ")
        if operation == "ret":
            return
        if operation == "bra":
            line = labels[rest]
            continue
        _execute(operation, [one.strip() for one in rest.split(",")], memory, arguments, at)


def _execute(operation: str, words: list[str], memory: bytearray, arguments: dict[str, int], at: Thread) -> None:
    target, *sources = words
    kind, size = operation.split("."), int(operation[-2:]) if operation[-2:].isdigit() else 32
    if kind[0] == "ld" and kind[1] == "param":
        at.registers[target] = arguments[sources[0].strip("[]")]
    elif kind[0] == "ld":
        place = _address(sources[0], at)
        at.registers[target] = int.from_bytes(memory[place : place + size // 8], "little")
    elif kind[0] == "st":
        place = _address(target, at)
        memory[place : place + size // 8] = (_value(sources[0], at) & _MASK[size]).to_bytes(size // 8, "little")
    elif kind[0] == "atom":
        place = _address(sources[0], at)
        old = int.from_bytes(memory[place : place + 8], "little")
        other = _value(sources[1], at)
        new = {"add": old + other, "min": min(old, other), "or": old | other}[kind[2]]
        memory[place : place + 8] = (new & _MASK[64]).to_bytes(8, "little")
        at.registers[target] = old
    elif operation == "fma.rn.f32":
        # exact in double precision, then rounded once more: the same but for rare double rounding
        at.registers[target] = _bits(
            _float(_value(sources[0], at)) * _float(_value(sources[1], at)) + _float(_value(sources[2], at))
        )
    else:
        at.registers[target] = _arithmetic(operation, kind[0], size, [_value(source, at) for source in sources])


def _arithmetic(operation: str, name: str, size: int, v: list[int]) -> int:
    if operation in ("mul.wide.u32", "mul.lo.u32"):
        return v[0] * v[1] & _MASK[64 if "wide" in operation else 32]
    if operation == "mad.lo.u32":
        return v[0] * v[1] + v[2] & _MASK[32]
    if name == "setp":
        return int({"ge": v[0] >= v[1], "eq": v[0] == v[1], "ne": v[0] != v[1]}[operation.split(".")[1]])
    plain = {
        "mov": lambda: v[0], "cvta": lambda: v[0], "cvt": lambda: v[0], "add": lambda: v[0] + v[1], "sub": lambda: v[0] - v[1],
        "shl": lambda: v[0] << v[1], "shr": lambda: v[0] >> v[1], "xor": lambda: v[0] ^ v[1], "and": lambda: v[0] & v[1],
        "or": lambda: v[0] | v[1],
    }  # fmt: skip
    assert name in plain, f"unknown instruction {operation}"
    # cvt.TARGET.SOURCE: the result has the size of the first
    return plain[name]() & _MASK[int(operation.split(".")[1][1:]) if name == "cvt" else size]


def _value(word: str, at: Thread) -> int:
    special = {
        "%ctaid.x": at.block,
        "%tid.x": at.thread,
        "%ntid.x": at.threads,
        "%nctaid.x": at.blocks,
        "%smid": at.block,
    }
    if word in special:
        return special[word]
    if word.startswith("%"):
        return at.registers[word]
    return int(word[2:], 16) if word.startswith("0f") else int(word, 0)


def _address(word: str, at: Thread) -> int:
    register, _, offset = word.strip("[]").partition("+")
    return at.registers[register] + int(offset or 0)


def _float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])
