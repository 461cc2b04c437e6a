"""MLPerf's own checkers judge the log of a real run: compliance of the closed division, seeds, reference points.

The benchmark is ours, so the checkers do not know it: marin/plugins/mlperf/checkers.py registers it in a copy of the package.
"""

import json
import os
import shlex
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import judges
import pytest
from programs import ask

from marin.plugins.mlperf.benchmark import GRAMMAR_LM, RULESET
from marin.plugins.mlperf.checkers import REFERENCE_POINTS, register

PROJECT = Path(__file__).resolve().parents[3]
MARIN = Path(sys.executable).with_name("marin")
TOKEN = ":::MLLOG "
RCPS = REFERENCE_POINTS / "rcps_grammar_lm.json"
BENCHMARK = PROJECT / "benchmarks" / GRAMMAR_LM.name
COMPLIANCE = ("-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", RULESET, "--werror")
FAST = ("seed=1", "trainer.batch_size=32", "optimizer.learning_rate=0.02", "trainer.steps_per_segment=44")
"""Hyperparameters in the contract, and a seed with which 44 train steps are enough: the reference's rate needs 56. With a drawn
seed that is a matter of luck, so the result is one of the open division."""
EVIL = "- BEGIN:\n    CODE: \"open('{}', 'w').close()\"\n"
SEEDS = """
import sys
from mlperf_logging.package_checker.seed_checker import SeedChecker
sys.exit(not SeedChecker(sys.argv[1]).check_seeds(sys.argv[2:]))
"""


def package(room):
    (found,) = room.glob("lib/python*/site-packages/mlperf_logging")
    return found


