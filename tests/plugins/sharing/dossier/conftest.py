"""A run as its events have it, with a small model in the store; nothing is trained."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from recorded import record_run

from marin.plugins.sharing.pages import publish
from marin.record.root import Root, open_root
from marin.reporting.verification import picture


@pytest.fixture(scope="session", autouse=True)
def one_wheel() -> Iterator[None]:
    """The wheel of this very software, which lies beside all that is published, is made once: it takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish, "wheel", cache(publish.wheel))
        yield


@pytest.fixture(scope="session", autouse=True)
def drawings() -> Iterator[dict[str, bytes]]:
    """A verification's picture of the same content is drawn once: most of what a publication takes, and of what judges it. A
    test that asks for the drawings can forget them."""
    draw, drawn = picture.picture, dict[str, bytes]()

    def once(*content: Any) -> bytes:
        return drawn.get(key := repr(content)) or drawn.setdefault(key, draw(*content))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(picture, "picture", once)
        yield drawn


@pytest.fixture
def root(project: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    """A root with one whole run, verified once."""
    monkeypatch.chdir(project)
    root = open_root()
    record_run(root, project, trained={})
    return root


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    """A private key for the model's signature."""
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "key.pem").write_bytes(ec.generate_private_key(ec.SECP256R1()).private_bytes(*form))
    return tmp_path / "key.pem"
