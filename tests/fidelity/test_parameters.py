"""Parameters and overrides beside Hydra, which composes the groups and a command line, and DVC, which reads params.yaml."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from typing import Any

import pytest
from dvc.utils.serialize import loads_yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from marin.errors import MarinError, UsageError
from marin.recipe.composition import compose, sweep
from marin.recipe.form.yaml import NotYaml, read_yaml
from marin.recipe.params import load_params
from marin.recipe.schema import digest, from_mapping

PROJECT = Path(__file__).resolve().parents[2]
REFUSED = "refused"


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The groups of this repository, and some of one's own."""
    conf = tmp_path_factory.mktemp("project") / "conf"
    shutil.copytree(PROJECT / "conf", conf)
    own = {
        "regime/five": "# @package _global_\ntrainer:\n  num_steps: 5\nseed: 5\n",
        "regime/chosen": "# @package _global_\ndefaults:\n  - override /optimizer: wsd\nseed: 6\n",
        "regime/rate": "# @package optimizer\nlearning_rate: 1e-4\nepsilon: 1.0e-9\n",
        "regime/bound": "# @package _global_\nseed: ${optimizer.warmup_steps}\ntrainer:\n  num_steps: ${seed}\n",
        "regime/ordered": "# @package _global_\ndefaults:\n  - _self_\n  - five\nseed: 8\noptimizer:\n  beta1: 0.5\n",
        "regime/open": "# @package _global_\nseed: ???\ntrainer:\n  num_steps: 6\n",
        "regime/inside": "#@package _global_.trainer\nnum_steps: 6\n",
        "regime/late": "# a comment ends the head\n# @package _global_\nnum_steps: 6\n",
        "regime/within": "# @package _global_\ndefaults:\n  - /regime@trainer: inside\nseed: 9\n",
        "optimizer/lion": "defaults:\n  - adamw\nname: lion\nlearning_rate: 1e-4\n",
        "model/small/narrow": "defaults:\n  - /model/nano\n  - _self_\nhidden_dim: 16\n",
    }
    for name, text in own.items():
        (conf / f"{name}.yaml").parent.mkdir(exist_ok=True)
        (conf / f"{name}.yaml").write_text(text)
    return conf


def by_hydra(words: list[str], conf: Path) -> str:
    """The digest of what Hydra itself composes, or that it is refused, by Hydra or by the types of a recipe."""
    try:
        with initialize_config_dir(str(conf), version_base=None):
            config = hydra_compose("config", overrides=words)
        values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        assert isinstance(values, dict)
        return digest(from_mapping({str(key): value for key, value in values.items()}, where="hydra"))
    except Exception:  # of Hydra, of what it resolves, or of the recipe
        return REFUSED


def by_marin(words: list[str], conf: Path) -> str:
    try:
        return digest(compose(words, conf=conf).recipe)
    except UsageError:
        return REFUSED


