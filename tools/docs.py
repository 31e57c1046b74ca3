"""Makes the documentation: `python tools/docs.py reference` writes docs/reference from the code, `build` makes the
site.

    reference   writes one Markdown page each for commands, cluster.yaml, REST API, metrics, alerts and errors;
                `--check` writes nothing and ends with 1 when a page is outdated
    build       runs MkDocs in strict mode into src/headway/web/static/docs, which the server serves at /docs;
                does nothing when neither docs/ nor mkdocs.yml has changed since the last build

`site_is_current` needs only the standard library, because tools/setup.py calls it before there is a virtual
environment. The site works offline and under the server's Content-Security-Policy: no font, script or style comes from
another host, and scripts that the theme writes into a page become files."""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SITE = ROOT / "src" / "headway" / "web" / "static" / "docs"
STAMP = SITE / ".sha256"
BUILD_TIMEOUT_S = 300


class DocsError(Exception):
    """The documentation could not be built; the message says why."""


def source_digest() -> str:
    """Returns a hash of everything that the site is made from."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in [ROOT / "mkdocs.yml", *sorted(one for one in DOCS.rglob("*") if one.is_file())]:
        digest.update(f"\0{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def site_is_current() -> bool:
    """Returns whether the built site belongs to the present docs."""
    return STAMP.is_file() and STAMP.read_text().strip() == source_digest()


def build_site(target: Path = SITE) -> None:
    """Runs MkDocs in strict mode, adapts the result to the server's policy, and moves it to `target`. Raises
    DocsError."""
    draft = target.with_name(f".{target.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(draft)]
    ran = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    if ran.returncode:
        raise DocsError((ran.stderr or ran.stdout).strip())
    move_scripts_to_files(draft)
    remove_unused(draft)
    (draft / STAMP.name).write_text(source_digest() + "\n")
    shutil.rmtree(target, ignore_errors=True)
    draft.replace(target)


def move_scripts_to_files(site: Path) -> None:
    """Replaces scripts inside pages by files, because the server's policy allows no inline script."""
    folder = site / "assets" / "inline"
    folder.mkdir(parents=True)
    for path in site.rglob("*.html"):
        depth = "../" * (len(path.relative_to(site).parts) - 1)

        def to_file(found: re.Match[str], depth: str = depth) -> str:
            name = f"{hashlib.sha256(found[1].encode()).hexdigest()[:12]}.js"
            (folder / name).write_text(found[1], encoding="utf-8")
            # The theme's 404 page is served at any depth, so it names its files from the root.
            return f'<script src="{depth or "./"}assets/inline/{name}"></script>'

        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r"<script>(.+?)</script>", to_file, text, flags=re.DOTALL), encoding="utf-8")


def remove_unused(site: Path) -> None:
    """Removes what an offline site in English does not need: source maps, word stemmers, the sitemap."""
    for pattern in ("**/*.map", "sitemap.xml*", "404.html"):
        for path in site.glob(pattern):
            path.unlink()
    shutil.rmtree(site / "assets" / "javascripts" / "lunr", ignore_errors=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the documentation.")
    parser.add_argument("what", choices=("reference", "build"))
    parser.add_argument("--check", action="store_true", help="reference: only compare")
    options = parser.parse_args(argv)
    sys.path.insert(0, str(ROOT / "src"))
    if options.what == "reference":
        import docs_reference as reference
    if options.what == "reference" and options.check:
        wrong = reference.outdated()
        for name in wrong:
            print(f"docs: docs/reference/{name} is outdated; run `make docs`", file=sys.stderr)
        return 1 if wrong else 0
    if options.what == "reference":
        reference.write_reference()
        return 0
    if site_is_current():
        return 0
    try:
        build_site()
    except DocsError as error:
        print(f"docs: {error}", file=sys.stderr)
        return 1
    size_kib = sum(path.stat().st_size for path in SITE.rglob("*") if path.is_file()) / 1024
    print(f"docs: {sum(1 for _ in SITE.rglob('*.html'))} pages, {size_kib:.0f} KiB, in {SITE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
