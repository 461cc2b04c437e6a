"""`marin verify ADDRESS`: what a browser shows of a publication is what is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin.cli.verifying.places import folder_of, run_address
from marin.record.attestation import PAGES

SITE = "https://example.org/a/site"


@pytest.mark.parametrize(
    ("address", "root", "run", "page"),
    [
        (f"{SITE}/2khr7ocq", SITE, "2khr7ocq", ""),
        (f"{SITE}/2khr7ocq/", SITE, "2khr7ocq", ""),
        (f"{SITE}/2khr", SITE, "2khr", ""),
        (f"{SITE}/runs/2khr7ocq", SITE, "2khr7ocq", "runs/2khr7ocq/index.html"),
        (f"{SITE}/runs/2khr7ocq/", SITE, "2khr7ocq", "runs/2khr7ocq/index.html"),
        (f"{SITE}/runs/2khr7ocq/index.html", SITE, "2khr7ocq", "runs/2khr7ocq/index.html"),
        (f"{SITE}/runs/2khr7ocq/report.html#loss", SITE, "2khr7ocq", "runs/2khr7ocq/report.html"),
        (f"{SITE}/runs/2khr7ocq/?from=mail#a/b", SITE, "2khr7ocq", "runs/2khr7ocq/index.html"),
        (f"{SITE}/runs/2khr7ocq/report%2Ehtml", SITE, "2khr7ocq", "runs/2khr7ocq/report.html"),
        (f"{SITE}//runs//2khr7ocq", SITE, "2khr7ocq", "runs/2khr7ocq/index.html"),
        ("https://example.org/runs/runs/2khr7ocq/", "https://example.org/runs", "2khr7ocq", "runs/2khr7ocq/index.html"),
        (f"{SITE}/index.html", SITE, "latest", "index.html"),
        (f"{SITE}/", SITE, "latest", "index.html"),
        (f"{SITE}/?from=mail", SITE, "latest", "index.html"),
        (f"{SITE}/#top", SITE, "latest", "index.html"),
        (f"{SITE}/2khr7ocq/#top", SITE, "2khr7ocq", ""),
        (f"{SITE}/speedruns/", SITE, "latest", "speedruns/index.html"),
        ("https://example.org", "https://example.org", "latest", "index.html"),
        ("https://example.org/index.html#top", "https://example.org", "latest", "index.html"),
        (f"{SITE}/outputs/{'a' * 64}.html", SITE, "latest", f"outputs/{'a' * 64}.html"),
        (f"{SITE}/dossiers/{'a' * 64}/index.html", SITE, "latest", f"dossiers/{'a' * 64}/index.html"),
        (f"{SITE}/dossiers/{'a' * 64}", SITE, "latest", f"dossiers/{'a' * 64}/index.html"),
        (f"{SITE}/dossiers/{'a' * 64}/?from=mail", SITE, "latest", f"dossiers/{'a' * 64}/index.html"),
        ("https://example.org/experiments/2khr7ocq", "https://example.org/experiments", "2khr7ocq", ""),
        (
            "https://example.org/experiments/runs/2khr7ocq/",
            "https://example.org/experiments",
            "2khr7ocq",
            "runs/2khr7ocq/index.html",
        ),
        (f"{SITE}/check.html#2khr7ocq", SITE, "2khr7ocq", "check.html"),
        (f"{SITE}/check.html", SITE, "latest", "check.html"),
        ("gs://bucket/site/2khr7ocq", "gs://bucket/site", "2khr7ocq", ""),
    ],
)
def test_an_address_means_a_run_of_a_root(address: str, root: str, run: str, page: str) -> None:
    assert run_address(address) == (run, page, root)


@pytest.mark.parametrize("name", ["latest", "2khr7ocq", "runs/2khr7ocq", "model/"])
def test_what_is_no_address_stays_as_it_is(name: str) -> None:
    assert run_address(name) == (name, "", "")


def test_a_path_means_what_its_address_would(tmp_path: Path) -> None:
    site = tmp_path / "a" / "site"
    page = site / "runs" / "2khr7ocq" / "report.html"
    page.parent.mkdir(parents=True)
    page.write_text("")
    assert run_address(str(page)) == (str(page), "", ""), "nothing was published there"
    (site / PAGES).write_text("")
    assert run_address(str(page)) == ("2khr7ocq", "runs/2khr7ocq/report.html", str(site))
    assert run_address(str(page.parent)) == ("2khr7ocq", "runs/2khr7ocq/index.html", str(site))
    assert run_address(str(site)) == ("latest", "index.html", str(site))


def test_a_path_may_have_what_a_browser_puts_behind_it(tmp_path: Path) -> None:
    """A confined verification has the page from its parent with the run behind it; a person copies it out of the address bar."""
    site = tmp_path / "a site"
    page = site / "runs" / "2khr7ocq" / "report.html"
    page.parent.mkdir(parents=True)
    for path in (page, site / PAGES, site / "index.html", site / "check.html"):
        path.write_text("")
    asked = ("2khr7ocq", "runs/2khr7ocq/report.html", str(site))
    assert run_address(f"{page}#losses") == run_address(f"{page.as_uri()}?from=mail#losses") == asked
    assert run_address(f"{site}/index.html#2khr7ocq") == ("latest", "index.html", str(site))
    assert run_address(f"{site}/check.html#2khr7ocq") == ("2khr7ocq", "check.html", str(site))
    assert folder_of(f"{site.as_uri()}/index.html#top") == folder_of(f"{site}/index.html") == site
    assert folder_of(f"{site}/#top") == site
    odd = site / "runs" / "2khr7ocq" / "a#b"
    odd.write_text("")
    assert run_address(str(odd)).page == "runs/2khr7ocq/a#b", "a file that is called so"
