"""Stand-ins for what is imported and never used: there for names, gone afterwards, and never called in silence."""

from __future__ import annotations

import gc
import subprocess
import sys
from types import ModuleType

import pytest

from marin.training.runtime.unused import OF_MODELS, unused_imports

pytestmark = pytest.mark.usefixtures("absent")


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of them is imported yet, whatever other tests have imported in this process."""
    for name in list(sys.modules):
        if any(name == package or name.startswith(f"{package}.") for package in OF_MODELS):
            monkeypatch.delitem(sys.modules, name)


def names() -> tuple[type, type]:
    import huggingface_hub.utils as of_a_package
    import wandb
    from google.cloud import storage

    assert of_a_package.GatedRepoError is of_a_package.GatedRepoError
    assert isinstance(storage.Client, type)
    from finestore.cache import PersistentKvCache

    return wandb.sdk.wandb_run.Run, PersistentKvCache.for_prefix("blocks")  # called as it is while Levanter is imported


def test_names_are_there_for_annotations_and_nothing_else() -> None:
    with unused_imports():
        run, cache = names()
        assert isinstance(run, type) and not isinstance(1, run)
        assert type("Mine", (run,), {}).__mro__[1] is run
    assert not set(OF_MODELS) & sys.modules.keys(), "an import now has the real ones"
    assert "huggingface_hub.utils" not in sys.modules
    from google.cloud import storage

    assert storage.__file__, "the package above has no stand-in left"
    for stands in (run, cache.get):
        with pytest.raises(RuntimeError, match="this process does not use it"):
            stands()


def test_what_is_imported_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = ModuleType("wandb")
    monkeypatch.setitem(sys.modules, "wandb", mine)
    with unused_imports():
        assert sys.modules["wandb"] is mine
    assert sys.modules["wandb"] is mine


def test_the_collector_waits_and_leaves_alone_what_was_imported() -> None:
    try:
        with unused_imports():
            assert not gc.isenabled()
        assert gc.isenabled() and gc.get_freeze_count()
    finally:
        gc.unfreeze()


def test_what_jax_need_not_have_is_absent_while_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "etils", raising=False)
    with unused_imports(), pytest.raises(ModuleNotFoundError, match="etils"):
        __import__("etils.epath")
    assert __import__("etils").__file__


IMPORTING = """
from marin.training.runtime.unused import unused_imports
with unused_imports():
    import marin.evaluation.folder_subject, marin.evaluation.scoring, marin.evaluation.subject, marin.training.data
from jax._src import xla_bridge
assert not xla_bridge._backends
"""


def test_no_backend_of_jax_begins_while_its_plugins_are_out_of_sight() -> None:
    subprocess.run([sys.executable, "-c", IMPORTING], check=True, timeout=600)
