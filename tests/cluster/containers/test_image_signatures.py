"""The signature policy of the cluster file decides which images of a registry jobs run, on a real cluster and registry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cluster.containers.container_images import OCI, images, put, registry, srun
from tests.cluster.containers.container_registry import Registry
from tests.cluster.lab import Lab

__all__ = ["images", "registry"]  # fixtures

FILE = """\
name: lab
provider: local
plan: h100-8
nodes: 1
teams: {vision: {users: [alice, vera, viola, vito]}}
"""
POLICY = """\
containers:
  signatures:
    default: reject
    registries:
      %(host)s/team: {sigstore_key: ./team.pub}
      %(host)s/open: {policy: accept}
"""
# team/tiny:1 is pushed without a signature by the fixture `registry`.
PUSH = r"""
set -eu
cd /scratch/vito
export REGISTRY_AUTH_FILE=$HOME/.config/containers/auth.json
mkdir -p registries.d; echo 'default-docker: {use-sigstore-attachments: true}' > registries.d/all.yaml
echo secret > passphrase
for key in team other; do skopeo generate-sigstore-key --output-prefix $key --passphrase-file passphrase >/dev/null; done
push() { skopeo --insecure-policy --registries.d registries.d copy -q "${@:2}" oci:oci:tiny docker://$1; }
sign() { push $1 --sign-passphrase-file passphrase --sign-by-sigstore-private-key $2.private; }
umoci config --image oci:tiny --config.env SIGNED=yes # another digest than that of team/tiny:1
sign $1/team/signed:1 team
umoci config --image oci:tiny --config.env SIGNED=otherwise
sign $1/team/foreign:1 other
push $1/open/tiny:1
push $1/elsewhere/tiny:1
chmod -R go+rX oci
"""
UNSIGNED = "is refused: it has no signature, and the signature policy of this cluster requires one"


@pytest.fixture(scope="module")
def lab(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("signatures") / "state")
    with lab.applied(FILE):
        yield lab


@pytest.fixture(scope="module")
def policy(lab: Lab, registry: Registry) -> None:
    """Pushes signed images, lets alice store an unsigned one, and then applies the policy."""
    lab.head("bash", "-s", registry.host, user="vito", stdin=PUSH)
    assert "Tiny 1" in run(lab, registry, "team/tiny:1")
    (lab.state / "team.pub").write_text(lab.head("cat", "/scratch/vito/team.pub").out)
    file = lab.state / "lab.yaml"
    file.write_text(FILE + POLICY % {"host": registry.host})
    lab.cli("apply", str(file), "--yes", timeout_s=600)


def run(lab: Lab, registry: Registry, image: str, user: str = "alice") -> str:
    """Returns both outputs of a step that shows the image's release; it may fail."""
    done = srun(lab, f"--container-image={registry.host}#{image}", "cat", "/etc/os-release", user=user, check=False)
    assert "Traceback" not in done.err
    return done.out + done.err


def test_signed_image_runs_and_is_imported_once(lab: Lab, registry: Registry, policy: None) -> None:
    first = run(lab, registry, "team/signed:1")
    assert "Tiny 1" in first
    assert "imported" in first
    again = run(lab, registry, "team/signed:1")
    assert "Tiny 1" in again
    assert "import" not in again


def test_unsigned_image_is_refused_in_the_jobs_log(lab: Lab, registry: Registry, policy: None) -> None:
    """Also for a user who has it in the cache since before the policy, and who has a policy of their own."""
    put(lab, "alice", "/home/alice/.config/containers/policy.json", '{"default": [{"type": "insecureAcceptAnything"}]}')
    image, log = f"{registry.host}#team/tiny:1", "/scratch/alice/refused.out"
    job = lab.sbatch("alice", f"--container-image={image}", "-o", log, wrap="echo ran")
    assert lab.wait_job(job) == "FAILED"
    said = lab.output(log)
    assert f"{registry.host}/team/tiny:1 {UNSIGNED}" in said
    assert "ran" not in said.split()
    lab.wait(lambda: UNSIGNED in lab.cli("job", "lab", str(job)).out, "the job's page to say why")


@pytest.mark.parametrize(
    ("image", "says"),
    [
        ("team/foreign:1", "is refused: no signature of it is for this repository and by the key"),
        ("elsewhere/tiny:1", "is refused: the signature policy of this cluster accepts no images from there"),
        ("open/tiny:1", "Tiny 1"),
    ],
)
def test_each_registry_has_its_rule(lab: Lab, registry: Registry, policy: None, image: str, says: str) -> None:
    said = run(lab, registry, image)
    assert says in said
    assert ("Tiny 1" in said) == (says == "Tiny 1")


def test_local_images_need_no_signature(lab: Lab, policy: None) -> None:
    assert "Tiny 1" in srun(lab, OCI, "cat", "/etc/os-release").out
    assert "Tiny 1" in srun(lab, "--container-image=/scratch/vito/tiny.sqsh", "cat", "/etc/os-release").out


def test_admin_imports_only_what_the_policy_accepts(lab: Lab, registry: Registry, policy: None) -> None:
    for user in ("root", "vera"):
        home = "/root" if user == "root" else f"/home/{user}"
        for name in (f"certs.d/{registry.host}/ca.crt", "auth.json"):
            text = lab.head("cat", f"/home/vito/.config/containers/{name}").out
            put(lab, user, f"{home}/.config/containers/{name}", text)
    refused = lab.cli("container", "import", "lab", f"{registry.host}#team/tiny:1", check=False)
    assert refused.code != 0
    assert UNSIGNED in refused.err
    lab.cli("container", "import", "lab", f"{registry.host}#team/signed:1")
    said = run(lab, registry, "team/signed:1", user="vera")
    assert "Tiny 1" in said
    assert "import" not in said
