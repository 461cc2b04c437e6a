"""The reduced matrix: every number of devices, and moves between them; and the tests that it could fail.

`make determinism` executes the whole of it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import pytest
from warm import Warm, warm

from marin.plugins.exact import known
from marin.plugins.exact.guarded import MINUS_ZERO
from marin.process.cache import compilation_cache
from marin.provenance.processor import processor
from marin.training.runtime.canary import ANSWERS

__all__ = ["warm"]

Results = dict[str, dict[str, Any]]
REDUCED = [
    "llama adamw float32",
    "gpt2 adamw float32",
    "llama adamw exact",
    "llama adamw bfloat16 by layer, accumulated, loss in blocks",
    "gpt2 lion float32 by layer",
    "llama adamw float32 by layer, tied",
]


@pytest.fixture(scope="module", params=REDUCED)
def group(request: pytest.FixtureRequest) -> str:
    """A model; each change is tested with one of them."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def straight(matrix: ModuleType, group: str) -> Results:
    """Trained on one device, in a process that has one. What was compiled is kept, as it is for a user."""
    row = matrix.Row("1 device", case={"compiled": True}, canary=True)
    return matrix.execute(row, [group], cache=compilation_cache())


@pytest.fixture(scope="module")
def moved(matrix: ModuleType, group: str, warm: Callable[[], Warm]) -> Results:
    """The same in a process with eight devices, moved half-way, through a training checkpoint: from eight devices to
    two, or from four to one; under exact from four pairs that share each layer's matrices.

    A fork of the process that has imported what trains, which the new process of ``straight`` judges; under exact a new process
    too, for its settings are others.
    """
    eight, four = {"devices": 8, "moves": [2]}, {"devices": 4, "moves": [1]}
    slices, shared = eight | {"replicas": 2}, eight | {"tensor": 2}
    own = dict(zip(REDUCED, (eight, four, shared, slices, eight, slices), strict=True))
    row = matrix.Row("moved", devices=8, case={"resume_at": [2], "compiled": True}, own=own)
    program = f"import sys; sys.path.insert(0, {str(matrix.HERE)!r}); from worker import main; main(sys.argv[1:])"

    def forked(asked: Any, worker: Sequence[str], environment: Mapping[str, str], found: object) -> Any:
        assert asked == row, "no more of it than its devices would be in force"
        arguments = ["--devices", str(row.devices), *worker]
        done = warm().run(program, arguments, cwd=matrix.PROJECT, environment=environment, timeout=matrix.LIMIT)
        results = [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else []
        return done.returncode, {result["name"]: result for result in results}, done.stderr[-3000:]

    results: Results = matrix.execute(
        row, [group], cache=compilation_cache(), run=None if group.endswith(" exact") else forked
    )
    return results


@pytest.mark.table(together="matrix")
def test_every_device_count_and_every_stop_gives_the_same_bits(
    matrix: ModuleType, straight: Results, moved: Results, group: str
) -> None:
    assert matrix.differences(straight[group], moved[group]) == []
    assert len(straight[group]["steps"]) == matrix.STEPS
    assert len({step[2] for step in straight[group]["steps"]}) == matrix.STEPS, "every step changes the state"
    assert straight[group]["state"] != straight[group]["start"]


@pytest.mark.table(together="matrix")
def test_the_same_programs_and_no_product_that_depends_on_the_processor(
    straight: Results, moved: Results, group: str
) -> None:
    assert straight[group]["program"] == moved[group]["program"]
    assert straight[group]["foreign"] == moved[group]["foreign"] == []


@pytest.mark.table(together="matrix")
def test_the_known_answer_comes_out(straight: Results) -> None:
    assert straight["canary"]["answer"] in ANSWERS.values()


def test_without_the_flags_the_known_answer_does_not_come_out(matrix: ModuleType) -> None:
    """So the flags are in force where it does: the same program, on the same machine, with jax's defaults."""
    if "avx512f" not in processor().features:
        pytest.skip("this processor has no AVX-512: it may give the contract's bits without the flags too")
    found = matrix.execute(matrix.Row("bare", bare=True, canary=True), [])
    assert found["canary"]["answer"] not in ANSWERS.values()


@pytest.mark.table(together="matrix")
def test_a_difference_would_be_found(matrix: ModuleType, straight: Results, group: str) -> None:
    expected = straight[group]
    other = copy.deepcopy(expected)
    other["steps"][2][2] = "00" + other["steps"][2][2][2:]
    path = next(iter(other["tensors"]))
    other["tensors"][path] = other["state"] = "sha256:" + "0" * 64
    assert matrix.differences(expected, other) == ["step 2 differs", path]


def test_the_table_lands_in_the_document(matrix: ModuleType, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    document = tmp_path / "determinism.md"
    document.write_text(f"before\n{matrix.BEGIN}\nold\n{matrix.END}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(matrix, "DOCUMENT", document)
    cell = matrix.Cell("2 devices", "a", "equal", "0123")
    matrix.write(matrix.table_of({("2 devices", "a"): cell}, [matrix.shape(2)], ["a", "b"]))
    assert document.read_text(encoding="utf-8") == (
        f"before\n{matrix.BEGIN}\n| executed as | a | b |\n| --- | --- | --- |\n| 2 devices | equal | not run |\n\n"
        f"2 cells: 1 equal, 0 different, 1 not run; seen at 0123.\n{matrix.END}\nafter\n"
    )


def test_results_are_kept_by_cell_and_believed_for_the_same_code_only(
    matrix: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.json"
    results, beside = matrix.Results(path), matrix.Results(path)
    results.refer("a", {"start": "x"})
    results.keep("2 devices", "a", "equal")
    beside.keep("4 devices", "a", "DIFFERS: step 0 differs")
    again = matrix.Results(path)
    assert {key: cell.outcome for key, cell in again.cells.items()} == {
        ("2 devices", "a"): "equal",
        ("4 devices", "a"): "DIFFERS: step 0 differs",
    }
    assert again.references == {"a": {"start": "x"}}
    monkeypatch.setattr(matrix, "code_under_test", lambda: "sha256:other")
    assert matrix.Results(path).cells == {}


def test_what_decides_bits_is_the_code_under_test(matrix: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    monkeypatch.setattr(matrix, "files_digest", lambda folder, paths: str(listed.extend(paths)))
    before = matrix.code_under_test()
    monkeypatch.setattr(matrix, "settings", lambda arithmetic, execution: {"XLA_FLAGS": "others"})
    assert matrix.code_under_test() != before
    training = [
        f"marin/training/{name}.py"
        for name in ("state", "model", "initial", "step/fingerprint", "runtime/products", "step/shards", "step/slices")
    ]
    exact = [
        f"marin/plugins/exact/{name}.py" for name in ("compiled", "functions", "guarded", "integers", "reading", "step")
    ]
    found_by_name = ["marin/training/experts/dispatch.py", "marin/training/optimizers/across.py"]
    assert {*training, *exact, *found_by_name, "tests/determinism/worker.py"} <= set(listed)


def test_each_profile_has_its_rows(matrix: ModuleType) -> None:
    """What `portable-cpu` refuses is tried under exact, every row once; the reference is the first of both."""
    names = [row.name for row in matrix.EXACT_ROWS]
    assert len(set(names)) == len(names) and matrix.EXACT_ROWS[0] == matrix.ROWS[0]
    assert {*matrix.PORTABLE, *matrix.BY_LAYER, *matrix.EXACT, *matrix.ACROSS} == set(matrix.GROUPS)
    assert len(matrix.EXACT) == 2 and any("experts" in matrix.GROUPS[name] for name in matrix.ACROSS)
    freely = [row for row in matrix.EXACT_ROWS if row.environment]
    assert len(freely) == len(matrix.PASSES) + len(matrix.INSTRUCTIONS) + 1
    assert len({row.compiles() for row in freely}) == len(freely), "no program of one is taken for another's"
    assert not any(row.environment for row in matrix.ROWS)


@pytest.mark.determinism
@pytest.mark.parametrize("cpu", ["Haswell-v4", "EPYC-Rome-v2"])
def test_another_processor_gives_the_same_bits(matrix: ModuleType, cpu: str) -> None:
    """Not a Skylake, which is refused: `matrix.py --rows "compiled as"` shows why."""
    (row,) = [row for row in matrix.ROWS if row.name == f"emulated {cpu}"]
    if reason := row.missing():
        pytest.skip(reason)
    (cell,) = matrix.measure([row], ["llama adamw float32"])
    assert cell.outcome == "equal"


@pytest.mark.determinism
@pytest.mark.parametrize("isa", ["SSE4_2", "AVX", "AVX512"])
def test_under_exact_instructions_do_not_matter(matrix: ModuleType, isa: str) -> None:
    """With more and with fewer than the other profile's ceiling allows, and with platform-dependent mathematics and
    products folded as the compiler likes."""
    if isa == "AVX512" and "avx512f" not in processor().features:
        pytest.skip("this processor has no AVX-512")
    flags = {"XLA_FLAGS": f"--xla_cpu_max_isa={isa} --xla_cpu_enable_platform_dependent_math=true"}
    own = matrix.Row(isa, environment=flags, bare=True, tiny=True)
    names = ["llama adamw exact", "gpt2 lion exact"]
    found = matrix.execute(own, names)
    expected = matrix.execute(matrix.TINY_REFERENCE, names)
    assert [matrix.differences(expected[name], found[name]) for name in names] == [[], []]


@pytest.mark.determinism
def test_under_exact_no_pass_of_the_compiler_matters(matrix: ModuleType) -> None:
    """Each makes another program of a small train step, and each of these programs gives the known answer. Two passes of
    the matrix leave so small a step as it is."""
    case = known.cases()["step"]
    with jax.enable_x64(True):
        lowered = jax.jit(case.made().__call__).lower(MINUS_ZERO, *case.arguments)
        texts: dict[str, str] = {}
        for name in ("", *matrix.PASSES):
            program = lowered.compile(compiler_options={"xla_disable_hlo_passes": name} if name else {})
            texts[name] = program.as_text()
            made = jax.tree.leaves(program(MINUS_ZERO, *case.arguments))
            assert known.digest(made) == known.ANSWERS["step"], name
    same = {name for name, text in texts.items() if name and text == texts[""]}
    assert same <= {"tree_reduction_rewriter", "cpu-parallel-task-assigner"}