TAKEN = """
seed=1
seed=1 seed=2
seed=1_000
seed=${optimizer.warmup_steps}
seed=${trainer.num_steps} trainer.num_steps=9
seed=${oc.select:dataset.seed,4}
seed=${oc.select:nowhere,4}
seed=${oc.decode:'12'}
seed=int(3.7)
seed=int('7')
seed=null
~seed
~seed=0
++seed=3
++seed=3 seed=4
seed=1 ~seed
seed=0x10
seed=+5
model=nano
model=nano model=1m
model=[nano,1m]
model=nano model.num_layers=3
model.num_layers=3 model=nano
model={num_layers: 2}
model={num_layers: 2, seq_len: 64}
model=nano.yaml
model=small/narrow
model=nano trainer=smoke optimizer=wsd
optimizer=lion
optimizer=wsd optimizer.decay=null
optimizer.learning_rate=1e-4
optimizer.learning_rate=1E-4
optimizer.learning_rate=.5
optimizer.learning_rate=1.e-3
optimizer.learning_rate=1
optimizer.learning_rate=${optimizer.epsilon}
optimizer={learning_rate: 0.1}
optimizer={learning_rate: 0.1, warmup_steps: 3}
optimizer={}
+optimizer={learning_rate: 0.1}
++optimizer={beta1: 0.5}
++optimizer.beta1=0.5
+optimizer.decay=0.2 optimizer.schedule=linear
~optimizer.beta1
~optimizer.beta1=0.9
~optimizer.beta1 +optimizer.beta1=0.8
~evaluation.minimal_pairs
~evaluation.minimal_pairs=300
optimizer.min_lr_ratio=0
optimizer.min_lr_ratio=-0.0
optimizer.warmup_steps=0
tokens.append_eos=false
tokens.append_eos=FALSE
tokens.append_eos=bool('false')
~tokens.append_eos=true
tokens={}
~tokens
~export
+lora={rank: 4}
++lora.rank=4
lora={rank: 4}
+lora.rank=4 +lora.alpha=2
+mixture.weights={a: 1} dataset=mixture dataset.name=x
dataset=mixture mixture.weights={grammar: 0.2, shakespeare: 0.8}
dataset=mixture mixture.weights={grammar: 0.2}
dataset=mixture mixture.weights.grammar=0.2
dataset=mixture mixture={weights: {grammar: 3}, block_size: 64}
dataset=mixture dataset.parts.grammar.seed=4
dataset=mixture ~dataset.parts.shakespeare ~mixture.weights.shakespeare
dataset=files
dataset=files dataset.globs=[a.txt,b.txt]
dataset=files dataset.globs=['a b.txt']
dataset=files dataset.globs.0=x
dataset=files dataset.globs=[${dataset.name}/*.txt]
dataset=files dataset.globs=[${dataset.name}/${seed}.txt]
dataset=files dataset.globs=['\\${dataset.name}/*.txt']
dataset=files dataset.globs=[a\\,b.txt]
dataset=files dataset.text_field=a\\ b
dataset=files dataset.text_field='it\\'s'
dataset=files dataset.text_field="a: b"
dataset=files dataset.text_field='010'
dataset=files dataset.text_field=010
dataset=files dataset.text_field=yes
dataset=files dataset.text_field=12:30
dataset=files dataset.text_field=str(1)
dataset=files dataset.text_field=1e-4x
dataset=files dataset.text_field='$x'
dataset=files dataset.text_field=été
dataset=files dataset.chat=true dataset.chat_reference=transformers
dataset=files dataset.validation_fraction=1e-2
dataset=files dataset.minimal_pairs=p.jsonl
dataset=files dataset.minimal_pairs=null
dataset=babylm_10M
dataset=babylm_10M tokenizer=bpe-2k
dataset=books trainer.num_steps=90
trainer.states_at_words=[1,2]
trainer.packing=isolated
trainer.packing='isolated'
trainer={num_steps: 9, batch_size: 16}
evaluation={batch_size: 4} evaluation.max_sequences=8
evaluation.every=30 evaluation.sets={held: {kind: corpus}}
profile=exact
profile=exact arithmetic.microbatch_size=2
arithmetic.threads=4
+regime=five
+regime=five seed=7
+regime=chosen
+regime=rate
+regime=bound trainer.num_steps=4
+regime=[five,rate]
+regime=five +regime@optimizer=rate
+regime=ordered
+regime=open
+regime=inside
+regime=within
+regime=five ~regime
+regime=five ~regime=five
+benchmark=grammar_lm seed=0
""".strip().split("\n")

