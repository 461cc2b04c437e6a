"""A reward of one's own: called as TRL calls it, only code that computes, bounded, and never taken from a ledger."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import msgspec
import pytest

from ledger import Store, digest_bytes
from marin.errors import DataError, MissingEvidence, UsageError
from marin.plugins.rl import own_reward
from marin.plugins.rl.own import with_own
from marin.plugins.rl.own_reward import call_reward, function_of, read_reward
from marin.plugins.rl.prompts import read_stored
from marin.recipe.schema import from_mapping, plain, unplain
from tests.ledger.memory import MemoryStorage
from tests.plugins.rl.conftest import recipe_with

REWARD = '''"""Longer is better, up to the level of the question."""

MOST = {"easy": 3, "hard": 9}


def _length(text):
    return len(text.strip())


def length(prompts, completions, level, **kwargs):
    return [min(_length(one), MOST[of]) / 10 for one, of in zip(completions, level)]


def said(completions, **kwargs):
    return [float(completions[0][0]["content"] == "19")]
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards.py").write_text(REWARD)
    return tmp_path


def test_a_recipe_names_file_function_and_digest_and_the_store_has_the_code(folder: Path) -> None:
    (folder / "q.jsonl").write_text('{"prompt": "say", "level": "easy"}\n{"prompt": "tell", "level": "hard"}\n')
    store = Store(MemoryStorage())
    recipe = with_own(store, recipe_with(), Path("q.jsonl"), "rewards.py:length")
    objective = recipe.objective
    assert objective is not None and not isinstance(objective.reward, str) and objective.questions is not None
    assert (
        objective.reward.digest == digest_bytes(REWARD.encode())
        and store.read(objective.reward.digest) == REWARD.encode()
    )
    assert sorted(objective.stored) == sorted([objective.reward.digest, objective.questions])
    assert from_mapping(unplain(plain(recipe)), where="recorded") == recipe
    easy, hard = read_stored(store.read(objective.questions), objective.reward, where="stored")
    function = function_of(objective.reward)
    given = [call_reward(function, one.prompt, " 12345", [1, 2], one.columns, "here") for one in (easy, hard)]
    assert given == [0.3, 0.5]


def test_of_a_conversation_the_completion_is_a_message() -> None:
    reward, _ = read_reward("rewards.py:said")
    chat = [{"role": "user", "content": "12+7?"}]
    assert [call_reward(function_of(reward), chat, text, [], {}, "here") for text in ("19", "20")] == [1.0, 0.0]


def test_another_file_or_none_is_no_reward_and_nothing_is_taken_from_the_store(folder: Path) -> None:
    reward, content = read_reward("rewards.py:length")
    (folder / "rewards.py").write_bytes(content + b"\n")
    with pytest.raises(MissingEvidence, match="is not here") as caught:
        function_of(reward)
    assert caught.value.found == digest_bytes(content + b"\n") and f"marin store get {reward.digest}" in str(
        caught.value
    )
    (folder / "rewards.py").unlink()
    with pytest.raises(MissingEvidence, match="is not here"):
        function_of(reward)
    for file in ("/rewards.py", "../rewards.py", "a/../../rewards.py"):
        with pytest.raises(MissingEvidence, match="is not here"):
            function_of(msgspec.structs.replace(reward, file=file))


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import os\ndef f(completions, **kw): return [os.getpid()]", "os"),
        ("import random\ndef f(completions, **kw): return [random.random()]", "random"),
        ("import time\ndef f(completions, **kw): return [time.time()]", "time"),
        ("def f(completions, **kw): return [float(open(completions[0]).read())]", "open"),
        ("from other import g\ndef f(completions, **kw): return [g()]", "other"),
        ("SEEN = []\ndef f(completions, **kw):\n    global SEEN\n    return [len(SEEN)]", "global SEEN"),
        ("def f(completions, **kw): return [hash(completions[0])]", "hash"),
        ("def g(): pass", "f, which is not in"),
        ("def f(:", "invalid"),
    ],
)
def test_a_reward_that_does_more_than_compute_is_refused(folder: Path, code: str, found: str) -> None:
    (folder / "other.py").write_text("def g(): return 1")
    (folder / "rewards.py").write_text(code)
    with pytest.raises(UsageError, match="a reward that cannot be taken") as caught:
        read_reward("rewards.py:f")
    assert found in (caught.value.found or "")


@pytest.mark.parametrize(
    "written", ["rewards.py", "rewards.py:", ":f", "absent.py:f", "/tmp/x.py:f", "../rewards.py:f"]
)
def test_what_names_no_function_below_the_folder_is_refused(written: str) -> None:
    with pytest.raises(UsageError, match="a reward that cannot be taken"):
        read_reward(written)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("raise ValueError('no')", "ValueError: no"),
        ("return 1.0", "1.0"),
        ("return [None]", "[None]"),
        ("return ['1']", "['1']"),
        ("return [1.0, 2.0]", "[1.0, 2.0]"),
        ("while True:\n        pass", "none"),
        ("while True:\n        try:\n            pass\n        except Exception:\n            pass", "none"),
    ],
)
def test_a_reward_that_raises_never_ends_or_is_no_number_is_named(folder: Path, body: str, found: str) -> None:
    (folder / "rewards.py").write_text(f"def f(completions, **kwargs):\n    {body}\n")
    reward, _ = read_reward("rewards.py:f")
    with pytest.raises(DataError, match="a reward that is not a number") as caught:
        call_reward(function_of(reward), "a", "b", [], {}, "objective.reward: f")
    assert caught.value.found == found and caught.value.where == "objective.reward: f"


@pytest.mark.parametrize("before", range(3), ids=["", "a line later", "two lines later"])
@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "while True: any(one < 0 for one in range(9))",
        "while True:\n        try:\n            len(completions)\n        except:\n            len(completions)",
        "while True:\n        try:\n            len(completions)\n        finally:\n            continue",
        "def again():\n        try:\n            len(completions)\n        finally:\n            return True\n"
        "    while again(): pass",
    ],
    ids=["in one line", "in a generator", "except", "finally, continue", "finally, return"],
)
def test_nothing_that_a_reward_does_keeps_it_going(body: str, before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of its lines the last one is, in a handler of its own too."""
    monkeypatch.setattr(own_reward, "MOST_LINES", 1000)
    Path("rewards.py").write_text(f"def f(completions, **kwargs):\n{'    x = 1\n' * before}    {body}\n")
    with pytest.raises(DataError, match="at most 1000 lines of Python"):
        call_reward(function_of(read_reward("rewards.py:f")[0]), "a", "b", [], {}, "here")
    assert sys.monitoring.get_tool(own_reward.TOOL) is None, "nobody is watched any more"


def test_what_a_function_gives_may_be_any_number(folder: Path) -> None:
    (folder / "rewards.py").write_text("def f(completions, **kwargs):\n    return [completions[0] == 'b']\n")
    assert call_reward(function_of(read_reward("rewards.py:f")[0]), "a", "b", [], {}, "here") == 1.0
    (folder / "rewards.py").write_text("def f(completions, **kwargs):\n    return (float('nan'),)\n")
    assert math.isnan(call_reward(function_of(read_reward("rewards.py:f")[0]), "a", "b", [], {}, "here")), (
        "the rollout refuses it"
    )


def test_a_reward_without_an_objective_is_refused() -> None:
    plain_recipe = msgspec.structs.replace(recipe_with(), objective=None)
    with pytest.raises(UsageError, match="without an objective"):
        with_own(Store(MemoryStorage()), plain_recipe, None, "rewards.py:length")
