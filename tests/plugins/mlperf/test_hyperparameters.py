"""MLPerf's contract on hyperparameters: what is fixed, what may be tuned within which bounds, and where it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from marin.errors import UsageError
from marin.plugins.mlperf.benchmark import GRAMMAR_LM, rules_file
from marin.plugins.mlperf.command import mlperf
from marin.plugins.mlperf.hyperparameters import (
    Fixed,
    Formula,
    OneOf,
    Range,
    as_readme,
    as_rows,
    check,
    into_page,
    violations,
)
from marin.recipe.composition import compose
from marin.recipe.schema import Recipe

TABLE = GRAMMAR_LM.table
REFERENCE = compose([f"+benchmark={GRAMMAR_LM.name}"]).recipe
PROJECT = Path(__file__).resolve().parents[3]
SHA = "sha256:" + "a" * 64


def changed(path: str, value: object, recipe: Recipe = REFERENCE) -> Recipe:
    section, _, name = path.partition(".")
    inner: Any = getattr(recipe, section)
    return msgspec.structs.replace(recipe, **{section: msgspec.structs.replace(inner, **{name: value})})


# The contract


def test_the_reference_keeps_its_own_contract() -> None:
    assert violations(TABLE, REFERENCE) == []
    assert REFERENCE.seed is None, "it is drawn"


@pytest.mark.parametrize(
    ("path", "value", "name"),
    [
        ("trainer.batch_size", 128, "global_batch_size"),
        ("arithmetic.microbatch_size", 2, "micro_batch_size"),
        ("trainer.num_steps", 5000, "max_steps"),
        ("model.seq_len", 64, "max_sequence_length"),
        ("optimizer.name", "lion", "opt_name"),
        ("optimizer.learning_rate", 0.5, "opt_base_learning_rate"),
        ("optimizer.warmup_steps", 300, "opt_learning_rate_warmup_steps"),
        ("optimizer.beta1", 0.95, "opt_adamw_beta_1"),
        ("optimizer.beta2", 0.9, "opt_adamw_beta_2"),
        ("optimizer.epsilon", 1e-5, "opt_adamw_epsilon"),
        ("optimizer.weight_decay", 0.0, "opt_adamw_weight_decay"),
        ("optimizer.max_grad_norm", 2.0, "opt_gradient_clip_norm"),
        ("model.num_layers", 3, "model_num_layers"),
        ("tokenizer.vocab_size", 513, "vocabulary_size"),
        ("dataset.train_bytes", 400_001, "dataset"),
        ("evaluation.max_sequences", 63, "eval_max_sequences"),
    ],
)
def test_a_value_outside_of_the_contract_is_named(path: str, value: object, name: str) -> None:
    recipe = changed(path, value)
    (found,) = violations(TABLE, recipe)
    assert found.row.name == name
    with pytest.raises(UsageError) as error:
        check(TABLE, recipe, where="here")
    assert (error.value.where, error.value.expected) == (
        f"here: {name} ({found.row.field})",
        found.row.constraint.words,
    )
    assert str(error.value.found) == str(value) or name == "dataset"


def test_a_formula_is_held_against_its_own_parameters() -> None:
    decayed = changed("optimizer.schedule", "linear", changed("optimizer.min_lr_ratio", 0.5))
    assert [one.row.name for one in violations(TABLE, decayed)] == [
        "opt_end_learning_rate",
        "opt_learning_rate_decay_schedule",
    ]
    names = [row.name for row in TABLE]
    for place, row in enumerate(TABLE):
        if isinstance(row.constraint, Formula):
            assert row.constraint.names <= set(names[:place]), "the checker reads from the top"


@pytest.mark.parametrize("value", [7, 8, 9, 8.0, 8.5, 16, 0.05, 0.1, 0.11, "8", True, 0.006])
@pytest.mark.parametrize(
    "constraint",
    [
        Fixed(8),
        OneOf((8, 16)),
        Range(8, 16),
        Range(0.05, 0.1),
        Formula("base * 2", lambda values: 2 * values["base"]),  # type: ignore[operator]
    ],
)
def test_what_the_rules_file_says_is_what_the_contract_says(constraint: Any, value: Any) -> None:
    """The expression is evaluated as MLPerf's checker does. Only what JSON has two ways to write may differ: 8.0 and 8."""
    scope = {"v": {"value": value}, "s": {"base": 4}, "is_integer": lambda x: abs(round(x) - x) < 0.00001}
    ours = constraint.holds(value, {"base": 4})
    try:
        theirs = bool(eval(constraint.rule, scope))
    except TypeError:  # of a text: the checker counts that as a failed check
        theirs = False
    assert ours == theirs or isinstance(value, bool) or (isinstance(value, float) and value == 8)


def test_names_and_tables() -> None:
    names = [row.name for row in TABLE]
    assert len(set(names)) == len(names)
    readme, rules = as_readme(TABLE, REFERENCE), rules_file(GRAMMAR_LM)
    for row, told in zip(TABLE, as_rows(TABLE, REFERENCE), strict=True):
        assert f"| `{row.name}` | `{row.field}` |" in readme
        assert f"NAME:  {row.name}\n" in rules
        assert told["value"] == row.value(REFERENCE) and told["constraint"] == row.constraint.words
        node: Any = REFERENCE
        for part in row.field.split("."):
            node = getattr(node, part)


@pytest.mark.parametrize("name", ["docs/mlperf.md", "benchmarks/grammar_lm/README.md"])
def test_page_and_readme_have_the_table(name: str) -> None:
    page = (PROJECT / name).read_text("utf-8")
    assert page == into_page(page, as_readme(TABLE, REFERENCE), where=name), f"run `marin mlperf table --into {name}`"


def test_the_readme_has_the_sections_of_a_reference() -> None:
    page = (PROJECT / "benchmarks" / "grammar_lm" / "README.md").read_text("utf-8")
    sections = ["Summary", "Directions", "Environment", "Data set", "Model", "Hyperparameters", "Quality"]
    assert re.findall(r"(?m)^## (.*)$", page) == [f"{number}. {name}" for number, name in enumerate(sections, 1)]
    assert all(re.split(r"(?m)^## .*$", page)[1:]), "none is empty"


def test_the_command_writes_the_table_into_a_page(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- table -->\nan old one\n<!-- /table -->\nafter\n")
    said = CliRunner().invoke(mlperf, ["table", "--into", str(page)])
    assert (said.exit_code, said.output) == (0, "")
    assert page.read_text() == f"before\n<!-- table -->\n{as_readme(TABLE, REFERENCE)}<!-- /table -->\nafter\n"
    for wrong in ("before\n", "<!-- /table -->\n<!-- table -->\n", "<!-- table -->\n", page.read_text() * 2):
        with pytest.raises(UsageError, match="no place for the table"):
            into_page(wrong, "", where="README.md")
    assert isinstance(CliRunner().invoke(mlperf, ["table", "--as", "rules", "--into", str(page)]).exception, UsageError)