NOT_TAKEN = """
+seed=1
~seed=1
~optimizer.decay
~optimizer.beta1=0.5
~nowhere
~nowhere=1
~~seed
seed
seed:1
=1
seed=
seed=???
seed=1,2
seed=choice(1)
seed=choice(1,2)
seed=range(1,3)
seed=interval(0,1)
seed=010
seed=0o10
seed=12:30
seed=1.5
seed=1e1
seed=true
seed='1'
seed=yes
seed=-1
seed=nan
seed=inf
seed={a: 1}
seed=[1]
seed=${nowhere}
seed=${seed}
seed=${nothing:3}
seed=${hydra:runtime.cwd}
seed=int(x)
seed@optimizer=1
seed.x=1
+evaluation.x=1
++evaluation.x=1
evaluation.x=1
evaluation={x: 1}
+optimizer.learning_rate=0.1
+tokens.append_eos=false
optimizer.learning_rate=1e-2x
optimizer.learning_rate='1e-2'
optimizer.learning_rate=0
optimizer/learning_rate=1e-3
optimizer@optimizer=wsd
optimizer@elsewhere=wsd
+optimizer@elsewhere=wsd
++model=nano
~model=nano
model=null
model=5
model=nosuch
model=[nano,nosuch]
model=../trainer/smoke
/model=nano
model.=1
.model=1
regime=five
+regime=none
+regime=late
~regime
+regime=five ~regime=rate
regime.five=1
sources=babylm
+sources=babylm
dataset=files dataset.globs=a
dataset=files dataset.globs=[]
dataset=files dataset.globs=[1]
dataset=files dataset.globs.7=x
dataset=files dataset.chat=yes
dataset={kind: files, globs: [a]}
dataset=mixture mixture.weights={gramar: 1}
dataset=files dataset.text_field='it''s'
dataset=files dataset.globs=[a
trainer.num_steps=${oc.decode:x}
tokens=5
trainer.packing="no"
""".strip().split("\n")

REFUSED_HERE = {
    "dataset=files dataset.text_field=${oc.env:FIELD,x}": "reads the environment or a clock",
    "dataset=files dataset.text_field=${now:%Y}": "reads the environment or a clock",
    "+regime=five trainer.num_steps='${oc.decode:${oc.env:STEPS,3}}'": "reads the environment or a clock",
    "dataset=files dataset.globs=['${oc.decode:\"${oc.env:GLOB,x}\"}']": "reads the environment or a clock",
    "~model": "a recipe needs each of its groups",
    "~optimizer=adamw": "a recipe needs each of its groups",
    "hydra.verbose=true": "ettings of Hydra's own",
    "hydra.run.dir=x seed=1": "ettings of Hydra's own",
}


@pytest.mark.table
@pytest.mark.parametrize("line", [*TAKEN, *NOT_TAKEN])
def test_arguments(compare: Any, conf: Path, line: str) -> None:
    """The same recipe, digest by digest, or refused by both."""
    words = split(line)
    expected = by_hydra(words, conf)
    if line in NOT_TAKEN and line not in ("model=../trainer/smoke",):
        assert expected == REFUSED
    compare("arguments", line, lambda: by_marin(words, conf), expected)


@pytest.mark.parametrize("line", sorted(REFUSED_HERE))
def test_arguments_that_only_hydra_takes(compare: Any, conf: Path, line: str) -> None:
    words = split(line)
    assert by_hydra(words, conf) != REFUSED
    compare("arguments", line, lambda: compose(words, conf=conf), None, refusal=REFUSED_HERE[line])


def split(line: str) -> list[str]:
    """The words of a line as a shell would give them, without its quotes: a word begins where a KEY= begins."""
    words: list[str] = []
    for part in line.split(" "):
        starts = part.lstrip("+~").partition("=")[0].split("@")[0].replace(".", "").replace("/", "").replace("_", "")
        new = not words or ((part[:1] in "+~" or "=" in part) and (starts.isalnum() and ":" not in starts))
        words = [*words, part] if new else [*words[:-1], f"{words[-1]} {part}"]
    return words


@pytest.mark.table
@pytest.mark.parametrize("line", ["lora.rank=4", "tokens.end_of_text=3", "phase.first_step=2", "model.rope=null"])
def test_a_key_of_the_recipe_needs_no_plus(compare: Any, conf: Path, line: str) -> None:
    """Hydra asks for a + where no file of conf/ has the key; the recipe is then the one that this makes."""
    compare("arguments", line, lambda: by_marin([line], conf), by_hydra([f"++{line}"], conf))


