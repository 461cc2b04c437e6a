"""What a bundle says of the state that it is about follows from the run's own recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from ledger import describe_tree
from marin.data.template import plain_template
from marin.evaluation.subject import Subject
from marin.kinds.families.measured import EvaluationRecorded
from marin.plugins.evaluation.bundle import judge as bundle
from marin.recipe.schema import Execution, FilesDataset, Recipe
from marin.record.events import Output, read
from tests.marin.verify.test_evaluation_record import DIGEST, body_of


def test_an_evaluation_that_says_another_train_step_than_the_last_one_fails(tmp_path: Path) -> None:
    recipe = Recipe()
    output = Output(kind="tree", digest=DIGEST, artifact=DIGEST, size=1)
    proven = bundle.Proven("r", recipe, dict.fromkeys(("train", "tokenizer", "export"), output), {}, "o", 1, b"")
    (tmp_path / "evaluations/7/tree").mkdir(parents=True)
    found = {}
    for step in (recipe.last_step, recipe.last_step + 1):
        body = read(EvaluationRecorded, body_of("r", step=step), where="event 7")
        verdict = bundle._judged(tmp_path, tmp_path, proven, 7, body, Execution(), None, [])
        found[step] = [line for line in verdict.lines if "step: " in line]
    assert found == {
        recipe.last_step: [],
        recipe.last_step + 1: [f"event 7: step: expected {recipe.last_step}, found {recipe.last_step + 1}"],
    }


def test_a_chat_template_beside_a_model_is_the_runs_own(tmp_path: Path) -> None:
    """It stands in no digest, so who made the bundle would choose the prompts."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    output = Output(kind="model", digest=describe_tree(model).digest, artifact=DIGEST, size=2)
    proven = bundle.Proven("r", Recipe(), {"export": output}, {}, "o", 1, b"")
    (model / "README.md").write_text("a card")
    (model / "chat_template.jinja").write_text(plain_template().text)
    assert bundle._exported(model, proven) == output.digest
    (model / "chat_template.jinja").write_text(plain_template().text + "{# #}")
    assert bundle._exported(model, proven) != output.digest


def test_messages_become_the_prompt_of_the_runs_own_template(monkeypatch: pytest.MonkeyPatch) -> None:
    template = "{% for m in messages %}[{{ m.role }}] {{ m.content }};{% endfor %}"
    plain = Recipe()
    own = msgspec.structs.replace(plain, dataset=FilesDataset(globs=("a.jsonl",), chat=True, chat_template=template))
    asked = [{"role": "user", "content": "a"}]
    for recipe, prompt in ((plain, plain_template().render(asked)), (own, "[user] a;")):
        brought = Subject("", recipe, cast(Any, None), cast(Any, None), DIGEST, 0, DIGEST, None)
        monkeypatch.setattr("marin.evaluation.folder_subject.open_folder", lambda *given, brought=brought: brought)
        opened = bundle._opened(Path("model"), recipe)()
        assert opened.template is not None and opened.template.render(asked) == prompt
        assert opened.earlier is not None and opened.earlier.render(asked) == prompt, "of rules before 4"
        assert replace(opened, template=None, earlier=None) == brought
