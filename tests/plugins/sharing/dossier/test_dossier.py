"""A dossier says what the events say; every alteration of a file or a field is found, also when the operator signs it again."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from drawn import Tenth
from recorded import RUN, full_card, record

from ledger import (
    Cosigner,
    Draft,
    Event,
    LedgerError,
    Log,
    LogReader,
    Refused,
    Signer,
    VerifierKey,
    WitnessPolicy,
    create_key,
    make_proof,
    root_of,
)
from marin.errors import UsageError
from marin.history.runs import load
from marin.plugins.sharing.dossier import evidence
from marin.plugins.sharing.dossier import judge as judge_module
from marin.plugins.sharing.dossier.evidence import proof_path, proven_in, run_events
from marin.plugins.sharing.dossier.facts import Subject, derived
from marin.plugins.sharing.dossier.judge import copied, judge_dossier
from marin.plugins.sharing.dossier.kinds import CARD_STATED, CardStated
from marin.plugins.sharing.dossier.layout import ATTESTATION, MANIFESTS, PREDICATE, subject_of
from marin.plugins.sharing.dossier.stated import STATED, YES_OR_NO, blank_card, card_stream, read_card
from marin.plugins.sharing.dossier.write import write_dossier
from marin.record import events
from marin.record.attestation import attestation, attested, digests
from marin.record.root import Root
from marin.record.trust.pins import Pins, default_pins, read_pin
from marin.verify.alone.judgement import Judgement, LogAgreement
from marin.verify.alone.proven import Proven
from marin.verify.verdict import Verdict
from tests.ledger.memory import MemoryStorage

CARD = "provider:\n  name: An Example Laboratory\nmodel: {name: Nano 1, licence: Apache-2.0}\ndata.language: [en, de]\n"


def written(root: Root, dest: Path, **more: Any) -> Path:
    write_dossier(root, load(root.history(), RUN), dest, **more)
    return dest


def judge(root: Root, folder: Path) -> Judgement:
    return judge_dossier(folder, [root.verifier])


def subject_of_folder(root: Root, folder: Path) -> Subject:
    manifests = {step: (folder / file).read_bytes() for step, file in MANIFESTS.items()}
    return subject_of(proven_in(folder, [root.verifier]), RUN, manifests)


def signed_again(root: Root, folder: Path) -> None:
    """By the operator, whose key signs anything."""
    said = dict(attested((folder / ATTESTATION).read_bytes(), [root.verifier], PREDICATE).said)
    again = attestation(digests(folder, ATTESTATION), PREDICATE, said, root.signer())
    (folder / ATTESTATION).write_bytes(again)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder from which no root is found."""
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "elsewhere"


@pytest.fixture
def card(tmp_path: Path) -> Path:
    (tmp_path / "model-card.yaml").write_text(CARD)
    return tmp_path / "model-card.yaml"


@pytest.fixture
def dossier(root: Root, tmp_path: Path, card: Path) -> Path:
    return written(root, tmp_path / "dossier", card=card)


def test_a_dossier_is_judged_by_its_folder_and_a_key(root: Root, dossier: Path) -> None:
    found = judge(root, dossier)
    assert {name: verdict.outcome for name, verdict in found.verdicts.items()} == {
        "files": "PASS",
        "events": "PASS",
        "fields": "PASS",
        "model": "PASS",
        "complete": "PARTIAL",
    }
    assert found.exit_code() == 4
    assert any("1.1 Provider" in line and "Article 53(1)(d)" in line for line in found.verdicts["complete"].lines)