@pytest.mark.parametrize("line", ["+model=nano", "+dataset=babylm_10M +model=gpt2-small seed=3"])
def test_a_plus_before_a_group_with_a_default(compare: Any, conf: Path, line: str) -> None:
    words = line.split()
    compare("arguments", line, lambda: by_marin(words, conf), by_hydra([word.lstrip("+") for word in words], conf))


SWEEPS = {
    "seed=1,2": [["seed=1"], ["seed=2"]],
    "seed=choice(1)": [["seed=1"]],
    "seed=range(3)": [["seed=0"], ["seed=1"], ["seed=2"]],
    "++seed=1,2": [["++seed=1"], ["++seed=2"]],
    "~optimizer.beta1=0.9,choice": None,
    "+lora.rank=2,4": [["+lora.rank=2"], ["+lora.rank=4"]],
    "+seed=1,2": None,
    "model=nano,1m": [["model=nano"], ["model=1m"]],
    "model=glob(gpt2-*)": [["model=gpt2-1m"], ["model=gpt2-medium"], ["model=gpt2-small"]],
    "model=glob([nano,1*],exclude=1m)": [["model=nano"]],
    "model=[nano,1m],nano": [["model=[nano,1m]"], ["model=nano"]],
    "+regime=five,chosen": [["+regime=five"], ["+regime=chosen"]],
    "optimizer={learning_rate: 0.1},{beta1: 0.5}": [["optimizer={learning_rate:0.1}"], ["optimizer={beta1:0.5}"]],
    "seed=sort(3,1,2)": [["seed=1"], ["seed=2"], ["seed=3"]],
    "dataset.name='a,b','c'": None,
    "optimizer.learning_rate=interval(0,1)": None,
}


@pytest.mark.table
@pytest.mark.parametrize("line", SWEEPS)
def test_sweeps(compare: Any, conf: Path, line: str) -> None:
    def ours() -> object:
        try:
            return [digest(one.recipe) for one in sweep([line], conf=conf)]
        except UsageError:
            return REFUSED

    of = SWEEPS[line]
    compare("sweeps", line, ours, REFUSED if of is None else [by_hydra(words, conf) for words in of])


SCALARS = (
    """
010|017|08|0o10|0o17|0b11|0x1F|0X1F|-010|+1|1_000|1__0|1_|_1|00|0777|12:30|1:2:3|12:30.5|190:20:30|1e-4|1e-2|1e4|1E4|1.e4|.5
-.5|+.5|._5|.5e1|.5e+1|1_000.5|1__0e3|1.|1e400|1e5_0|.inf|-.inf|+.inf|.nan|inf|nan|yes|No|on|Off|y|N|True|TRUE|true|tRUE|~|null
Null|NULL|nULL|2020-01-01|2020-01-01T00:00:00Z|2020-13-45|=|<<|!!int "5"|!!int "010"|!!float "1"|!!str 5|!foo x
!!python/object:x.y {}|!!python/name:os.system|"1"|'1'|[1, 2]|{a:1}|{a: 1}|{a: 1, a: 2}|{1: 2, 1: 3}|99999999999999999999|1e
&x 1|*x|a: b|a #b|a#b|"\\u00e9"|"\\x41"|{}|[]|[a, b,]|{010: 2}|!!bool "yes"|!!omap [a: 1]|@a|%a|"unended
""".strip()
    .replace("\n", "|")
    .split("|")
)
DOCUMENTS = [
    "",
    "a: &a {b: 1, c: 2}\nd:\n  <<: *a\n  b: 3\n",
    "a: &a {b: 1}\nd: &d {b: 2}\nc: {<<: [*a, *d]}\n",
    "a: &a {b: 1}\nc: {<<: *a, <<: *a}\n",
    "a: |\n  b\n  c\n",
    "a: >-\n  b\n  c\n",
    "a:\n  - 1\n  - [2, 010]\n",
    "%YAML 1.1\n---\na: 010\n",
    "%YAML 1.2\n---\na: 010\n",
    "a: 1\n---\nb: 2\n",
    "a:\t1\n",
    "a: 1\nb: 2\n a: 3\n",
    "? a\n: 1\n",
    "- 1\n- 2\n",
    "a: 1\r\nb: on\r\n",
]


