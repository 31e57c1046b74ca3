"""A uv.lock that was made from other requirements than the pyproject.toml next to it is found, others are not."""

from __future__ import annotations

import pytest

from headway.environments.uv_lock import lock_difference

LOCK = """
version = 1
[[package]]
name = "our-models"
version = "0.1"
source = { virtual = "." }
dependencies = [{ name = "torch" }]
[package.metadata]
requires-dist = [
    { name = "torch", specifier = ">=2" },
    { name = "ruamel-yaml", marker = "extra == 'files'" },
]
[[package]]
name = "torch"
version = "2.6"
source = { registry = "https://pypi.org/simple" }
"""
PROJECT = """
[project]
name = "Our_Models"
dependencies = ["torch >= 2 ; python_version > '3'"{more}]
optional-dependencies = {{files = ["ruamel.yaml[jinja2]"], all = ["our-models[files]"]}}
"""


@pytest.mark.parametrize(
    ("lock", "project", "difference"),
    [
        (LOCK, PROJECT.format(more=""), ""),
        (LOCK, PROJECT.format(more=", 'numpy', 'Extra_One>1'"), "only pyproject.toml has extra-one, numpy"),
        (LOCK, PROJECT.format(more="").replace("torch", "jax"), "only pyproject.toml has jax; only uv.lock has torch"),
        (LOCK, '[project]\nname = "our-models"\ndynamic = ["version", "dependencies"]', ""),
        (LOCK, '[project]\nname = "another"\ndependencies = ["numpy"]', ""),
        (LOCK, "[tool.uv]", ""),
        (LOCK, "[project]\nname = 3", ""),
        ("[package", PROJECT.format(more=", 'numpy'"), ""),
        ("package = [1]", PROJECT.format(more=", 'numpy'"), ""),
    ],
)
def test_lock_is_compared_with_its_project(lock: str, project: str, difference: str) -> None:
    assert lock_difference(lock, project) == difference
