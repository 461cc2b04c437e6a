"""What differs among runs, columns by any name, filters and orders."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import UsageError
from marin.history.table.query import conditions, in_order, matching_rows
from marin.history.table.rows import Row, Table
from marin.history.table.varied import distinguishing_name, key_differences, short_titles, short_value


def recipe(rate: float, seed: int, layers: int = 2, seq_len: int = 32, **more: object) -> dict[str, object]:
    return {
        "dataset": {"name": "grammar", "kind": "grammar"},
        "model": {"architecture": "llama", "num_layers": layers, "hidden_dim": 16 * layers, "seq_len": seq_len},
        "optimizer": {"name": "adamw", "learning_rate": rate.hex(), "beta1": (0.9).hex()},
        "seed": seed,
        **more,
    }


SWEEP = {f"r{rate}{seed}": recipe(rate, seed) for rate in (0.003, 0.006) for seed in (1, 2)}


def test_what_differs_is_found_and_the_seed_stands_last() -> None:
    found = key_differences(SWEEP)
    assert found.keys == ("optimizer.learning_rate", "seed") and found.without_seed == ("optimizer.learning_rate",)
    assert found.values["r0.0062"] == {"optimizer.learning_rate": "0.006", "seed": "2"}
    assert found.titles == {"optimizer.learning_rate": "learning_rate", "seed": "seed"}
    assert key_differences({"one": recipe(0.1, 1)}).keys == () and key_differences({}).keys == ()


def test_what_follows_from_a_model_is_told_by_its_name() -> None:
    sizes = key_differences({"a": recipe(0.1, 1), "b": recipe(0.1, 1, layers=4)})
    assert sizes.keys == ("model",) and sizes.values["b"] == {"model": "llama-4x64"}
    assert sizes.follows == ("model.hidden_dim", "model.num_layers")
    longer = key_differences({"a": recipe(0.1, 1), "b": recipe(0.1, 1, seq_len=64)})
    assert longer.keys == ("model.seq_len",), "the name says nothing of it"
    both = key_differences({"a": recipe(0.1, 1), "b": recipe(0.1, 1, layers=4), "c": recipe(0.1, 1, seq_len=64)})
    assert both.keys == ("model", "model.seq_len")


def test_what_follows_from_a_profile_is_told_by_it_and_a_name_says_of_what_it_is() -> None:
    plain, exact = ({"profile": name, "isa": isa} for name, isa in (("portable-cpu", "x86-64-v3"), ("exact", "any")))
    found = key_differences(
        {"a": recipe(0.1, 1, arithmetic=plain), "b": recipe(0.2, 1, arithmetic=exact, objective={"name": "grpo"})}
    )
    assert found.keys == ("arithmetic.profile", "objective.name", "optimizer.learning_rate")
    assert found.follows == ("arithmetic.isa",)
    assert list(found.titles.values()) == ["profile", "objective.name", "learning_rate"]


def test_what_a_loop_is_called_is_told_by_model() -> None:
    """Beside a column `model` of the same words a column `loop.name` said nothing."""
    loops = {"a": {"loop": {"name": "one"}, "lr": 1}, "b": {"loop": {"name": "two"}, "lr": 2}, "c": recipe(0.1, 1)}
    found = key_differences(loops)
    assert "model" in found.keys and "loop.name" in found.follows and found.values["b"]["model"] == "two"
    alike = key_differences({"a": {"loop": {"name": "llama-2x32"}}, "b": {"model": recipe(0.1, 1)["model"]}})
    assert "loop.name" in alike.keys, "nothing else tells these two apart"


def test_a_key_with_a_dot_beside_a_section_of_that_name_stays_a_key() -> None:
    """One of the two took the place of the other in lists, MLflow and the library. A record is in the order of its keys."""
    found = key_differences({"a": {"lr": {"base": 2}, "lr.base": 1}, "b": {"lr": {"base": 2}, "lr.base": 3}})
    assert found.keys == ("lr_x2e_base",) and found.values["b"] == {"lr_x2e_base": "3"}


def test_a_key_that_one_recipe_does_not_have_differs() -> None:
    found = key_differences({"a": recipe(0.1, 1), "b": recipe(0.1, 1, lora={"rank": 8})})
    assert found.keys == ("lora.rank",) and found.values["a"] == {"lora.rank": ""}


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(".".join), unique=True))
def test_short_titles_are_ends_and_tell_apart(keys: list[str]) -> None:
    titles = short_titles(keys)
    assert all(key == title or key.endswith(f".{title}") for key, title in titles.items())
    assert len(set(titles.values())) == len(keys)


def test_a_whole_number_has_all_its_digits() -> None:
    """Seeds of a clock: as floats, or by six digits, they are one."""
    seeds = (9007199254740992, 9007199254740993)
    rows = [Row(str(seed), recipe(0.003, seed), {}, {}, {}) for seed in seeds]
    assert [row.run for row in matching_rows(Table(rows), [f"seed = {seeds[1]}"])] == [str(seeds[1])]
    assert [row.run for row in matching_rows(Table(rows), [f"seed > '{seeds[0]}'"])] == [str(seeds[1])]
    assert [row.run for row in in_order(Table(rows), rows, "seed desc")] == [str(seed) for seed in reversed(seeds)]
    assert {short_value(str(seed)) for seed in seeds} == {str(seed) for seed in seeds}
    assert [row.run for row in matching_rows(Table(rows), ["seed != 0 and optimizer.learning_rate > 0"])] == [
        str(seed) for seed in seeds
    ]


def test_a_run_is_called_by_what_sets_it_apart() -> None:
    found = key_differences(SWEEP)
    assert distinguishing_name(found.keys, found.values["r0.0062"]) == "learning_rate=0.006 seed=2"
    assert distinguishing_name((), {}) == ""


ROWS = [
    Row(
        "aaa1",
        recipe(0.003, 1),
        {"evaluate.loss": 3.2, "evaluate.pairs_won": 0.5},
        {"team": "data"},
        {"state": "completed"},
    ),
    Row("bbb2", recipe(0.006, 1), {"evaluate.loss": 3.1}, {"layers": "12"}, {"state": "completed"}),
    Row("ccc3", recipe(0.02, 10, trainer={"num_steps": 1_500_000}), {}, {}, {"state": "open"}),
]


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("loss < 3.15", ["bbb2"]),
        ("evaluate.loss <= 3.2 and optimizer.learning_rate < 0.006", ["aaa1"]),
        ("metrics.`evaluate.loss` > 3.15 AND params.seed = '1'", ["aaa1"]),
        ("learning_rate >= 6e-3", ["bbb2", "ccc3"]),
        ("seed > 9", ["ccc3"]),
        ("tags.team = data", ["aaa1"]),
        ("tags.team != data", ["bbb2", "ccc3"]),
        ("state LIKE 'comp%'", ["aaa1", "bbb2"]),
        ("state ilike 'OP_N'", ["ccc3"]),
        ("pairs_won>0.4", ["aaa1"]),
        ("loss != 3.2", ["bbb2", "ccc3"]),
        ('optimizer.name = "adamw" and state = "open"', ["ccc3"]),
        ("optimizer.name < 3", []),
        ("params.trainer.num_steps = '1500000'", ["ccc3"]),
        ("trainer.num_steps != '1500000' and seed = 1", ["aaa1", "bbb2"]),
        ("trainer.num_steps LIKE '15%'", ["ccc3"]),
        ("tags.layers = 12 and tags.layers > 9", ["bbb2"]),
        ("tags.layers = '12'", ["bbb2"]),
        ("learning_rate = '0.00300000001'", []),
    ],
)
def test_a_filter_leaves_the_runs_for_which_it_holds(text: str, runs: list[str]) -> None:
    assert [row.run for row in matching_rows(Table(ROWS), [text])] == runs


@pytest.mark.parametrize(
    "text",
    ["", "loss", "loss <", "< 3", "loss < 3 or seed = 1", "loss < 3 and", "loss ~ 3", "'loss' < 3", "loss < < 3"],
)
def test_a_filter_that_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"a filter that cannot be read.*write it as in"):
        conditions([text])


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        matching_rows(Table(ROWS), [text])
        in_order(Table(ROWS), ROWS, text)
    except UsageError as error:
        assert error.cure


def test_an_unknown_name_is_told_the_nearest_and_one_of_several_all() -> None:
    with pytest.raises(UsageError, match=r"no such column.*did you mean optimizer\.learning_rate"):
        Table(ROWS).column("optimizer.lerning_rate", where="--sort")
    with pytest.raises(UsageError, match=r"several columns are called so.*dataset\.name, optimizer\.name"):
        Table(ROWS).column("name", where="--sort")


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("loss", ["bbb2", "aaa1", "ccc3"]),
        ("-loss", ["aaa1", "bbb2", "ccc3"]),
        ("seed, learning_rate desc", ["bbb2", "aaa1", "ccc3"]),
        ("learning_rate DESC", ["ccc3", "bbb2", "aaa1"]),
    ],
)
def test_an_order_has_runs_without_a_value_last(text: str, runs: list[str]) -> None:
    table = Table(ROWS)
    assert [row.run for row in in_order(table, table.rows, text)] == runs
    with pytest.raises(UsageError, match="an order that cannot be read"):
        in_order(table, table.rows, "loss upwards")


def test_not_a_number_is_last_and_disturbs_no_order() -> None:
    """As MLflow orders metrics; Python's sort leaves any order around it."""
    numbers = {"a": 3.0, "b": math.nan, "c": 1.0, "d": math.nan, "e": 2.0, "f": math.inf}
    rows = [Row(run, recipe(0.003, 1), {"evaluate.loss": value}, {}, {}) for run, value in numbers.items()]
    assert [row.run for row in in_order(Table(rows), rows, "loss")] == ["c", "e", "a", "f", "b", "d"]
    assert [row.run for row in in_order(Table(rows), rows, "loss desc")] == ["f", "a", "e", "c", "b", "d"]
