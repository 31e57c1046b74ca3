"""A signed package repository with stand-ins for NVIDIA's packages, on the network of bare machines. The stand-ins do what a
machine without GPUs can't: their modprobe "loads" a module, their nvidia-smi lists two GPUs."""

from __future__ import annotations

import functools
import hashlib
import http.server
import subprocess
import threading
from pathlib import Path

GPUS = 2
MODPROBE = """\
#!/bin/sh
# Stands for kmod: a machine of this test has no NVIDIA hardware.
for name; do case $name in -*) ;; *) break ;; esac; done
if [ "$1" = -r ]; then
    [ ! -e /run/held ] && rm -rf "/sys/module/$name"
    exit
fi
[ "$name" = nvidia ] || exec /usr/sbin/modprobe "$@"
mkdir -p /sys/module/nvidia
cp /usr/share/stand-in/version /sys/module/nvidia/version
for n in 0 1; do [ -e /dev/nvidia$n ] || mknod /dev/nvidia$n c 195 $n; done
"""
MODINFO = """\
#!/bin/sh
case "$*" in "-F version nvidia") cat /usr/share/stand-in/version 2>/dev/null ;; *) exec /usr/sbin/modinfo "$@" ;; esac
"""
SMI = """\
#!/bin/sh
version=$(cat /sys/module/nvidia/version) || exit 9
case "$*" in
*--query-gpu=index,name*) for n in 0 1; do echo "$n, NVIDIA L4, 23034, 00000000:0$n:00.0, $version"; done ;;
*--query-gpu=index*) printf '0\\n1\\n' ;;
*) exit 9 ;;
esac
"""
UNIT = "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"


class Repository:
    """A flat repository below `folder`, served on `address`."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.files = folder / "files"
        self.files.mkdir(parents=True)
        (folder / "gpg").mkdir(mode=0o700)
        self._gpg("--quick-generate-key", "--passphrase", "", "packages@example.org", "ed25519", "sign", "never")
        self.key = folder / "key.asc"
        self.key.write_bytes(self._gpg("--armor", "--export"))
        handler = functools.partial(_Quiet, directory=str(self.files))
        self._server = http.server.ThreadingHTTPServer((address, 0), handler)
        self.url = f"http://{address}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        subprocess.run(["gpgconf", "--homedir", str(self.folder / "gpg"), "--kill", "all"], check=False, timeout=60)

    def publish(self, *versions: str) -> None:
        """Publishes the driver in these versions, and nothing else."""
        for old in self.files.glob("*.deb"):
            old.unlink()
        for version in versions:
            self._driver(version)
        stanzas = []
        for file in sorted(self.files.glob("*.deb")):
            fields = subprocess.run(
                ["dpkg-deb", "--field", str(file)], capture_output=True, check=True, text=True
            ).stdout
            stanzas.append(
                f"{fields.strip()}\nFilename: ./{file.name}\nSize: {file.stat().st_size}\n"
                f"SHA256: {hashlib.sha256(file.read_bytes()).hexdigest()}\n"
            )
        packages = "\n".join(stanzas).encode()
        (self.files / "Packages").write_bytes(packages)
        date = subprocess.run(["date", "-Ru"], capture_output=True, check=True, text=True).stdout.strip()
        release = self.folder / "Release"
        release.write_text(f"Date: {date}\nSHA256:\n {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n")
        signed = self.files / "InRelease"
        signed.unlink(missing_ok=True)
        self._gpg("--clearsign", "--output", str(signed), str(release))

    def _driver(self, version: str) -> None:
        self._package("nvidia-kernel-open-dkms", version, {"/usr/share/stand-in/version": (f"{version}\n", 0o644)})
        library = self.folder / f"libcuda.so.{version}"
        empty = self.folder / "empty.c"
        empty.write_text("")
        subprocess.run(
            ["gcc", "-shared", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(empty)], check=True, timeout=60
        )
        programs: dict[str, tuple[str | bytes, int]] = {
            "/usr/local/sbin/modprobe": (MODPROBE, 0o755),
            "/usr/local/sbin/modinfo": (MODINFO, 0o755),
            "/usr/bin/nvidia-smi": (SMI, 0o755),
            f"/usr/lib/x86_64-linux-gnu/libcuda.so.{version}": (library.read_bytes(), 0o644),
        }
        needs = f"nvidia-kernel-open-dkms (= {version}-1)"
        self._package("nvidia-driver-cuda", version, programs, needs, "#!/bin/sh\nldconfig\n")
        self._package(
            "nvidia-persistenced", version, {"/usr/lib/systemd/system/nvidia-persistenced.service": (UNIT, 0o644)}
        )

    def _package(
        self, name: str, version: str, files: dict[str, tuple[str | bytes, int]], depends: str = "", postinst: str = ""
    ) -> None:
        root = self.folder / "build" / f"{name}-{version}"
        control = root / "DEBIAN"
        control.mkdir(parents=True)
        (control / "control").write_text(
            f"Package: {name}\nVersion: {version}-1\nArchitecture: amd64\nMaintainer: Tests <tests@example.org>\n"
            + (f"Depends: {depends}\n" if depends else "")
            + "Description: stand-in of a test\n"
        )
        if postinst:
            (control / "postinst").write_text(postinst)
            (control / "postinst").chmod(0o755)
        for path, (content, mode) in files.items():
            file = root / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
            file.chmod(mode)
        target = self.files / f"{name}_{version}-1_amd64.deb"
        argv = ["dpkg-deb", "--root-owner-group", "--build", "-Znone", str(root), str(target)]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)

    def _gpg(self, *argv: str) -> bytes:
        base = ["gpg", "--homedir", str(self.folder / "gpg"), "--batch", "--quiet", "--pinentry-mode", "loopback"]
        return subprocess.run([*base, *argv], check=True, capture_output=True, timeout=60).stdout


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Logs nothing."""
