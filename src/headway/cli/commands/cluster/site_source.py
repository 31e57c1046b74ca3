"""The source of an import: a folder, or the head of a site."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.cli import common

if TYPE_CHECKING:
    from headway.slurm_import.importer import SiteFiles


def read_site_files(source: str, *, with_scripts: bool = False) -> SiteFiles:
    """Returns the files of a site. `with_scripts`: a head also sends the texts of scripts. Raises NotFound, Refused and
    Unreachable."""
    if "://" in source:
        from headway.sdk.slurm_site.head import WITH_SCRIPTS, read_head

        return read_head(source, settings=WITH_SCRIPTS if with_scripts else b"")
    from headway.sdk.slurm_site.folder import read_folder

    return read_folder(common.expand_home(source))
