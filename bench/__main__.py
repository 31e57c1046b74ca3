"""Runs a measurement: `python bench faults/recovery --no-stock`. Without a name it lists all of them."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def measurements() -> dict[str, str]:
    """Returns the first sentence of each measurement's description, by its name, such as "faults/recovery"."""
    found = {}
    for path in sorted(HERE.rglob("*.py"), key=lambda path: (path.parent != HERE, path)):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if path.name != "__main__.py" and any(isinstance(part, ast.If) for part in tree.body):  # if __name__ ...
            text = " ".join((ast.get_docstring(tree) or "").split())
            found[path.relative_to(HERE).with_suffix("").as_posix()] = text.partition(". ")[0].rstrip(".")
    return found


def main() -> int:
    known, name = measurements(), sys.argv[1] if len(sys.argv) > 1 else ""
    if name in known:
        path = str(HERE / f"{name}.py")
        sys.argv[:2] = [path]
        runpy.run_path(path, run_name="__main__")
        return 0
    for each, text in known.items():
        print(f"{each:<28} {text}")
    if name:
        print(f"\nno measurement {name!r}: name one of these", file=sys.stderr)
    return 2 if name else 0


if __name__ == "__main__":
    sys.exit(main())
