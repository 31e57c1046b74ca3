"""Turns its part of a corpus into vectors: one JSON line a sentence, in a file named after the part.

The vectors are hashed letter triples: no model to download, and two sentences that share words do lie close together.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
from pathlib import Path

SIZE = 64


def vector(sentence: str) -> list[float]:
    """A unit vector of SIZE numbers; all zero for a text shorter than three letters."""
    counts = [0.0] * SIZE
    text = " ".join(sentence.lower().split())
    for start in range(len(text) - 2):
        digest = hashlib.blake2b(text[start : start + 3].encode(), digest_size=2).digest()
        counts[digest[0] % SIZE] += 1.0 if digest[1] % 2 else -1.0
    length = math.sqrt(sum(count * count for count in counts))
    return [round(count / length, 5) for count in counts] if length else counts


def sentences(corpus: Path) -> list[str]:
    """Every sentence of the *.txt files in a folder (or of one file), in a fixed order."""
    files = sorted(corpus.glob("*.txt")) if corpus.is_dir() else [corpus]
    text = " ".join(file.read_text(encoding="utf-8") for file in files)
    return [sentence.strip() for sentence in text.replace("\n", " ").split(".") if sentence.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description="Embed one part of a corpus.")
    parser.add_argument("--part", type=int, required=True)
    parser.add_argument("--parts", type=int, required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--into", type=Path, required=True)
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    final = options.into / f"part-{options.part:04d}.jsonl"
    beside = final.with_name(f".{final.name}.{os.getpid()}")
    mine = sentences(options.corpus)[options.part :: options.parts]
    lines = (json.dumps({"text": text, "vector": vector(text)}) + "\n" for text in mine)
    beside.write_text("".join(lines), encoding="utf-8")
    beside.replace(final)  # a part that is there is whole
    print(f"{len(mine)} sentences in {final}")


if __name__ == "__main__":
    main()