@pytest.mark.table
@pytest.mark.parametrize("text", [*(f"a: {scalar}\n" for scalar in SCALARS), *DOCUMENTS])
def test_yaml(compare: Any, text: str) -> None:
    """Every value with its type, as DVC reads params.yaml."""
    try:
        expected = repr(loads_yaml(text))
    except Exception:  # of ruamel.yaml, and of the constructors that it calls
        expected = REFUSED

    def ours() -> str:
        try:
            return repr(read_yaml(text.encode()))
        except NotYaml:
            return REFUSED

    compare("YAML", text, ours, expected)


@pytest.mark.parametrize("text", ["a: !!set {b}", "a: !!binary aGk=", "a: !!pairs [b: 1]", "{[1]: 2}"])
def test_yaml_that_is_more_than_plain_values(compare: Any, text: str, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(text)
    loads_yaml(text)
    compare("YAML", text, lambda: load_params(tmp_path / "params.yaml"), None, refusal="sets, pairs and bytes")


SEEDS = {"010": 10, "017": 17, "0o10": 8, "1_000": 1000, "0x10": 16, "+7": 7, "!!int '12'": 12}


@pytest.mark.parametrize("written", [*SEEDS, "12:30", "1e3", "yes", "'5'", "1.0", ".inf", "2020-01-01", "5 6", "[5]"])
def test_params_yaml(compare: Any, written: str, tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text((PROJECT / "params.yaml").read_text().replace("seed: 0", f"seed: {written}", 1))

    def ours() -> object:
        try:
            return load_params(file).seed
        except MarinError:
            return REFUSED

    value = loads_yaml(file.read_text())["seed"]
    compare("params.yaml", written, ours, value if type(value) is int else REFUSED)


@pytest.mark.table
@pytest.mark.parametrize("scalar", SCALARS)
def test_group_files(compare: Any, scalar: str, conf: Path) -> None:
    """What Hydra and DVC read alike is what Hydra reads; the others are refused."""
    group = conf / "kept"
    group.mkdir(exist_ok=True)
    (group / "one.yaml").write_text(f"# @package dataset\nname: {scalar}\n")
    words = ["+kept=one"]
    expected = by_hydra(words, conf)
    try:
        of_dvc = loads_yaml(f"name: {scalar}\n")["name"]
    except Exception:
        of_dvc = ...
    try:
        of_hydra = OmegaConf.to_container(OmegaConf.load(group / "one.yaml"))["name"]  # type: ignore[call-overload, index]
    except Exception:
        of_hydra = ...
    if isinstance(of_dvc, datetime.date) or repr(of_dvc) != repr(of_hydra):
        compare(
            "group files",
            scalar,
            lambda: compose(words, conf=conf),
            None,
            refusal="do not read alike in a file of a group",
        )
    else:
        compare("group files", scalar, lambda: by_marin(words, conf), expected)


@pytest.mark.parametrize(("written", "read"), [("1e-2", 0.01), ("1e-4", 0.0001), ("0.5", 0.5)])
def test_other_files(compare: Any, written: str, read: float, tmp_path: Path) -> None:
    """A collection's --config, prices and a group of one's own take the same numbers."""
    from marin.plugins.collections.settings import load_settings
    from marin.recipe.cost import load_prices

    (tmp_path / "own.yaml").write_text(f"validation_fraction: {written}\n")
    (tmp_path / "prices.yaml").write_text(
        "date: 2026-01-01\ncurrency: USD\ndevices:\n  here: {note: x, peak: {float32: 8e10}, memory_bytes: null, "
        f"utilisation: {written}, hourly: 1e-1, seen: 2026-01-01}}\n"
    )
    compare("--config", written, lambda: load_settings(str(tmp_path / "own.yaml"), tmp_path).validation_fraction, read)
    compare("prices", written, lambda: load_prices(tmp_path / "prices.yaml").device("here").utilisation, read)
