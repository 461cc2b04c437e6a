"""A folder pushed to a hub comes back by its commit with the same bytes, and what a hub says no to is said in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hub import Hub, hub_on_loopback

from ledger import describe_tree
from marin.errors import MissingEvidence, UsageError
from marin.export.hub import FILES, is_named, pull, push

CARD = "---\nlicense: mit\n---\n# a model\n"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with hub_on_loopback() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.setenv("HF_TOKEN", hub.token)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)  # the stub speaks LFS
        yield hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    made.mkdir()
    for place, name in enumerate(FILES):
        (made / name).write_bytes(CARD.encode() if name == "README.md" else bytes([place]) * (place * 2000))
    (made / "pytorch_model.bin").write_bytes(b"a pickle")
    return made


def test_what_is_pushed_is_pulled_by_its_commit(hub: Hub, folder: Path, tmp_path: Path) -> None:
    first = push(folder, "owner/model")
    (folder / "config.json").write_bytes(b"{}")
    second = push(folder, "owner/model")
    branch = push(folder, "owner/model", branch="chck_1M")
    assert len({first, second, branch}) == 3 and hub.refs["owner/model", "main"] == second
    assert any(said.startswith("PUT /lfs/") for said in hub.asked), "what is large goes by LFS"
    pulled = pull(f"hf:owner/model@{second}", tmp_path / "cache")
    (folder / "pytorch_model.bin").unlink()
    assert describe_tree(pulled).digest == describe_tree(folder).digest
    asked = len(hub.asked)
    assert pull(f"hf:owner/model@{second}", tmp_path / "cache") == pulled and len(hub.asked) == asked
    assert (pull(f"hf:owner/model@{first}", tmp_path / "cache") / "config.json").read_bytes() == b""


@pytest.mark.parametrize(
    "name", ["hf:owner/model", "hf:owner/model@main", "hf:model@" + "a" * 40, "hf:../../x@" + "a" * 40]
)
def test_a_revision_that_can_move_is_refused(hub: Hub, name: str, tmp_path: Path) -> None:
    assert is_named(name)
    with pytest.raises(UsageError, match="pinned by its commit"):
        pull(name, tmp_path)
    assert hub.asked == []


@pytest.mark.parametrize("name", [f"hf:datasets/owner/texts@{'a' * 40}", f"hf:owner/model@{'a' * 40}/config.json"])
def test_a_model_is_a_whole_repository(hub: Hub, name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a whole repository of the Hub"):
        pull(name, tmp_path)
    assert hub.asked == []


def test_no_token_no_repository_and_no_network_are_said(
    hub: Hub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises((UsageError, MissingEvidence)):
        pull(f"hf:owner/none@{'a' * 40}", tmp_path / "cache")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(UsageError, match="the Hub refuses"):
        push(folder, "owner/model")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(MissingEvidence, match="cannot be reached"):
        pull(f"hf:owner/none@{'b' * 40}", tmp_path / "cache")
