"""Rules of security that hold for the whole source: how SQL, templates, hashes, random values and HTTP clients are used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.source_trees import SOURCE, imports, modules_below, nodes

# Values that need not be secret: which of several machines is asked or taken, how long a client waits, and the parameters
# of trials
_PLAIN_RANDOM = {"sdk/connection.py", "jobs/sweeps/search.py"}
_STATIC = SOURCE / "web" / "static"


def modules() -> dict[str, Path]:
    """The files of the source, by their path below SOURCE."""
    return {str(path.relative_to(SOURCE)): path for path in modules_below(SOURCE)}


def calls(path: Path, *names: str) -> Iterator[ast.Call]:
    """Calls of functions or methods with these names."""
    for node in nodes(path, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in names:
            yield node


def is_fixed(node: ast.expr) -> bool:
    """Whether the expression is text of the source: constants, names of constants in capitals, and a choice or join of them."""
    match node:
        case ast.Constant() | ast.Name(id=_):
            return isinstance(node, ast.Constant) or node.id.isupper()
        case ast.JoinedStr(values=values):
            return all(is_fixed(value) for value in values)
        case ast.FormattedValue(value=value):
            return is_fixed(value)
        case ast.IfExp(body=body, orelse=other):
            return is_fixed(body) and is_fixed(other)
        case ast.Subscript(value=value):
            return is_fixed(value)
    return False


def test_sql_text_is_never_put_together_from_values() -> None:
    found = {
        f"{path}:{call.lineno}": ast.unparse(call)
        for path, file in modules().items()
        if path.startswith("store/")
        for call in calls(file, "text", "exec_driver_sql")
        if not is_fixed(call.args[0])
    }
    assert list(found.values()) == ["text(query)"], "of store.db.server_locks, whose callers give constants"


def test_templates_and_patterns_of_text_are_never_input() -> None:
    """Jinja renders files of the package only. Templates of `str.format` are constants, or come from tables of the package."""
    from_tables = {
        "cluster/monitoring/metric_queries.py", "domain/operation_kinds.py", "render/system/login/sshd.py",
        "services/storage/version_removal.py", "slurm/reader.py", "store/clusters/versions.py",
    }  # fmt: skip
    found = {}
    for path, file in modules().items():
        for call in calls(file, "from_string", "Template", "format_map"):
            found[f"{path}:{call.lineno}"] = ast.unparse(call)
        for call in calls(file, "format"):
            template = call.func.value if isinstance(call.func, ast.Attribute) else None
            inherited = isinstance(template, ast.Call) and getattr(template.func, "id", "") == "super"
            if template is not None and not (is_fixed(template) or inherited or path in from_tables):
                found[f"{path}:{call.lineno}"] = ast.unparse(call)
    assert found == {}


def test_nothing_parses_xml() -> None:
    parsers = {"xml", "lxml", "defusedxml", "xmltodict"}
    assert {
        path for path, file in modules().items() if {name.partition(".")[0] for name in imports(file)} & parsers
    } == set()


def test_only_approved_hash_functions_are_used() -> None:
    """MD5 compares a download with S3's ETag, next to a checksum, and protects nothing."""
    approved = {"sha256", "sha384", "sha512", "SHA256", "SHA384", "SHA512"}
    used = {
        (node.attr, path)
        for path, file in modules().items()
        for node in nodes(file, ast.Attribute)
        if getattr(node.value, "id", "") in ("hashlib", "hashes")
    }
    assert {entry for entry in used if entry[0] not in approved} == {("md5", "datasets/s3_source.py")}


def test_random_values_come_from_the_secrets_module() -> None:
    assert {path for path, file in modules().items() if "random" in imports(file)} <= _PLAIN_RANDOM


def test_no_http_client_follows_redirects() -> None:
    clients = {"requests", "urllib.request", "aiohttp", "urllib3"}  # which follow them by default
    assert {path for path, file in modules().items() if imports(file) & clients} == set()
    assert {
        f"{path}:{node.lineno}"
        for path, file in modules().items()
        for node in nodes(file, ast.keyword)
        if node.arg == "follow_redirects"
    } == set()


def test_rules_detect_what_they_forbid(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        'text(f"SELECT {name}")\nname.format(1)\nimport xml.sax, random\nhttpx.get(url, follow_redirects=True)'
    )
    assert not is_fixed(next(calls(bad, "text")).args[0])
    assert not is_fixed(next(calls(bad, "format")).func.value)  # type: ignore[attr-defined]
    assert imports(bad) == {"xml.sax", "random"}
    assert [keyword.arg for keyword in nodes(bad, ast.keyword)] == ["follow_redirects"]
    assert is_fixed(ast.parse('f"SELECT {WRITER}"', mode="eval").body)
