"""Programs of node/ as the text that is sent to machines: nothing has to be installed there before."""

from __future__ import annotations

from functools import cache

from headway.paths import node_dir

# A package travels as its modules' texts; this finds them there. Plain Python 3.9, and no import that takes time.
_PACKAGE = """\
import sys
from importlib.machinery import ModuleSpec

class Sent:
    texts = {texts!r}

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=name == {package!r}) if name in self.texts else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        exec(compile(self.texts[name], name, "exec"), module.__dict__)

sys.meta_path.insert(0, Sent())
if __name__ == "__main__":
    from {package}.__main__ import main

    sys.exit(main())
"""


@cache
def program(name: str) -> str:
    """The text of node/NAME.py or, of a package, one that starts node/NAME/__main__.py. As a program it calls `main()`."""
    file = node_dir() / f"{name}.py"
    if file.is_file():
        return file.read_text()
    texts = {}
    for path in sorted((node_dir() / name).glob("*.py")):
        texts[name if path.stem == "__init__" else f"{name}.{path.stem}"] = path.read_text()
    return _PACKAGE.format(texts=texts, package=name)