def test_each_field_says_where_it_comes_from(root: Root, dossier: Path) -> None:
    listed = json.loads((dossier / "fields.json").read_text())
    by_name = {item["name"]: item for item in listed if item["file"] == "README.md"}
    assert by_name["training.steps"]["value"] == 6
    assert by_name["training.steps"]["events"] == [0]
    assert by_name["evaluation.loss"]["value"] == 5.25
    assert by_name["model.digest"]["value"] == load(root.history(), RUN).output("export").digest
    assert by_name["provider.name"]["source"] == "stated"
    assert by_name["model.base"]["value"] == "to be stated by the provider"
    for item in listed:
        assert (item["source"] == "open") == (item["events"] == []), item
        assert all((dossier / proof).is_file() for proof in item["proofs"])
        if item["file"].endswith(".json"):
            value = json.loads((dossier / item["file"]).read_text())
            for part in item["at"].split("/")[1:]:
                value = value[int(part) if isinstance(value, list) else part.replace("~1", "/").replace("~0", "~")]
            assert value == item["value"], item


def test_the_same_events_give_the_same_bytes(root: Root, dossier: Path, tmp_path: Path) -> None:
    assert digests(written(root, tmp_path / "again"), "") == digests(dossier, "")


def test_every_question_answered_is_complete(root: Root, tmp_path: Path) -> None:
    (tmp_path / "whole.yaml").write_text(json.dumps(full_card()))
    found = judge(root, written(root, tmp_path / "dossier", card=tmp_path / "whole.yaml"))
    assert found.exit_code() == 0, found.as_json()


def test_what_is_asked_where_the_answer_is_yes(root: Root, tmp_path: Path) -> None:
    """A no answers its whole section; a yes asks for what depends on it."""
    asked_then = {"data.crawlers", "data.domains", *(name for name in STATED if re.match(r"data\..*_", name))}
    values = {name: value for name, value in full_card().items() if name not in asked_then}
    cards = {"no": values | dict.fromkeys(YES_OR_NO, False), "yes": values}
    cards["no"] |= {"data.acquired_until": "2026-01-01"}
    left = {}
    for said, card in cards.items():
        (tmp_path / said).write_text(json.dumps(card))
        left[said] = judge(root, written(root, tmp_path / f"{said}-dossier", card=tmp_path / said)).verdicts["complete"]
    assert left["no"].outcome == "PASS", left["no"].lines
    asked = [line for line in left["yes"].lines if "2.3 Data crawled" in line]
    assert len(asked) == 7 and all("Article 53(1)(d)" in line for line in asked), left["yes"].lines
    form = json.loads((tmp_path / "no-dossier/eu-training-summary.json").read_text())
    crawlers = next(row for row in form["fields"] if row["question"].startswith("Names or identifiers"))
    assert crawlers["answers"] == {} and crawlers["asked where"] == {"data.crawled": False}


def lap(root: Root, start: int, **last: float) -> int:
    """One segment of three train steps, as a training records it."""
    norms = events.Series(key=events.GRAD_NORM, steps=[start, start + 1, start + 2], values=[(1.0).hex()] * 3)
    series = [
        events.Series(key=f"system/{key}", steps=[start + 2], values=[value.hex()]) for key, value in last.items()
    ]
    body = events.MetricsRecorded(run=RUN, step="train", series=[norms, *series])
    return record(root, events.METRICS_RECORDED, body)


def test_time_and_energy_are_measured_or_say_that_they_are_not(root: Root, tmp_path: Path) -> None:
    """Without a counter: by the power that the provider states, for the seconds that were measured. With one: measured,
    and a card that says otherwise contradicts the ledger."""
    (tmp_path / "card.yaml").write_text("training.watts: 150")
    one, two = (lap(root, start, seconds_per_step=400.0, cpu_utilization_percentage=50.0) for start in (0, 3))
    told = subject_of_folder(root, written(root, tmp_path / "stated", card=tmp_path / "card.yaml")).values
    assert (told["training.seconds"].value, told["training.seconds"].events) == (2400.0, (one, two))
    assert told["training.seconds"].measured and told["training.time_band"].value == "less than 1 month"
    assert told["training.energy_mwh"].value == pytest.approx(150 * 2400 / 3.6e9)
    assert told["training.energy_mwh"].source == "stated" and "estimated: 150 W" in str(told["training.energy_method"])
    for start in (0, 3):  # the same segments, executed again where there is a counter
        lap(root, start, seconds_per_step=1.0, energy_joules=1800.0)
    folder = written(root, tmp_path / "measured")
    told = subject_of_folder(root, folder).values
    assert (told["training.energy_mwh"].value, told["training.energy_mwh"].source) == (3600 / 3.6e9, "recorded")
    form = json.loads((folder / "eu-model-documentation.json").read_text())
    energy = next(row for row in form["fields"] if row["question"].startswith("Amount of energy"))
    assert energy["measured"] == ["training.energy_mwh"]
    (tmp_path / "card.yaml").write_text("training.energy_mwh: 3")
    with pytest.raises(UsageError, match="contradicts the ledger"):
        written(root, tmp_path / "wrong", card=tmp_path / "card.yaml")


