"""Returns programs of node/ as text that is sent to machines, so that nothing must be installed there first."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from headway.paths import node_dir

_PACKAGE_DIR = Path(__file__).parents[1]  # the folder headway
# A package is sent as the texts of its modules; this program imports them from those texts. It must run on plain Python
# 3.9 and avoid slow imports.
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
    """Returns the text of node/programs/NAME.py or, for a package, a program that starts node/NAME/__main__.py. Run as a
    program, it calls `main()`."""
    file = node_dir() / "programs" / f"{name}.py"
    if file.is_file():
        return file.read_text()
    texts = {}
    for path in sorted((node_dir() / name).glob("*.py")):
        texts[name if path.stem == "__init__" else f"{name}.{path.stem}"] = path.read_text()
    return _PACKAGE.format(texts=texts, packages=[name], package=name, main="__main__")


@cache
def with_modules(names: tuple[str, ...]) -> str:
    """Returns the text of a program made of Headway's own modules, which may import only each other and the standard
    library. It calls `main()` of the last module."""
    texts = {name: (_PACKAGE_DIR.parent / f"{name.replace('.', '/')}.py").read_text() for name in names}
    packages = sorted({name.rpartition(".")[0] for name in names})
    package, _, main = names[-1].rpartition(".")
    return _PACKAGE.format(
        texts={**dict.fromkeys(packages, ""), **texts}, packages=packages, package=package, main=main
    )
