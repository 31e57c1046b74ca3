"""Images and a registry for tests of containers on a real cluster, and helpers of these tests."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator

import pytest
from tests.cluster.containers import container_registry as registries
from tests.cluster.containers.container_registry import Registry
from tests.cluster.lab import Done, Lab

# A root file system from a few of the login node's programs, as images for this kind of machine and for another.
MAKE_IMAGES = r"""
set -eu
cd /scratch/vito
mkdir -p root/usr/bin root/etc root/opt/app root/root root/data
for name in bash cat ls id pwd env touch test findmnt grep head stat true sleep mkdir sha256sum; do
    program=$(readlink -f /usr/bin/$name)
    cp "$program" root/usr/bin/$name
    for library in $(ldd "$program" | grep -o '/[^ ]*'); do
        mkdir -p "root${library%/*}"; [ -e "root$library" ] || cp "$(readlink -f "$library")" "root$library"
    done
done
ln -s usr/bin root/bin; ln -s bash root/usr/bin/sh; ln -s /data root/etc/leads-away
echo 'PRETTY_NAME="Tiny 1"' > root/etc/os-release
printf 'root:x:0:0::/root:/bin/sh\nimage:x:77:77::/:/bin/sh\n' > root/etc/passwd
umoci init --layout oci
for tag in tiny arm; do
    umoci new --image oci:$tag
    umoci insert --rootless --image oci:$tag root /
    umoci config --image oci:$tag --config.workingdir /opt/app --config.env GREETING=hello --config.env HOME=/nowhere \
        --config.env PATH=/usr/bin:/bin
done
umoci config --image oci:arm --architecture arm64
umoci unpack --rootless --image oci:tiny bundle
mksquashfs bundle/rootfs tiny.sqsh -quiet -no-progress -all-root
# An image of nothing but links: with the node's /usr mounted it is the node's own system.
mkdir -p links/etc links/usr; for name in bin lib lib64 sbin; do ln -s usr/$name links/$name; done
umoci init --layout links.oci; umoci new --image links.oci:links
umoci insert --rootless --image links.oci:links links /
chmod -R go+rX /scratch/vito; chmod 755 /scratch/vito
"""
PUSH = r"""
set -eu
export REGISTRY_AUTH_FILE=$HOME/.config/containers/auth.json
for tag in tiny arm; do
    skopeo --insecure-policy copy -q oci:/scratch/vito/oci:$tag docker://$1/team/$tag:1
done
"""


@pytest.fixture(scope="module")
def images(lab: Lab) -> None:
    """Creates /scratch/vito/oci (a layout with two images), tiny.sqsh with root's files, and links.oci."""
    lab.head(
        "rm", "-rf", *(f"/scratch/vito/{name}" for name in ("root", "oci", "bundle", "links", "links.oci", "tiny.sqsh"))
    )
    lab.head("bash", "-s", user="vito", stdin=MAKE_IMAGES)


@pytest.fixture(scope="module")
def registry(lab: Lab, images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Yields a registry with team/tiny:1 and team/arm:1, which alice and vito may read."""
    route = lab.head("ip", "-4", "route", "show", "default").out
    gateway = re.search(r"default via (\S+)", route)
    assert gateway, route
    with registries.serve(gateway[1], tmp_path_factory.mktemp("registry")) as served:
        for user in ("vito", "alice", "vera", "viola"):
            trust(lab, served, user)
        for user in ("vito", "alice"):
            log_in(lab, served, user, served.password)
        lab.head("bash", "-s", served.host, user="vito", stdin=PUSH)
        yield served


def put(lab: Lab, user: str, path: str, text: str) -> None:
    """Writes a file of a user and creates its folders."""
    lab.head("bash", "-c", 'umask 077; mkdir -p "${0%/*}"; cat > "$0"', path, user=user, stdin=text)


def trust(lab: Lab, served: Registry, user: str) -> None:
    put(lab, user, f"/home/{user}/.config/containers/certs.d/{served.host}/ca.crt", served.authority)


def log_in(lab: Lab, served: Registry, user: str, password: str) -> None:
    auth = base64.b64encode(f"{registries.USER}:{password}".encode()).decode()
    text = json.dumps({"auths": {served.host: {"auth": auth}}})
    put(lab, user, f"/home/{user}/.config/containers/auth.json", text)


def srun(lab: Lab, *words: str, user: str = "alice", check: bool = True) -> Done:
    return lab.head("srun", *words, user=user, check=check)


def printed(lab: Lab, path: str) -> list[str]:
    """Returns the lines of a job's output without the runtime's own messages."""
    return [line for line in lab.output(path).split("\n")[:-1] if not line.startswith("headway: ")]


OCI = "--container-image=oci:/scratch/vito/oci:tiny"


@pytest.fixture(autouse=True)
def no_node_is_drained(lab: Lab) -> Iterator[None]:
    """Checks after each test that all nodes are in service, whatever the test did wrong in a container."""
    yield
    assert lab.head("sinfo", "-h", "-R").out == ""
    assert "lab-1-1" in lab.head("sinfo", "-h", "-N", "-o", "%N %t").out
