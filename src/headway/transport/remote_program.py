"""Programs of node/ as the text that is sent to machines: nothing has to be installed there before."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from headway.paths import node_dir

_PACKAGE_DIR = Path(__file__).parents[1]  # the folder headway
# A package travels as its modules' texts; this finds them there. Plain Python 3.9, and no import that takes time.
_PACKAGE = """\
import sys
from importlib.machinery import ModuleSpec

class Sent:
    texts = {texts!r}

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=name in {packages!r}) if name in self.texts else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        exec(compile(self.texts[name], name, "exec"), module.__dict__)

sys.meta_path.insert(0, Sent())
if __name__ == "__main__":
    from {package}.{main} import main

    sys.exit(main())
"""


@cache
def program_source(name: str) -> str:
    """The text of node/NAME.py or, of a package, one that starts node/NAME/__main__.py. As a program it calls `main()`."""
    file = node_dir() / f"{name}.py"
    if file.is_file():
        return file.read_text()
    texts = {}
    for path in sorted((node_dir() / name).glob("*.py")):
        texts[name if path.stem == "__init__" else f"{name}.{path.stem}"] = path.read_text()
    return _PACKAGE.format(texts=texts, packages=[name], package=name, main="__main__")


@cache
def with_modules(names: tuple[str, ...]) -> str:
    """The text of a program made of modules of Headway's own, which import nothing but each other and the standard library. It
    calls the last one's `main()`."""
    texts = {name: (_PACKAGE_DIR.parent / f"{name.replace('.', '/')}.py").read_text() for name in names}
    packages = sorted({name.rpartition(".")[0] for name in names})
    package, _, main = names[-1].rpartition(".")
    return _PACKAGE.format(
        texts={**dict.fromkeys(packages, ""), **texts}, packages=packages, package=package, main=main
    )
