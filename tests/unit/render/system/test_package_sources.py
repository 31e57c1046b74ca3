"""pip and uv of all machines get the cluster's index; the head gets a proxy where the file asks for one."""

from __future__ import annotations

from headway.domain.cluster import PackageSources
from headway.environments.build_job import proxy_url
from headway.render.files_by_role import render_files
from headway.render.system import package_sources
from headway.render.system.unit_list import units_by_role
from tests.support.clusters import builders


def test_no_file_and_no_unit_without_the_section() -> None:
    cluster = builders.cluster()
    files = render_files(cluster, builders.site(cluster))
    assert not {package_sources.PIP, package_sources.UV} & {*files["head"], *files["node"]}
    assert not any(
        unit.name == package_sources.PROXY_UNIT for unit in units_by_role(cluster, builders.site(cluster))["head"]
    )
    assert proxy_url(cluster) == ""


def test_index_is_that_of_pip_and_uv_on_every_machine() -> None:
    cluster = builders.cluster(packages=PackageSources("http://index.lab:8080/simple"))
    for files in render_files(cluster, builders.site(cluster)).values():
        assert (
            "index-url = http://index.lab:8080/simple\ntrusted-host = index.lab:8080\n"
            in files[package_sources.PIP].text
        )
        assert 'url = "http://index.lab:8080/simple"\ndefault = true\n' in files[package_sources.UV].text


def test_proxy_runs_on_the_head_for_indexes_only() -> None:
    cluster = builders.cluster(packages=PackageSources("https://index.lab/simple", "head", (".files.lab",)))
    site = builders.site(cluster)
    files = render_files(cluster, site)
    text = files["head"][f"/etc/systemd/system/{package_sources.PROXY_UNIT}"].text
    assert "packages 10." in text
    assert " 6824 index.lab pypi.org files.pythonhosted.org .pytorch.org .files.lab\n" in text
    assert f"/etc/systemd/system/{package_sources.PROXY_UNIT}" not in files["node"]
    assert package_sources.PROXY_UNIT in [unit.name for unit in units_by_role(cluster, site)["head"]]
    assert proxy_url(cluster) == "http://lab-head:6824"
    assert (
        proxy_url(builders.cluster(packages=PackageSources(proxy="http://proxy.lab:3128"))) == "http://proxy.lab:3128"
    )
