"""`marin verify ADDRESS`: what a browser shows of a publication is what is taken."""

from __future__ import annotations

import os

import pytest

from marin.cli.verifying.verify import published

SITE = "https://example.org/a/site"


@pytest.mark.parametrize(
    ("address", "root", "run"),
    [
        (f"{SITE}/2khr7ocq", SITE, "2khr7ocq"),
        (f"{SITE}/2khr7ocq/", SITE, "2khr7ocq"),
        (f"{SITE}/2khr", SITE, "2khr"),
        (f"{SITE}/runs/2khr7ocq", SITE, "2khr7ocq"),
        (f"{SITE}/runs/2khr7ocq/", SITE, "2khr7ocq"),
        (f"{SITE}/runs/2khr7ocq/index.html", SITE, "2khr7ocq"),
        (f"{SITE}/runs/2khr7ocq/report.html#loss", SITE, "2khr7ocq"),
        (f"{SITE}/runs/2khr7ocq/?from=mail#a/b", SITE, "2khr7ocq"),
        (f"{SITE}//runs//2khr7ocq", SITE, "2khr7ocq"),
        ("https://example.org/runs/runs/2khr7ocq/", "https://example.org/runs", "2khr7ocq"),
        (f"{SITE}/index.html", SITE, "latest"),
        (f"{SITE}/", SITE, "latest"),
        ("https://example.org", "https://example.org", "latest"),
        ("https://example.org/index.html#top", "https://example.org", "latest"),
        ("gs://bucket/site/2khr7ocq", "gs://bucket/site", "2khr7ocq"),
    ],
)
def test_an_address_means_a_run_of_a_root(address: str, root: str, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_ROOT", "elsewhere")
    assert published(address) == run
    assert os.environ["MARIN_ROOT"] == root


@pytest.mark.parametrize("name", ["latest", "2khr7ocq", "runs/2khr7ocq", "model/"])
def test_what_is_no_address_stays_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_ROOT", "elsewhere")
    assert published(name) == name
    assert os.environ["MARIN_ROOT"] == "elsewhere"
