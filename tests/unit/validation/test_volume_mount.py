"""Mount lines of volumes are accepted or refused."""

from __future__ import annotations

import pytest

from headway.validation.volume_mount import mount_line_fault


@pytest.mark.parametrize(
    "line",
    [
        "nfs4 filer:/export/data rw,hard", "lustre mgs@tcp:/fsx", "beegfs beegfs_nodev cfgFile=/etc/beegfs/c.conf",
        "wekafs weka/fs num_cores=1", "fuse.sshfs ann@box:/srv ro", "none /scratch/x bind",
    ],
)  # fmt: skip
def test_valid_mount_lines_are_accepted(line: str) -> None:
    assert mount_line_fault(line) == ("", "")


@pytest.mark.parametrize(
    "line",
    [
        "nfs4", "nfs4 a:/b rw extra", "NFS a:/b", "nfs4 a:/b rw;reboot", "nfs4 $(id):/b", "nfs4 a:/b\n[Service]",
        "none /x rw", "nfs4 -o x",
    ],
)  # fmt: skip
def test_invalid_mount_lines_are_refused(line: str) -> None:
    assert mount_line_fault(line)[0]