def test_a_blank_card_is_one_once_it_is_filled_in(root: Root, tmp_path: Path, dossier: Path) -> None:
    known = {told.name for told in derived(load(root.history(), RUN), proven_in(dossier, [root.verifier]))}
    blank = blank_card(dict.fromkeys(known))
    (tmp_path / "blank.yaml").write_text(blank)
    with pytest.raises(UsageError, match="names and values"):
        read_card(tmp_path / "blank.yaml")
    answers = {name: json.dumps(value) for name, value in full_card().items()}
    filled = re.sub(r"^#(\S+):$", lambda line: f"{line[1]}: {answers[line[1]]}", blank, flags=re.M)
    (tmp_path / "filled.yaml").write_text(filled)
    assert judge(root, written(root, tmp_path / "whole", card=tmp_path / "filled.yaml")).exit_code() == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("training.steps: 7", ("6", "7")),
        ("model: {digest: 'sha256:00'}", ("sha256:00", "contradicts")),
        ("data.languages: [en]", ("data.language",)),
        ("data.public: perhaps", ("yes or no", "perhaps")),
        ("training.energy_mwh: much", ("a number from 0", "much")),
        ("training.watts: -1", ("a number from 0", "-1")),
        ("model: [1, 2]", ("model",)),
        ("- a list", ("names and values",)),
        ("a: [b", ("YAML",)),
        ("model.limitations: .nan", ("nan",)),
        ("model: !!python/object/apply:os.system [true]", ("YAML",)),
    ],
)
def test_a_card_that_is_wrong_is_refused(root: Root, tmp_path: Path, line: str, said: tuple[str, ...]) -> None:
    (tmp_path / "card.yaml").write_text(line)
    size = root.reader().checkpoint().size
    with pytest.raises(UsageError) as raised:
        written(root, tmp_path / "dossier", card=tmp_path / "card.yaml")
    assert all(text in str(raised.value) for text in said), raised.value
    assert root.reader().checkpoint().size == size, "nothing is recorded of it"
    assert not (tmp_path / "dossier").exists()


def test_a_card_of_somebody_else_that_contradicts_is_refused(root: Root, tmp_path: Path) -> None:
    body = CardStated(about=RUN, values={"training.steps": 9})
    record(root, CARD_STATED, body, card_stream(RUN))
    with pytest.raises(UsageError, match="contradicts"):
        written(root, tmp_path / "dossier")


@pytest.mark.parametrize("name", ["model.sig", "model.pem"])
def test_a_signature_of_no_model(root: Root, dossier: Path, name: str) -> None:
    """The operator signs it as a file; what it would be a signature of is not in here."""
    (dossier / name).write_bytes(b"{}")
    signed_again(root, dossier)
    found = judge(root, dossier).verdicts["fields"]
    assert found.outcome == "FAIL" and "belongs to no dossier" in found.lines[0]


HEADED = "Safe 1\n\n## Verification\n\n| what | value | from |\n| --- | --- | --- |\n| verification.training | PASS | event 7 |"


