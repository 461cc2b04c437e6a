"""A folder pushed to a hub comes back by its commit with the same bytes, and what a hub says no to is said in words."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub import Handler, Hub, hub_on_loopback
from tokenizers import ByteLevelBPETokenizer

from ledger import Store, describe_tree
from marin.data.borrowed.folder import WANTED
from marin.errors import MissingEvidence, UsageError
from marin.evaluation.importing import with_tokenizer
from marin.export.hub import FILES, is_named, pull, push, push_revisions
from marin.recipe.schema import Recipe
from tests.ledger.memory import MemoryStorage

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


@pytest.fixture
def revisions(tmp_path: Path) -> dict[str, Path]:
    """``main`` and two checkpoints; the tokenizer is the same."""
    made = {name: tmp_path / "submission" / name for name in ("main", "chck_1M", "chck_2M")}
    for name, place in made.items():
        place.mkdir(parents=True)
        (place / "config.json").write_text(json.dumps({"of": name}))
        (place / "model.safetensors").write_bytes(name.encode() * 2000)
        (place / "tokenizer.json").write_text("{}")
    return made


def pushed(revisions: dict[str, Path]) -> dict[str, str]:
    return dict(push_revisions(revisions, "owner/model", message="run r"))


def commits(hub: Hub) -> int:
    return sum("/commit/" in said for said in hub.asked)


def test_every_checkpoint_is_a_branch_of_its_name(hub: Hub, revisions: dict[str, Path], tmp_path: Path) -> None:
    found = pushed(revisions)
    assert found == {branch: commit for (_, branch), commit in hub.refs.items()} and list(found)[-1] == "main"
    for name, folder in revisions.items():
        back = pull(f"hf:owner/model@{found[name]}", tmp_path / "cache")
        assert describe_tree(back).digest == describe_tree(folder).digest
    assert commits(hub) == 3
    assert pushed(revisions) == found and commits(hub) == 3, "what is there is left as it is"


@pytest.mark.table
@pytest.mark.parametrize("before", [0, 1, 2, 3, 4])
def test_a_push_that_broke_off_goes_on(
    hub: Hub, revisions: dict[str, Path], before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks at each branch that is made and at each commit."""
    hub.commit("owner/model", "main", {"README.md": b"a card", "old.safetensors": b"of nobody here"})
    changing, answer = iter(range(99)), Handler.do_POST

    def fails(handler: Handler) -> None:
        if ("/branch/" in handler.path or "/commit/" in handler.path) and next(changing) == before:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
        else:
            answer(handler)

    with monkeypatch.context() as patch:
        patch.setattr(Handler, "do_POST", fails)
        with pytest.raises(MissingEvidence, match="cannot be reached"):
            pushed(revisions)
    whole = {branch: commit for (_, branch), commit in hub.refs.items() if branch != "main"}
    found = pushed(revisions)
    assert set(found) == set(revisions) and commits(hub) == 3
    for name, folder in revisions.items():
        files = hub.commits["owner/model", found[name]]
        assert {path.name: files[path.name] for path in folder.iterdir()} == {
            path.name: path.read_bytes() for path in folder.iterdir()
        }
        assert "README.md" in files
    for name in [*whole][:-1]:
        assert found[name] == whole[name], "a branch that was whole did not move"


def test_a_branch_made_of_an_older_model_on_main_is_filled(hub: Hub, revisions: dict[str, Path]) -> None:
    """Where main has a model already, a branch begins with that one's files: it was only made."""
    push(revisions["main"], "owner/model")
    hub.refs["owner/model", "chck_2M"] = hub.refs["owner/model", "main"]
    found = pushed(revisions)
    assert hub.commits["owner/model", found["chck_2M"]]["model.safetensors"] == b"chck_2M" * 2000


@pytest.mark.parametrize("branch", ["main", "chck_2M"])
def test_a_branch_with_another_model_is_refused_before_anything_is_pushed(
    hub: Hub, revisions: dict[str, Path], branch: str
) -> None:
    hub.commit("owner/model", "main", {})
    hub.commit("owner/model", branch, {"config.json": (revisions[branch] / "config.json").read_bytes() + b" "})
    before = dict(hub.refs)
    with pytest.raises(UsageError, match=rf"another model.*branch {branch}.*no config.json.*found git-sha1:"):
        pushed(revisions)
    assert hub.refs == before


def test_a_tokenizer_of_the_hub_is_that_of_its_folder(hub: Hub, tmp_path: Path) -> None:
    """GPT-2's two files as the Hub has them; a model beside them is not asked for."""
    made = ByteLevelBPETokenizer(add_prefix_space=False)
    made.train_from_iterator(["a farmer sees a dog"] * 3, vocab_size=265, min_frequency=2, show_progress=False)
    (tmp_path / "own").mkdir()
    made.save_model(str(tmp_path / "own"))
    vocabulary = made.get_vocab() | {"<|endoftext|>": made.get_vocab_size()}
    (tmp_path / "own" / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    files = {path.name: path.read_bytes() for path in (tmp_path / "own").iterdir()}
    files["src/data-converted.js"] = b"a form of a tokenizer, which is not the first that is looked for"
    others = {"model.safetensors": b"weights", "tokenizer.py": b"a program"}
    named = f"hf:owner/tokens@{hub.commit('owner/tokens', 'main', files | others)}"
    folder = pull(named, tmp_path / "cache", WANTED, "tokenizer")
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == files
    assert not any("safetensors" in said and "resolve" in said for said in hub.asked)
    store = Store(MemoryStorage())
    taken, mine = (
        with_tokenizer(store, place, name, Recipe()) for place, name in ((folder, named), (tmp_path / "own", "own"))
    )
    assert taken.tokenizer.artifact == mine.tokenizer.artifact and taken.tokenizer.taken_from == named


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
