"""Users on the machines."""

from __future__ import annotations

from headway.render.files_by_role import render_files
from tests.support.clusters.render_cases import gpu_cluster, site_of

GPU = gpu_cluster()


def test_departed_user_keeps_uid_but_cannot_log_in() -> None:
    files = render_files(GPU, site_of(GPU))["node"]
    assert "bob:x:20099:20099:bob:/home/bob:/usr/sbin/nologin\n" in files["/var/lib/extrausers/passwd"].text
    assert "bob:!:19000:0:99999:7::1:\n" in files["/var/lib/extrausers/shadow"].text
    assert "DenyUsers bob" in files["/etc/ssh/sshd_config.d/10-headway.conf"].text
    assert "/etc/ssh/headway_keys/bob" not in files
    assert "/etc/ssh/headway_keys/alice" in files
