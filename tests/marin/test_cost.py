"""What a step will cost: against Levanter's own estimate, published numbers of parameters, and what a run recorded."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import UsageError
from marin.history.measured import MeasuredThroughput, Measurement
from marin.recipe import cost
from marin.recipe.composition import compose
from marin.recipe.schema import FilesDataset, Model, Recipe, Trainer
from marin.recipe.units import human_size, human_time

PROJECT = Path(__file__).resolve().parents[2]
PRICES = cost.load_prices(PROJECT / "conf" / "prices.yaml")


@pytest.fixture(scope="module")
def levanter_flops() -> ModuleType:
    """Levanter's formula by its file: the package around it takes ten seconds to import."""
    package = importlib.util.find_spec("levanter")
    assert package is not None and package.submodule_search_locations
    path = Path(package.submodule_search_locations[0]) / "utils" / "flop_utils.py"
    spec = importlib.util.spec_from_file_location("levanter_flops", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@given(
    head=st.integers(4, 64).map(lambda n: 2 * n),
    kv_heads=st.integers(1, 8),
    groups=st.integers(1, 4),
    intermediate=st.integers(1, 8192),
    layers=st.integers(1, 48),
    seq_len=st.integers(8, 8192),
    vocab=st.integers(258, 200_000),
    gpt2=st.booleans(),
)
def test_flops_are_those_of_levanter(
    levanter_flops: ModuleType,
    head: int,
    kv_heads: int,
    groups: int,
    intermediate: int,
    layers: int,
    seq_len: int,
    vocab: int,
    gpt2: bool,
) -> None:
    heads = kv_heads * groups
    hidden = head * heads
    intermediate = hidden * max(1, intermediate // hidden) if gpt2 else intermediate
    model = Model(
        architecture="gpt2" if gpt2 else "llama",
        hidden_dim=hidden,
        intermediate_dim=intermediate,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        seq_len=seq_len,
    )
    expected = levanter_flops.lm_flops_per_token(
        hidden_dim=hidden,
        intermediate_dim=intermediate,
        num_layers=layers,
        num_kv_heads=heads if gpt2 else kv_heads,
        num_heads=heads,
        seq_len=seq_len,
        vocab_size=vocab,
        glu=not gpt2,
    )
    assert cost.flops_per_token(model, vocab) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("architecture", "hidden", "layers", "heads", "expected"),
    [
        ("gpt2", 768, 12, 12, 124_439_808),  # as published for GPT-2, with 50,257 tokens and 1,024 positions
        ("gpt2", 1024, 24, 16, 354_823_168),
    ],
)
def test_parameters_are_the_published_numbers(
    architecture: str, hidden: int, layers: int, heads: int, expected: int
) -> None:
    model = Model(
        architecture="gpt2",
        hidden_dim=hidden,
        intermediate_dim=4 * hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        seq_len=1024,
        tie_word_embeddings=True,
    )
    assert cost.parameters(model, 50_257) == expected


def test_the_published_llama_3_2_1b() -> None:
    model = Model(
        hidden_dim=2048,
        intermediate_dim=8192,
        num_layers=16,
        num_heads=32,
        num_kv_heads=8,
        seq_len=4096,
        tie_word_embeddings=True,
    )
    assert cost.parameters(model, 128_256) == 1_235_814_400


def test_the_published_qwen3() -> None:
    """1.7 billion, 1.4 of them beside the embeddings, as its authors say (arXiv:2505.09388)."""
    model = compose(["model=qwen3-1.7b"]).recipe.model
    assert cost.parameters(model, 151_936) == 1_720_574_976
    assert cost.parameters(model, 151_936) - 151_936 * model.hidden_dim == 1_409_410_048


def test_published_mixtures_of_experts_and_what_is_executed_of_them() -> None:
    """Mixtral 8x7B and Qwen3 30B-A3B, as their folders on the Hub count them; their authors say 12.9 and 3.3 billion active."""
    mixtral = Model(
        architecture="mixtral",
        hidden_dim=4096,
        intermediate_dim=14336,
        num_layers=32,
        num_heads=32,
        num_kv_heads=8,
        num_experts=8,
        num_experts_per_tok=2,
    )
    qwen3 = Model(
        architecture="qwen3_moe",
        hidden_dim=2048,
        intermediate_dim=768,
        num_layers=48,
        num_heads=32,
        num_kv_heads=4,
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
    )
    assert cost.parameters(mixtral, 32_000) == 46_702_792_704
    assert cost.parameters(qwen3, 151_936) == 30_532_122_624
    small = compose(["model=moe-nano", "profile=exact"]).recipe
    alike = msgspec.structs.replace(small, model=msgspec.structs.replace(small.model, num_experts_per_tok=4))
    for step in ("train", "evaluate"):
        sparse, every = cost.work_of(step, small), cost.work_of(step, alike)
        assert sparse.flops < every.flops and sparse.executed_flops == pytest.approx(every.executed_flops)
        assert sparse.memory_bytes == every.memory_bytes, "every expert has a place for every token"


def test_the_state_is_as_large_as_the_committed_run_recorded_it() -> None:
    recorded = json.loads((PROJECT / "artifacts" / "train.json").read_text())["size"]
    assert 0 <= recorded - cost.state_bytes(Recipe()) < 100, "step, cursor, key and counters besides the tensors"


def test_training_is_three_forward_passes() -> None:
    recipe = Recipe()
    work = cost.work_of("train", recipe)
    tokens = 240 * 8 * 128
    assert work.flops == pytest.approx(3 * tokens * cost.flops_per_token(recipe.model, 2048))
    again = cost.work_of(
        "train",
        msgspec.structs.replace(recipe, model=msgspec.structs.replace(recipe.model, gradient_checkpointing=True)),
    )
    assert again.flops == work.flops and again.executed_flops == pytest.approx(work.flops * 4 / 3)
    assert again.memory_bytes < work.memory_bytes


def test_an_evaluation_keeps_no_layer_for_a_backward_pass() -> None:
    shallow, deep = (Recipe(model=Model(num_layers=layers)) for layers in (2, 20))
    weights = 4 * (cost.parameters(deep.model, 2048) - cost.parameters(shallow.model, 2048))
    memory = [cost.work_of("evaluate", recipe).memory_bytes for recipe in (shallow, deep)]
    assert memory[1] - memory[0] == weights, "more layers cost their weights and nothing else"


def test_the_sizes_that_an_experiment_names_are_those_of_its_models() -> None:
    from experiments import exp001_grammar_scaling as scaling

    sizes = [f"{cost.parameters(model, scaling.VOCABULARY) / 1e6:.2f}" for model in scaling.SIZES.values()]
    named = f"{sizes[0]}, {sizes[1]} and {sizes[2]} million"
    assert named in scaling.experiment.hypothesis and named in (scaling.__doc__ or "")


def test_an_estimate_by_the_table_names_what_it_rests_on() -> None:
    work = cost.work_of("train", Recipe())
    one = cost.estimate("train", work, PRICES, "h100")
    assert one.seconds == pytest.approx(15 + work.flops / (6.7e13 * 0.4))
    assert one.price == pytest.approx(one.seconds / 3600 * 3.0)
    assert "40%" in one.basis and one.fits
    many = cost.estimate("train", work, PRICES, "h100", devices=8)
    assert many.price is not None and many.seconds is not None and many.seconds < one.seconds


def test_a_model_that_does_not_fit_is_said() -> None:
    model = Model(hidden_dim=8192, intermediate_dim=28672, num_layers=80, num_heads=64, num_kv_heads=8, seq_len=4096)
    work = cost.work_of("train", Recipe(model=model))
    assert not cost.estimate("train", work, PRICES, "h100").fits


def test_devices_of_this_machine_have_one_memory() -> None:
    one, four = (cost.work_of("train", Recipe(), devices=devices) for devices in (1, 4))
    here, there = (
        [cost.estimate("train", work, PRICES, name).memory_bytes for work in (one, four)] for name in ("here", "h100")
    )
    assert here == [work.devices * work.memory_bytes + PRICES.device("here").process_bytes for work in (one, four)]
    assert here[1] > 3 * (here[0] - PRICES.device("here").process_bytes) and there[1] < there[0]


def test_what_was_measured_wins_on_this_machine_only() -> None:
    recipe = Recipe()
    measured = MeasuredThroughput()
    measured.add("train", Measurement("aaa", cost.work_of("train", recipe), 30.0))
    same = cost.estimate("train", cost.work_of("train", recipe), PRICES, "here", measured)
    assert same.seconds == 30.0 and same.basis == "measured in run aaa"
    double = msgspec.structs.replace(recipe, trainer=Trainer(num_steps=480))
    scaled = cost.estimate("train", cost.work_of("train", double), PRICES, "here", measured)
    assert scaled.seconds == pytest.approx(15 + 2 * 15) and scaled.basis == "scaled from run aaa"
    elsewhere = cost.estimate("train", cost.work_of("train", recipe), PRICES, "h100", measured)
    assert "peak" in elsewhere.basis


def test_a_run_that_was_mostly_its_start_says_nothing_of_the_speed() -> None:
    small = Recipe(
        model=Model(hidden_dim=32, intermediate_dim=88, num_layers=2, num_heads=2, num_kv_heads=2, seq_len=32),
        trainer=Trainer(num_steps=4),
    )
    measured = MeasuredThroughput()
    measured.add("train", Measurement("tiny", cost.work_of("train", small), 40.0))
    found = cost.estimate("train", cost.work_of("train", Recipe()), PRICES, "here", measured)
    alone = cost.work_of("train", Recipe()).flops / (2 * 8e10 * 0.25)
    assert found.seconds == pytest.approx(40.0 + alone, rel=0.01) and "started as run tiny" in found.basis


def test_an_unknown_step_costs_what_it_took_before_and_nothing_is_invented() -> None:
    measured = MeasuredThroughput()
    unknown = cost.Work.unknown()
    nothing = cost.estimate("plot", unknown, PRICES, "here", measured)
    assert nothing.seconds is None and nothing.price is None
    measured.add("plot", Measurement("aaa", unknown, 4.0))
    assert cost.estimate("plot", unknown, PRICES, "here", measured).seconds == 4.0
    total = cost.totals([nothing, cost.estimate("train", cost.work_of("train", Recipe()), PRICES)])
    assert total.basis == "without 1 of 2 steps" and total.seconds is not None


@given(st.lists(st.floats(0, 1e6), max_size=6))
def test_totals_are_sums(seconds: list[float]) -> None:
    items = [cost.Estimate("s", 1.0, s, 2.0, s, s / 2, "USD", "here", "") for s in seconds]
    total = cost.totals(items)
    assert total.seconds == pytest.approx(sum(seconds)) and total.price == pytest.approx(sum(seconds) / 2)
    assert total.memory_bytes == max(seconds, default=0.0)


def test_text_of_files_is_what_lies_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("x" * 100)
    monkeypatch.chdir(tmp_path)
    for pattern in ("*.txt", str(tmp_path / "*.txt")):
        assert cost.text_bytes(Recipe(dataset=FilesDataset(globs=(pattern,)))) == 100
    assert cost.text_bytes(Recipe(dataset=FilesDataset(globs=("none/*.txt",)))) == 0


def test_mistakes_in_the_table_and_in_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean h100"):
        PRICES.device("h10")
    path = tmp_path / "prices.yaml"
    path.write_text("date: 2026-01-01\ncurrency: USD\ndevices: {a: {note: x, hourly: -1}}\n")
    with pytest.raises(UsageError, match=r"prices.yaml.*found"):
        cost.load_prices(path)
    with pytest.raises(UsageError, match="no price table"):
        cost.load_prices(tmp_path / "none.yaml")


def test_words() -> None:
    assert [human_time(s) for s in (5, 89, 600, 7200, 360_000)] == ["5 s", "89 s", "10 min", "2.0 h", "4.2 d"]
    assert [human_size(n) for n in (0, 5, 1500, 2.5e6, 3e12)] == ["0 B", "5 B", "1.5 kB", "2.5 MB", "3.0 TB"]


@pytest.mark.parametrize(
    ("model", "devices", "slices", "fits"),
    [("llama-8b", 64, 1, True), ("llama-8b", 1, 1, False), ("llama-70b", 64, 1, True), ("llama-70b", 64, 16, False)],
)
def test_a_model_that_no_device_holds_whole_fits_layer_by_layer(
    model: str, devices: int, slices: int, fits: bool
) -> None:
    """8 billion parameters are 32 GB, and with gradient and moments no H100 holds them; 64 do, unless each of many slices
    has all."""
    given = [
        f"model={model}",
        "profile=gpu",
        "arithmetic.device_kind=NVIDIA H100 80GB HBM3",
        "arithmetic.logical_shards=64",
        "trainer.batch_size=64",
        "model.gradient_checkpointing=false",
    ]
    whole = [f"arithmetic.{name}=null" for name in ("gather", "loss_block", "loss_vocabulary")]
    for more, expected, passes in (([], fits, 4), (whole, False, 3)):
        work = cost.work_of("train", compose([*given, *more]).recipe, devices=devices, slices=slices)
        assert cost.estimate("train", work, PRICES, "h100", devices=devices).fits is expected
        assert work.executed_flops == pytest.approx(work.flops * passes / 3), "each layer is computed again"