def test_what_is_stated_stays_on_its_line(root: Root, tmp_path: Path) -> None:
    """Nobody states a table of proven values, a link or an image."""
    values: dict[str, Any] = {
        "model.name": HEADED,
        "provider.contact": "[event 3](https://evil.example) ![x](//evil.example)",
    }
    record(root, CARD_STATED, CardStated(about=RUN, values=values), card_stream(RUN))
    folder = written(root, tmp_path / "dossier")
    text = (folder / "README.md").read_text().split("\n---\n", 1)[1]
    assert not re.search(r"^\| verification\.training \| PASS \| event 7 \|", text, re.M)
    assert text.count("## Verification\n") == 1, "the ledger's own"
    assert not re.search(r"(?<!\\)\[", text)
    assert judge(root, folder).verdicts["fields"].outcome == "PASS"


def test_a_card_is_recorded_once(root: Root, dossier: Path, tmp_path: Path, card: Path) -> None:
    size = root.reader().checkpoint().size
    written(root, tmp_path / "again", card=card)
    assert root.reader().checkpoint().size == size
    assert read_card(card)["data.language"] == ["en", "de"]


def test_what_is_there_stays(root: Root, dossier: Path) -> None:
    before = digests(dossier, "")
    with pytest.raises(UsageError, match="empty folder"):
        written(root, dossier)
    assert digests(dossier, "") == before


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_every_altered_file_is_found(root: Root, dossier: Path, tmp_path: Path) -> None:
    found, tried = [], 0
    for path in files(dossier):
        content = path.read_bytes()
        for changed in (
            content[:-2] + bytes([content[-2] ^ 1]) + content[-1:],
            content[: len(content) // 2],
            b"",
            None,
        ):
            path.unlink()
            if changed is not None:
                path.write_bytes(changed)
            tried += 1
            try:
                if judge(root, dossier).exit_code() != 1:
                    found.append(path)
            except UsageError:
                assert path.name == ATTESTATION
                assert changed is None
            path.write_bytes(content)
    assert tried > 60
    assert found == []
    (dossier / "another.json").write_bytes(b"{}")
    assert judge(root, dossier).exit_code() == 1
    signed_again(root, dossier)
    assert judge(root, dossier).exit_code() == 1, "nor is a file that belongs to no dossier taken from the operator"


def leaves(value: Any) -> Iterator[Callable[[], None]]:
    """One alteration for each leaf of a JSON value, which undoes itself when it is called again."""
    places = value.items() if isinstance(value, dict) else enumerate(value)
    for place, inner in list(places):
        if isinstance(inner, dict | list) and inner:
            yield from leaves(inner)
        else:
            other = [inner, inner + 1 if type(inner) in (int, float) else [*inner, "x"] if inner == [] else f"{inner}x"]

            def swap(place: Any = place, other: list[Any] = other) -> None:
                value[place] = other[1]
                other.reverse()

            yield swap


@pytest.mark.long
def test_every_altered_field_is_found_though_it_is_signed_again(
    root: Root, dossier: Path, tenth: Tenth, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, made = proven_in(dossier, [root.verifier]), judge_module.documents(subject_of_folder(root, dossier))
    # As if the operator signed each again.
    monkeypatch.setattr(judge_module, "check_files", lambda named, found: None)
    monkeypatch.setattr(judge_module, "digests", lambda folder, attestation: {})
    # The events stay, what is known of their log, and what follows from them.
    monkeypatch.setattr(judge_module, "proven_in", lambda folder, keys: shown)
    monkeypatch.setattr(judge_module, "check_known", lambda shown, keys, run_events, policy: LogAgreement(()))
    monkeypatch.setattr(judge_module, "documents", lambda about: made)
    missed, tried = [], 0
    for path in sorted(dossier.glob("*.json")):
        content = path.read_bytes()
        value = json.loads(content)
        swaps = list(leaves(value))
        for number in tenth(range(len(swaps))):
            swaps[number]()
            path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")
            swaps[number]()
            tried += 1
            if judge(root, dossier).verdicts["fields"].outcome != "FAIL":
                missed.append(path)
        path.write_bytes(content)
    for name in ("README.md", "index.html"):
        content = (dossier / name).read_bytes()
        lines = content.split(b"\n")
        for number in tenth(range(len(lines))):
            (dossier / name).write_bytes(b"\n".join([*lines[:number], lines[number] + b".", *lines[number + 1 :]]))
            tried += 1
            if judge(root, dossier).verdicts["fields"].outcome != "FAIL":
                missed.append(dossier / name)
        (dossier / name).write_bytes(content)
    assert tried
    assert missed == []


def test_an_event_that_is_left_out_is_found(root: Root, dossier: Path) -> None:
    """Every event that anything follows from is needed; of the others the documents would say otherwise."""
    for index in (0, 1, 4, 6, 7):
        content = (dossier / proof_path(index)).read_bytes()
        (dossier / proof_path(index)).unlink()
        signed_again(root, dossier)
        assert judge(root, dossier).verdicts["fields"].outcome != "PASS", index
        (dossier / proof_path(index)).write_bytes(content)


def judged_again(root: Root, verdict: str) -> int:
    """Another verification, as its event; its index."""
    checkpoint = root.reader().refresh()
    about = {"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()}
    told = events.ReplayCompleted(
        run=RUN,
        verdicts={"training": verdict},
        training={},
        first_divergence=None,
        log_checkpoint=about,
        details={},
        environment={},
    )
    return record(root, events.REPLAY_COMPLETED, told)


def without(root: Root, folder: Path, index: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dossier that the log's own operator wrote without one event, by a program that does not mind, and signed."""

    def any_events(shown: Proven, **asked: str) -> Iterator[tuple[int, Event]]:
        for place, event in sorted(shown.entries.items()):
            said = {"stream": event.stream, "type": event.type, **event.body}
            if all(said.get(name) == value for name, value in asked.items()):
                yield place, event

    with monkeypatch.context() as patched:
        patched.setattr(
            evidence,
            "run_events",
            lambda history, run: {key: event for key, event in run_events(history, run).items() if key != index},
        )
        patched.setattr(Proven, "events", any_events)
        return written(root, folder)


def test_the_operator_leaves_out_a_verdict(
    root: Root, tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is followed by others is missed by everybody, the last one by who has the log."""
    failed, last = judged_again(root, "FAIL"), judged_again(root, "PASS")
    middle, end = (without(root, tmp_path / str(index), index, monkeypatch) for index in (failed, last))
    found = judge(root, middle).verdicts["events"]
    assert found.outcome == "FAIL" and f"events are left out: {root.location}" in found.lines[0]
    assert f"found none of {last}" in judge(root, end).verdicts["events"].lines[0]
    monkeypatch.chdir(elsewhere)
    alone = judge(root, middle)
    assert alone.outcome == "FAIL" and "an event was left out" in str(alone.as_json()["details"])
    known = judge(root, end).verdicts["events"]
    assert known.outcome == "PASS" and "the log is not at hand" in known.lines[2]


def test_a_log_that_goes_on(root: Root, tmp_path: Path) -> None:
    folder = written(root, tmp_path / "dossier")
    judged_again(root, "FAIL")
    assert "it says more of this run since: 1 event" in judge(root, folder).verdicts["events"].lines


def test_a_fork_of_what_was_seen(root: Root, tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has seen the log before is shown no other history under the same key, shorter, as long, or by another key."""
    folder = written(root, tmp_path / "dossier")
    pins, reader = Pins(default_pins()), root.reader()
    monkeypatch.chdir(elsewhere)

    def seen() -> Verdict:
        return judge(root, folder).verdicts["events"]

    assert "never seen here" in seen().lines[1]
    pins.check(reader, root.storage, "there")
    assert "consistent with the log checkpoint" in seen().lines[1]
    pin = read_pin(path := pins.path(root.verifier.name))
    for changed in (0, 1):  # as long, and longer by one
        other = replace(pin.checkpoint, root=b"1" * 32, size=pin.checkpoint.size + changed)
        path.write_text(json.dumps(replace(pin, checkpoint=other).as_json()))
        path.with_suffix(".leaves").unlink(missing_ok=True)
        if changed:
            leaves = [bytes([number]) * 32 for number in range(other.size)]
            path.write_text(json.dumps(replace(pin, checkpoint=replace(other, root=root_of(leaves))).as_json()))
            path.with_suffix(".leaves").write_bytes(b"".join(leaves))
        assert seen().outcome == "FAIL" and "the log has another history" in seen().lines[0]
    path.with_suffix(".leaves").unlink()
    assert "whose beginning is not kept here" in seen().lines[1]
    path.write_text(json.dumps(replace(pin, checkpoint=replace(pin.checkpoint, size=1)).as_json()))
    assert "newer than the log checkpoint of size 1" in seen().lines[1]
    stranger = create_key(tmp_path / "other", root.verifier.name).verifier
    path.write_text(json.dumps(replace(pin, keys=(stranger,)).as_json()))
    assert seen().outcome == "UNAVAILABLE" and "another key signed this log" in seen().lines[0]


@pytest.mark.parametrize("what", ["folder", "link", "text"])
def test_what_lies_among_the_proofs(root: Root, tmp_path: Path, what: str) -> None:
    folder = written(root, tmp_path / "dossier")
    path = folder / proof_path(99)
    if what == "folder":
        path.mkdir()
    elif what == "link":
        path.symlink_to(folder / "README.md")
    else:
        path.with_suffix(".txt").write_text("more")
        signed_again(root, folder)
    assert judge(root, folder).verdicts["events"].outcome == "FAIL"


def test_a_dossier_at_an_address_makes_nothing_beyond_its_copy(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, temporary = tmp_path / "place", tmp_path / "temporary"
    place.mkdir()
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    statement = attestation({"../beyond/file": "sha256:" + "0" * 64}, PREDICATE, {}, root.signer())
    (place / ATTESTATION).write_bytes(statement)
    with pytest.raises(Refused, match="not a storage name"):
        judge_dossier(str(place), [root.verifier])
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("name", ["README.md/more", "n" * 300, f"{ATTESTATION}/more"])
def test_a_dossier_at_an_address_where_more_lies_than_a_folder_can_have(root: Root, tmp_path: Path, name: str) -> None:
    """A bucket has names, and no folders: an error of ours, and nothing that a disk says."""
    folder, storage = written(root, tmp_path / "dossier"), MemoryStorage()
    for path in files(folder):
        storage.create(path.relative_to(folder).as_posix(), path.read_bytes())
    with copied(storage, "", [root.verifier]) as copy:
        assert judge_dossier(copy, [root.verifier]).verdicts["files"].outcome == "PASS"
    storage.create(name, b"more")
    with pytest.raises(LedgerError), copied(storage, "", [root.verifier]):
        pass


def test_a_strangers_key_proves_nothing(
    root: Root, dossier: Path, tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = create_key(tmp_path / "other", root.verifier.name).verifier
    found = judge_dossier(dossier, [VerifierKey.parse(str(other))])
    assert found.verdicts["files"].outcome == "FAIL"
    assert judge_dossier(dossier, []).verdicts["events"].outcome == "PASS", "one's own key counts for one's own log"
    monkeypatch.chdir(elsewhere)
    with pytest.raises(UsageError, match="verifier key"):
        judge_dossier(dossier, [])


def test_another_trusted_log_cannot_speak_for_this_one(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its operator signs another history under this log's name: that key is trusted, but for its own log."""
    his = create_key(tmp_path / "his", "his.example/log")
    entries = [event for _, event in root.history().events()]
    forged, key = MemoryStorage(), Signer(root.verifier.name, his.key)
    Log.create(forged, key)
    with Log.open(forged, key) as log:
        log.append([Draft(event.type, event.stream, dict(event.body)) for event in entries])
    reader = LogReader(forged, [key.verifier])
    folder = written(root, tmp_path / "dossier")
    for path in (folder / "evidence").iterdir():
        proof = make_proof(reader, int(path.name.partition(".")[0]))
        text = proof.note.partition("\n\n")[0] + "\n"
        line = base64.b64encode(his.verifier.key_id.to_bytes(4) + his.sign(text)).decode()
        path.write_text(str(replace(proof, note=f"{text}\n\u2014 {his.name} {line}\n")))
    said = dict(attested((folder / ATTESTATION).read_bytes(), [root.verifier], PREDICATE).said)
    (folder / ATTESTATION).write_bytes(attestation(digests(folder, ATTESTATION), PREDICATE, said, his))
    found = judge_dossier(folder, [root.verifier, his.verifier])
    assert found.verdicts["files"].outcome == "PASS" and found.verdicts["events"].outcome == "FAIL", found.as_json()
    assert "a checkpoint that its own log did not sign" in found.verdicts["events"].lines[0]


def test_the_verifiers_witnesses_are_asked(root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the one function that asks them of a root: of the checkpoint under which events are proven, or of the log at hand."""
    witness = Cosigner(name="witness.example/w", key=Ed25519PrivateKey.from_private_bytes(bytes([9]) * 32))
    policy = WitnessPolicy.parse(f"witness w {witness.verifier}\nquorum w\n".encode())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MARIN_ROOT", raising=False)
    unseen = written(root, tmp_path / "unseen")
    assert judge(root, unseen).verdicts["events"].outcome == "PASS"
    found = judge_dossier(unseen, [root.verifier], policy)
    assert (found.verdicts["events"].outcome, found.exit_code()) == ("PARTIAL", 4), found.as_json()
    assert "are not known to have seen event" in found.verdicts["events"].lines[0]
    with monkeypatch.context() as patch:
        patch.setattr("marin.verify.alone.judgement.own_policy", lambda trust: policy)
        assert judge(root, unseen).verdicts["events"].outcome == "PARTIAL", "of `marin trust` where none is named"
    with Log.open(root.storage, root.signer()) as log:
        log.publish()
        log.add_cosignatures([witness.line(str(log.checkpoint))])
    seen = written(root, tmp_path / "seen")
    found = judge_dossier(seen, [root.verifier], policy)
    assert found.verdicts["events"].outcome == "PASS", found.as_json()
    assert any("says w" in line for line in found.verdicts["events"].lines)
    monkeypatch.setenv("MARIN_ROOT", root.absolute)
    found = judge_dossier(unseen, [root.verifier], policy)
    assert found.verdicts["events"].outcome == "PASS", "the log at hand has what they cosigned"


def test_the_model_is_bound_to_what_is_said_of_it(root: Root, tmp_path: Path, pem: Path) -> None:
    folder = written(root, tmp_path / "dossier", key=pem)
    assert judge(root, folder).verdicts["model"].outcome == "PASS"
    (folder / "model" / "config.json").write_bytes(b'{"a": 2}\n')
    signed_again(root, folder)
    assert "another model" in judge(root, folder).verdicts["model"].lines[0]
    (folder / "model" / "config.json").write_bytes(b'{"a": 1}\n')
    content = (folder / "model.sig").read_text()
    (folder / "model.sig").write_text(content.replace("A", "B"))
    signed_again(root, folder)
    assert "signature" in judge(root, folder).verdicts["model"].lines[0]


def test_another_version_of_the_writer_is_not_called_a_forger(
    root: Root, dossier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (dossier / "README.md").write_bytes((dossier / "README.md").read_bytes() + b"\nwritten otherwise\n")
    signed_again(root, dossier)
    monkeypatch.setattr("marin.plugins.sharing.dossier.layout.writer", lambda: "sha256:another")
    found = judge(root, dossier)
    assert (found.verdicts["fields"].outcome, found.exit_code()) == ("UNAVAILABLE", 3)
