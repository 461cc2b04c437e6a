"""params.yaml: composed by Hydra, read strictly, and every mistake named with its path."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from marin.errors import Unsupported, UsageError
from marin.recipe.form.files import groups, sections_of
from marin.recipe.form.optimizer import ELEMENTWISE, OWN, foreign
from marin.recipe.model import MIXTURES, OF_MIXTURES
from marin.recipe.params import load_params
from marin.recipe.schema import Recipe, digest, from_mapping, from_plain

PROJECT = Path(__file__).resolve().parents[3]
CONF = PROJECT / "conf"
GROUPS = groups(CONF)
DEFAULT = Recipe(order="swap-or-not")
"""A recipe that does not name an order has that of recipes from before there were two."""


def composed(*overrides: str) -> str:
    with initialize_config_dir(str(CONF), version_base=None):
        config = compose(config_name="config", overrides=list(overrides))
    OmegaConf.resolve(config)
    return OmegaConf.to_yaml(config)


def test_params_yaml_is_what_hydra_composes_byte_for_byte() -> None:
    """So `dvc exp run` without changes leaves it, and `git status`, alone."""
    assert (PROJECT / "params.yaml").read_text() == composed()


def test_the_default_experiment_is_the_default_recipe() -> None:
    assert load_params(PROJECT / "params.yaml") == DEFAULT


@pytest.mark.parametrize("choice", [f"{group}={name}" for group, names in GROUPS.items() for name in names])
def test_every_member_of_every_group_is_a_whole_valid_section(choice: str, tmp_path: Path) -> None:
    group, name = choice.split("=")
    path = tmp_path / "params.yaml"
    across = OWN.keys() - {*ELEMENTWISE}
    exact = name.startswith("moe-") or name.endswith("-a3b") or name in across
    kind = ["profile=exact"] if exact else []
    kind += ["arithmetic.device_kind=some"] if choice in ("profile=arm-cpu", "profile=gpu", "profile=tpu") else []
    pairs = ["trainer.batch_size=16", "arithmetic.microbatch_size=2"] if choice == "dataset=preferences" else []
    pairs += ["trainer=babylm-1M"] if choice == "evaluation=babylm-1M" else []  # measured by its segments
    path.write_text(composed(choice, *kind, *pairs))
    recipe = load_params(path)
    written = OmegaConf.to_container(OmegaConf.load(CONF / group / f"{name}.yaml"))
    assert isinstance(written, dict)
    sections = sections_of(CONF, group, name)
    if "_global_" in (CONF / group / f"{name}.yaml").read_text().partition("\n")[0]:
        whole = {section: written[section] for section in sections if section in written}  # others are other members'
    else:
        whole = dict.fromkeys(sections, written)
    assert whole
    for section, own in whole.items():
        fields = set(getattr(recipe, section).__struct_fields__) | ({"kind"} if section == "dataset" else set())
        fields -= foreign(own["name"]) if section == "optimizer" else set()
        fields -= set(OF_MIXTURES) if section == "model" and own["architecture"] not in MIXTURES else set()
        assert set(own) == fields, "a group says every value, so that a new default changes nothing in silence"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "num_steps: 240",
            "num_steps: many",
            r"params.yaml: trainer.num_steps.*an integer >= 1 and <= 100000000.*'many'",
        ),
        ("num_steps: 240", "num_steps: 0", r"params.yaml: trainer.num_steps.*>= 1.*found 0"),
        ("hidden_dim: 128", "hidden_dim: 12.5", r"params.yaml: model.hidden_dim"),
        (
            "architecture: llama",
            "architecture: lama",
            r"params.yaml: model.architecture.*one of gpt2, llama, mistral, mixtral, olmo2, qwen3, qwen3_moe, found 'lama'",
        ),
        ("vocab_size: 2048", "vocab_sise: 2048", r"params.yaml: tokenizer.vocab_sise.*did you mean vocab_size"),
        (
            "learning_rate: 0.006",
            "learning_rate: -1",
            r"params.yaml: optimizer.learning_rate.*a number > 0.0 and <= 10.0, found -1",
        ),
        (
            "profile: portable-cpu",
            "profile: tpu",
            r"those of one kind: params.yaml: arithmetic.device_kind.*found None",
        ),
        (
            "name: adamw",
            "name: sgd",
            r"params.yaml: optimizer.name.*one of adafactor, adamh, adamw, cautious, lion, mini, muon.*, found 'sgd'",
        ),
        (
            "generator: threefry2x32-partitionable",
            "generator: rbg",
            r"arithmetic.generator.*threefry2x32-partitionable, found 'rbg'",
        ),
        (
            "seed: 0\norder",
            "recipe_version: 2\nseed: 0\norder",
            r"another version: params.yaml: recipe_version.*found 2",
        ),
        (
            "kind: grammar",
            "kind: grammer",
            r"params.yaml: dataset.kind.*one of grammar, url, files, artifact, documents, web, mixture, found 'grammer'",
        ),
        ("batch_size: 8\n  steps", "batch_size: 12\n  steps", r"params.yaml: trainer.batch_size.*multiple of"),
        ("logical_shards: 8", "logical_shards: 3", r"arithmetic.logical_shards.*one of 1, 2, 4, 8, 16"),
        ("seed: 0\norder", "seed: 1.5\norder", r"params.yaml: seed.*an integer >= 0 and <= \d+ or null, found 1.5"),
        (
            "  samples: null\n",
            "  samples: [Say]\n",
            r"evaluation.samples: expected a mapping of prompts, max_tokens, temperature, seed or null, found \['Say'\]",
        ),
        ("lora: null\n", "lora: 3\n", r"params.yaml: lora: expected a mapping of rank, alpha, .* or null, found 3"),
        ("model:", "model: &a", r"params.yaml"),
        ("  num_heads: 4", "  num_heads: 4\n  num_heads: 8", r"params.yaml:\d+:\d+.*duplicate key .num_heads."),
        ("model:", "model: [", r"params.yaml:\d+:\d+"),
        ("architecture: llama", "architecture: !!python/object/apply:os.getcwd []", r"params.yaml:\d+:\d+.*python"),
    ],
)
def test_a_mistake_is_named_with_its_place(old: str, new: str, message: str, tmp_path: Path) -> None:
    text = (PROJECT / "params.yaml").read_text()
    assert text.count(old) >= 1
    changed = text.replace(old, new, 1)
    path = tmp_path / "params.yaml"
    path.write_text(changed)
    if new == "model: &a":  # an anchor that nobody uses is still a mapping: valid YAML, and it must read equal
        assert load_params(path) == DEFAULT
        return
    with pytest.raises(UsageError, match=message) as caught:
        load_params(path)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  - --xla_cpu_max_isa=AVX2\n", ""),
        ("  - --xla_cpu_max_isa=AVX2\n", "  - --xla_cpu_max_isa=AVX512\n"),
        (
            "  - --xla_cpu_max_isa=AVX2\n",
            "  - --xla_cpu_max_isa=AVX2\n  - --xla_cpu_max_isa=AVX512\n",
        ),  # the last one counts
        ("platform_dependent_math=false", "platform_dependent_math=true"),
    ],
)
def test_flags_that_allow_the_bits_of_one_processor_are_unsupported(old: str, new: str, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text((PROJECT / "params.yaml").read_text().replace(old, new, 1))
    with pytest.raises(
        Unsupported, match=r"one processor only: params.yaml: arithmetic.xla_flags: .*max_isa=AVX2"
    ) as caught:
        load_params(path)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    "flag",
    [
        "--xla_dump_to=/home/user/.local/state/marin/pins",
        "--xla_backend_extra_options=-pass-remarks-output=/tmp/x",
        "--xla_gpu_ptx_file=/tmp/evil.ptx",
        "--xla_cpu_enable_fast_math=true --xla_cpu_max_isa=AVX512",
        "--xla_disable_all_hlo_passes=true",
        "--xla_force_host_platform_device_count=1000000",
        "/etc/passwd",
    ],
)
def test_a_recipe_gives_the_compiler_no_names_of_files(flag: str, tmp_path: Path) -> None:
    """Its flags reach XLA in the process of anyone who verifies."""
    path = tmp_path / "params.yaml"
    kept = "  - --xla_cpu_max_isa=AVX2\n"
    path.write_text((PROJECT / "params.yaml").read_text().replace(kept, f"  - {flag}\n{kept}", 1))
    with pytest.raises(UsageError, match=r"no setting of arithmetic: params.yaml: arithmetic.xla_flags"):
        load_params(path)


def test_a_recipe_may_have_more_settings_of_arithmetic(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    kept, more = "  - --xla_cpu_max_isa=AVX2\n", "  - --xla_cpu_enable_fast_min_max=false\n"
    path.write_text((PROJECT / "params.yaml").read_text().replace(kept, kept + more, 1))
    assert "--xla_cpu_enable_fast_min_max=false" in load_params(path).arithmetic.xla_flags


def test_a_missing_file_and_bytes_that_are_not_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no parameters"):
        load_params(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_bytes(b"seed: \xff")
    with pytest.raises(UsageError, match="byte 6"):
        load_params(tmp_path / "params.yaml")


@pytest.mark.parametrize("text", ["1e-3", "1.0e-3", "0.001", "1E-3", "10e-4"])
def test_numbers_are_numbers_however_they_are_written(text: str, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text((PROJECT / "params.yaml").read_text().replace("learning_rate: 0.006", f"learning_rate: {text}"))
    expected = digest(from_mapping({"optimizer": {"learning_rate": 0.001}, "order": "swap-or-not"}, where="test"))
    assert digest(load_params(path)) == expected


def test_a_file_far_longer_than_a_recipe_is_refused_before_it_is_parsed(tmp_path: Path):
    (tmp_path / "params.yaml").write_bytes(b"[" * (1 << 20))
    with pytest.raises(UsageError, match="too long"):
        load_params(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_bytes(b"[" * 5000)
    with pytest.raises(UsageError, match="not YAML"):
        load_params(tmp_path / "params.yaml")


def test_a_gpt2_has_the_width_that_its_recipe_says() -> None:
    """An older release cut it to a multiple of the outer one: its records keep that."""
    sizes = {"architecture": "gpt2", "hidden_dim": 128, "num_heads": 4}
    for inner, width in ((352, 352), (512, None), (384, 384), (64, 64)):
        model = from_mapping({"model": {**sizes, "intermediate_dim": inner}}, where="test").model
        assert (model.inner, model.inner_width) == (inner, width)
    old = from_plain({"model": {**sizes, "intermediate_dim": 352}}, where="test").model
    assert (old.inner, old.inner_width) == (256, None)
    with pytest.raises(UsageError, match="inner layer"):
        from_plain({"model": {**sizes, "intermediate_dim": 64}}, where="test")