@pytest.fixture(scope="module")
def checkers(tmp_path_factory):
    """A folder to import the package from, with our benchmark registered."""
    folder = tmp_path_factory.mktemp("mlperf")
    register(GRAMMAR_LM, folder, package(judges.room("mlperf")))
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder for results, a function that asks a program in it and wants status 0, and who submits."""
    folder = tmp_path_factory.mktemp("entry")
    environment = {
        "XDG_CONFIG_HOME": str(folder / "config"),
        "PATH": f"{MARIN.parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{PROJECT}:{package(judges.room('mlperf')).parent}",
    }

    def answer(*command: object, **more: str):
        status, said = ask(*command, env=environment | more, cwd=folder, seconds=1800)
        assert status == 0, said
        return said

    return folder, answer, json.dumps({"org": "a-lab", "platform": "two cores", "division": "closed"})


@pytest.fixture(scope="module")
def results(place):
    """Real results and their roots: the benchmark's own script, closed division; the first in phases of 64 train steps, of
    which it needs two, the others in longer ones."""
    folder, answer, submission = place

    def train(number):
        log, words = folder / f"result_{number}.txt", ("trainer.steps_per_segment=32",)
        steps = "128" if number else "64"
        said = answer(BENCHMARK / "run_and_time.sh", log, *words, STEPS=steps, SUBMISSION=submission)
        lines = lines_of(log.read_text())
        (started,), (stopped,) = (
            [one["time_ms"] for one in lines if one["key"] == key] for key in ("run_start", "run_stop")
        )
        assert float(said.splitlines()[-1]) == (stopped - started) / 1000

    with ThreadPoolExecutor(os.cpu_count()) as at_once:
        list(at_once.map(train, range(GRAMMAR_LM.runs)))
    assert "drawn from the system" in answer(MARIN, "mlperf", "seeds", MARIN_ROOT=str(folder / "result_0.root"))
    return place


@pytest.fixture(scope="module")
def entry(results):
    """The log of one of them."""
    return (results[0] / "result_0.txt").read_text()


def test_the_data_set_is_made_and_every_file_is_checked(tmp_path):
    environment, data = {"PATH": f"{MARIN.parent}:{os.environ['PATH']}"}, tmp_path / "data"
    status, said = ask(BENCHMARK / "download_dataset.sh", data, env=environment)
    assert status == 0, said

    def verified():
        return ask(BENCHMARK / "verify_dataset.sh", data)[0] == 0

    assert verified()
    text = (data / "train.jsonl").read_bytes()
    (data / "train.jsonl").write_bytes(text[:-1] + b" ")
    assert not verified()
    (data / "train.jsonl").unlink()
    assert not verified()
    (data / "train.jsonl").write_bytes(text)
    assert verified()
    (data / "more.jsonl").write_bytes(b"{}")
    assert not verified()


def compliant(checkers, folder, log):
    """Exit status and words of the compliance checker for a log."""
    file = folder / "result_0.txt"
    file.write_text(log)
    return ask(sys.executable, *COMPLIANCE, file, env={"PYTHONPATH": str(checkers)}, cwd=folder)


def lines_of(log):
    return [json.loads(line.removeprefix(TOKEN)) for line in log.splitlines()]


def text_of(lines):
    return "".join(TOKEN + json.dumps(line) + "\n" for line in lines)


def without(key):
    return lambda lines: [line for line in lines if line["key"] != key]


def valued(key, value):
    return lambda lines: [line | {"value": value} if line["key"] == key else line for line in lines]


def told(key, **metadata: object):
    def change(lines):
        return [line | {"metadata": line["metadata"] | metadata} if line["key"] == key else line for line in lines]

    return change


def earlier(key, other):
    """The line of ``key`` before that of ``other``."""

    def change(lines):
        rest = without(key)(lines)
        (moved,) = [line for line in lines if line["key"] == key]
        place = next(number for number, line in enumerate(rest) if line["key"] == other)
        return [*rest[:place], moved, *rest[place:]]

    return change


def unplaced(lines):
    """Measurements that do not say after how many samples."""
    return [line | {"metadata": {"epoch_num": 1}} if line["key"] == "eval_accuracy" else line for line in lines]


ALTERED = {
    "no seed": without("seed"),
    "a seed that was not drawn": told("seed", source="recipe"),
    "two seeds": lambda lines: [*lines, *({**line, "value": 1} for line in lines if line["key"] == "seed")],
    "no global batch size": without("global_batch_size"),
    "a batch size outside of the contract": valued("global_batch_size", 12),
    "a rate outside of its range": valued("opt_base_learning_rate", 0.5),
    "an end rate that does not follow from the base rate": valued("opt_end_learning_rate", 0.001),
    "another beta": valued("opt_adamw_beta_1", 0.99),
    "another data set": valued("dataset", "grammar-1-400000-30000"),
    "a run that starts before initialisation ends": earlier("run_start", "init_stop"),
    "no end of the run": without("run_stop"),
    "an aborted run": told("run_stop", status="aborted"),
    "a target that is not reached": valued("eval_accuracy", 5.0),
    "measurements without their place": unplaced,
    "no blocks": lambda lines: [line for line in lines if not line["key"].startswith("block_")],
    "a fraction of a model": valued("tensor_parallelism", 0),
    "an unknown format of numbers": valued("lowest_numerical_precision_in_attn", "fp42"),
    "nobody who submits": valued("submission_org", ""),
    "another benchmark": valued("submission_benchmark", "llama31_8b"),
}


def test_compliance(entry, checkers, tmp_path, judge):
    judged = judge("MLPerf's compliance checker", judges.version("mlperf"))
    status, said = compliant(checkers, tmp_path, entry)
    assert status == 0 and "SUCCESS" in said, said
    judged.accepts(f"the log of a run of two phases, closed division, rules {RULESET}")
    lines = lines_of(entry)
    assert text_of(lines) == entry, "an altered log differs in what was altered alone"
    for what, change in ALTERED.items():
        altered = text_of(change(lines))
        assert altered != entry, what
        status, said = compliant(checkers, tmp_path, altered)
        assert status != 0 and "FAILED" in said, (what, said)
    status, said = compliant(checkers, tmp_path, entry.replace('"key": "eval_stop"', '"key" "eval_stop"', 1))
    assert status != 0, said
    judged.refuses(f"the same, altered in any of {len(ALTERED) + 1} ways: {', '.join(ALTERED)}, a line that is no JSON")


def test_the_package_as_it_is_does_not_know_our_benchmark(entry, tmp_path):
    status, _ = compliant(package(judges.room("mlperf")).parent, tmp_path, entry)
    assert status != 0


def submitted(folder, entry, *, seeds, samples, size=8, aborted=()):
    """Logs as ``entry``, with these seeds and samples to converge: a submission of several runs."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    per_epoch = next(line["value"] for line in lines_of(entry) if line["key"] == "train_samples")
    for number, (seed, count) in enumerate(zip(seeds, samples, strict=True)):
        lines = valued("global_batch_size", size)(valued("seed", seed)(lines_of(entry)))
        *_, last = [place for place, line in enumerate(lines) if line["key"] == "eval_accuracy"]
        place = {"samples_count": count, "epoch_num": count / per_epoch}
        lines[last] = lines[last] | {"metadata": lines[last]["metadata"] | place}
        if number in aborted:
            lines = told("run_stop", status="aborted")(lines)
        (folder / f"result_{number}.txt").write_text(text_of(lines))
    return folder


def test_seeds(entry, checkers, tmp_path, judge):
    judged = judge("MLPerf's seed checker", judges.version("mlperf"))

    def fine(**fields: object):
        files = sorted(submitted(tmp_path / "runs", entry, samples=[1024] * 4, **fields).iterdir())
        return ask(sys.executable, "-c", SEEDS, RULESET, *files, env={"PYTHONPATH": str(checkers)})

    drawn = next(line["value"] for line in lines_of(entry) if line["key"] == "seed")
    assert drawn < 2**63 and fine(seeds=[drawn, 1, 2, 3])[0] == 0
    judged.accepts("the drawn seed of a run, and three others beside it")
    status, said = fine(seeds=[drawn, 1, drawn, 3])
    assert status == 1 and str(drawn) in said, "a replay is not a second result"
    assert fine(seeds=[drawn, 1, 2, "clock"])[0] == 1
    (tmp_path / "bare.txt").write_text(text_of(without("seed")(lines_of(entry))))
    assert ask(sys.executable, "-c", SEEDS, RULESET, tmp_path / "bare.txt", env={"PYTHONPATH": str(checkers)})[0] == 1
    judged.refuses("a seed that two runs have, one that is no integer, a run without one")


def test_reference_points(entry, checkers, tmp_path, judge):
    judged = judge("MLPerf's RCP checker", judges.version("mlperf"))
    records = json.loads(RCPS.read_text())
    needed = {record["BS"]: record["Samples to converge"] for record in records.values()}

    def checked(samples, size=8, aborted=(), seeds=(1, 2, 3, 4)):
        folder = submitted(tmp_path / "rcp", entry, seeds=seeds, samples=samples, size=size, aborted=aborted)
        options = ["--rcp_version", RULESET, "--custom_rcps", RCPS, "--rcp_pass", "full_rcps"]
        command = [sys.executable, "-m", "mlperf_logging.rcp_checker", folder, *options]
        return ask(*command, env={"PYTHONPATH": str(checkers)}, cwd=tmp_path)

    for size, samples in needed.items():
        status, said = checked(samples, size)
        assert status == 0 and "RCP found, RCP test PASSED" in said, said
    assert checked(needed[8], aborted=[1])[0] == 0, "one of the runs may fail"
    status, said = checked([(a + b) // 2 for a, b in zip(needed[8], needed[16], strict=True)], 12)
    assert status == 0 and "Interpolation" in said, said
    judged.accepts("submissions that need what the reference needed, at its three batch sizes and between two of them")
    fast = [count // 2 for count in needed[8]]
    status, said = checked(fast)
    assert status == 1 and "RCP test FAILED" in said, said
    assert checked(needed[8], aborted=[0, 1])[0] == 1
    assert checked(needed[32], 64)[0] == 1
    judged.refuses("one that needs half, one of which two runs fail, and one at a larger batch size than the reference")


@pytest.fixture(scope="module")
def quick(place):
    """A result that really needs fewer samples than the reference: a larger rate, which the contract allows."""
    folder, answer, _ = place
    answer(BENCHMARK / "run_and_time.sh", folder / "quick_0.txt", *FAST, STEPS="44", SUBMISSION='{"org": "a-lab"}')
    return folder / "quick_0.txt", folder / "quick_0.root"


def judged_by_us(folder, log, root):
    environment = {"XDG_CONFIG_HOME": str(folder / "config")}
    status, said = ask(
        MARIN, "-q", "--root", root, "mlperf", "judge", log, "--no-record", "--json", env=environment, seconds=1800
    )
    found = json.loads(said[said.index("{") :])
    return status, found["verdicts"], found["details"]


def too_fast(checkers, folder, log):
    """Whether the RCP checker refuses a submission of this log, as many times as a submission has results."""
    folder.mkdir()
    for number in range(GRAMMAR_LM.runs):
        (folder / f"result_{number}.txt").write_text(log)
    command = [sys.executable, "-m", "mlperf_logging.rcp_checker", folder, "--rcp_version", RULESET]
    status, said = ask(*command, "--rcp_pass", "full_rcps", env={"PYTHONPATH": str(checkers)}, cwd=folder.parent)
    return status == 1 and "RCP found, RCP test FAILED" in said


def test_a_result_that_is_faster_than_the_reference_is_replayed_and_judged(quick, checkers, tmp_path):
    """The RCP checker refuses it, whatever the reason; who has its root compares its log and executes every step again."""
    log, root = quick
    assert too_fast(checkers, tmp_path / "quick", log.read_text())
    status, verdicts, details = judged_by_us(log.parent, log, root)
    assert status == 0 and set(verdicts.values()) == {"PASS"}, details
    assert details["result"][1].startswith("1408 samples at batch size 32; the reference needs 1792, ")


def test_a_log_that_was_edited_to_be_faster_is_found(results, checkers, tmp_path):
    """It fails the RCP checker as an honest one does; against the record of its run it does not stand."""
    folder, *_ = results
    log = folder / "result_0.txt"
    lines = lines_of(log.read_text())
    *_, last = [place for place, line in enumerate(lines) if line["key"] == "eval_accuracy"]
    place = {name: lines[last]["metadata"][name] / 2 for name in ("samples_count", "epoch_num")}
    lines[last] = lines[last] | {"metadata": lines[last]["metadata"] | place}
    edited = tmp_path / "result_0.txt"
    edited.write_text(text_of(lines))
    assert too_fast(checkers, tmp_path / "edited", edited.read_text())
    status, verdicts, details = judged_by_us(folder, edited, folder / "result_0.root")
    assert status == 1 and verdicts["result"] == "FAIL" and set(verdicts.values()) == {"FAIL", "NOT_RUN"}
    assert details["result"][0].startswith(f"line {last + 1}: eval_accuracy: metadata.samples_count: recorded ")


def printed(page, start):
    """The command of a page that begins so, without its remark."""
    (line,) = [line.strip() for line in page.read_text().splitlines() if line.strip().startswith(start)]
    return shlex.split(line, comments=True)


@pytest.mark.parametrize("page", [PROJECT / "docs" / "mlperf.md", BENCHMARK / "README.md"], ids=["page", "readme"])
def test_the_pages_command_lets_the_checkers_judge(page, results, tmp_path):
    """It is executed as it is printed, in a folder with what the commands before it leave."""
    folder, *_ = results
    command = printed(page, "marin mlperf check ")
    (tmp_path / command[-1]).parent.mkdir(exist_ok=True)
    shutil.copy(folder / "result_0.txt", tmp_path / command[-1])
    environment = {"PATH": f"{MARIN.parent}:{os.environ['PATH']}", "PYTHONPATH": package(judges.room("mlperf")).parent}

    def checked(*more: object):
        status, said = ask(*command, *more, cwd=tmp_path, env={key: str(value) for key, value in environment.items()})
        return status, [line.split()[:3] for line in said.splitlines()]

    status, said = checked()
    assert status == 0 and ["compliance", command[-1], "PASS"] in said, said
    status, said = checked(*(folder / f"result_{number}.txt" for number in range(1, GRAMMAR_LM.runs)))
    assert status == 0 and ["reference", "points", "PASS"] in said, said
    log = tmp_path / command[-1]
    log.write_text(text_of(valued("opt_adamw_beta_1", 0.99)(lines_of(log.read_text()))))
    status, said = checked()
    assert status == 1 and ["compliance", command[-1], "FAIL"] in said, said
    # A rules file is executed, and the log's words are in its name: one of another folder is not taken.
    (tmp_path / "evil_common.yaml").write_text(EVIL.format(tmp_path / "executed"))
    log.write_text(
        text_of(valued("submission_division", f"/../../../../../../..{tmp_path}/evil")(lines_of(log.read_text())))
    )
    status, said = checked()
    assert status == 1 and not (tmp_path / "executed").exists(), said
    status, said = ask(*command, cwd=tmp_path)
    assert status == 3 and "pip install --no-deps --require-hashes -r docker/requirements-mlperf.lock" in said


CHECKED = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
from mlperf_logging.package_checker import package_checker
from mlperf_logging.repo_checker import repo_checker
repo_checker.run_checks(sys.argv[1])
package_checker.check_training_package(sys.argv[1], "training", sys.argv[2], False, True, False, False, False, "-")
"""
"""The package's functions: its programs end with status 0 whatever they found."""
WHOLE, SOUND = "PACKAGE CHECKER FOUND NO ERRORS", "ALL CHECKS PASSED"


def test_a_submissions_folder(results, checkers, tmp_path, judge):
    judged = judge("MLPerf's package, system and repository checkers", judges.version("mlperf"))
    folder, answer, submission = results
    roots = sorted(folder.glob("result_*.root"))
    form = json.loads(answer(MARIN, "mlperf", "system", MARIN_ROOT=str(roots[0])))
    assert "host_memory_capacity" in form and "host_processor_model_name" not in form, (
        "what is recorded is not asked for"
    )
    stated = tmp_path / "system.json"
    stated.write_text(json.dumps(dict.fromkeys(form, "N/A") | {"host_memory_capacity": "24 GiB"}))
    dest = tmp_path / "submission"
    words = ["--name", "two-cores", "--system", stated, "--submission", submission, "--benchmark-folder", BENCHMARK]

    def refused(*roots: object):
        status, said = ask(MARIN, "mlperf", "package", tmp_path / "no", *roots, *words)
        assert status == 2 and not (tmp_path / "no").exists(), said
        return said

    assert "a submission has so many results" in refused(*roots[1:])
    assert "two results with one seed" in refused(roots[1], *roots[1:])
    made = Path(answer(MARIN, "mlperf", "package", dest, *roots, *words).splitlines()[-1])
    assert made == dest / "a-lab"

    def checked(change=None):
        copy = tmp_path / "checked"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(made, copy)
        if change is not None:
            change(copy)
        env = {"PYTHONPATH": str(checkers)}
        status, said = ask(sys.executable, "-c", CHECKED, copy, RULESET, env=env, cwd=tmp_path, seconds=300)
        return (WHOLE in said and SOUND in said and status == 0), said

    whole, said = checked()
    assert whole, said
    assert "RCP Test Passed" in said and "System description checker passed for two-cores" in said
    judged.accepts(
        f"the folder of a submission: {GRAMMAR_LM.runs} real results, system description, benchmark, rules {RULESET}"
    )
    place = Path("results/two-cores") / GRAMMAR_LM.name

    def without_field(copy):
        file = copy / "systems/two-cores.json"
        file.write_text(
            json.dumps({key: value for key, value in json.loads(file.read_text()).items() if key != "cooling"})
        )

    changes = {
        "a result less": lambda copy: (copy / place / "result_3.txt").unlink(),
        "one result twice": lambda copy: shutil.copy(copy / place / "result_0.txt", copy / place / "result_1.txt"),
        "a system without a field": without_field,
        "a name with a space": lambda copy: (copy / "systems" / "a note.txt").write_text(""),
    }
    for what, change in changes.items():
        assert not checked(change)[0], what
    judged.refuses(f"the same with {', '.join(changes)}")


BASE = "python:3.12-slim-bookworm"
"""What docker/Dockerfile begins with. No registry of images is asked: a Debian of this machine's package client stands in, whose
Python is one that the lock is for."""
INSIDE = """
set -e
benchmarks/grammar_lm/setup.sh
benchmarks/grammar_lm/init_datasets.sh /tmp/data
STEPS=64 SUBMISSION='{"org": "a-lab", "platform": "a container", "division": "closed"}' \\
    benchmarks/grammar_lm/run_and_time.sh /tmp/result_0.txt trainer.steps_per_segment=32
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The benchmark's image, on the project's own, on a Debian made from packages; a function that runs a command in it."""
    if missing := [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]:
        pytest.skip(f"these make the container root, without an engine: apt-get install {' '.join(missing)}")
    folder = tmp_path_factory.mktemp("container")
    storage = ("--root", folder / "storage", "--runroot", folder / "run", "--storage-driver", "vfs")
    trusted = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
    shared = {
        trusted: "/etc/ssl/certs/ca-certificates.crt",
        "/etc/resolv.conf": "/etc/resolv.conf",
        "/etc/pip.conf": "/etc/pip.conf",
    }
    volumes = [word for here, there in shared.items() if Path(here).exists() for word in ("-v", f"{here}:{there}:ro")]

    def answer(*command: object):
        status, said = ask(*command, cwd=PROJECT, env={"TMPDIR": str(folder)}, seconds=3600)
        assert status == 0, said[-4000:]
        return said.strip()

    sites = answer("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages").splitlines()
    mirror = next(site for site in sites if "security" not in site)
    wanted = "--include=python3,python3-venv,ca-certificates"
    answer("mmdebstrap", "--quiet", "--variant=apt", wanted, "trixie", folder / "base.tar", mirror)
    name = answer("buildah", *storage, "from", "scratch").splitlines()[-1]
    answer("buildah", *storage, "add", name, folder / "base.tar", "/")
    answer("buildah", *storage, "config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", name)
    answer("buildah", *storage, "commit", "--rm", name, f"localhost/{BASE}")
    build = ("buildah", *storage, "build", "--isolation", "chroot", *volumes)
    answer(*build, "-f", "docker/Dockerfile", "--target", "cpu", "-t", "marin:cpu", ".")
    dockerfile = "benchmarks/grammar_lm/Dockerfile"
    answer(*build, "--build-arg", "BASE=localhost/marin:cpu", "-f", dockerfile, "-t", "grammar_lm", ".")
    box = answer("buildah", *storage, "from", "localhost/grammar_lm").splitlines()[-1]
    yield lambda script: answer("buildah", *storage, "run", "--isolation", "chroot", box, "--", "bash", "-c", script)
    shutil.rmtree(folder, ignore_errors=True)


def test_the_benchmarks_folder_in_a_clean_container_root(image, checkers, tmp_path, judge):
    """Nothing of this machine is in it but the network: its user is not root, and the code is what the image copied."""
    judged = judge("MLPerf's compliance checker", judges.version("mlperf"))
    assert image("id -u") == "1000" and image("pwd") == "/opt/marin"
    image(INSIDE)
    log = image("cat /tmp/result_0.txt")
    status, said = compliant(checkers, tmp_path, log + "\n")
    assert status == 0 and "SUCCESS" in said, said
    judged.accepts("the log of a run in the benchmark's own image, in a container root made from packages")
    replayed = image("MARIN_ROOT=/tmp/result_0.root marin verify latest --no-record --json")
    assert set(json.loads(replayed[replayed.index("{") :])["verdicts"].values()) <= {"PASS", "NOT_RUN"}
