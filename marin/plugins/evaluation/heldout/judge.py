"""What held-out sets measured while a run trained: each number follows from the text, and from the state that it names.

Nothing of the event is believed: its state is one that the run recorded and the recipe wants measured, its sets are those of
the recipe, a text of the corpus is made again from the corpus, texts and log-likelihoods are bytes of the
store, bytes and tokens are counted again, every document (or a sample that nobody could choose) is scored again by the state
whose bytes are proven, and the numbers are made again from all log-likelihoods. What differs is named by train step, set,
document and token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ledger import LedgerError, Tampered, digest_bytes
from marin.errors import MissingEvidence
from marin.evaluation.code import other_code
from marin.history.run import Fact
from marin.kinds.families.measured import EvaluationMeasured, MeasuredSet
from marin.plugins.evaluation.heldout.asked import without_tasks
from marin.plugins.evaluation.heldout.companion import due
from marin.plugins.evaluation.heldout.sets import CODE, DEFAULT, corpus_set, set_of
from marin.plugins.evaluation.samples.task import without_samples
from marin.process.arithmetic import apply
from marin.process.progress import bar
from marin.recipe.evaluation import CorpusSet
from marin.record.events import CheckpointSaved
from marin.verify.case import Case
from marin.verify.derivation.attempts import Standing
from marin.verify.derivation.record import facts
from marin.verify.segments.sampling import describe_bound, draw, seed
from marin.verify.verdict import Verdict, outcome_of

if TYPE_CHECKING:
    from marin.data.tokenizer import Tokenizer
    from marin.evaluation.scoring import Scorer
    from marin.evaluation.subject import Subject


def opened(case: Case, state: str, step: int) -> Subject:
    """The state of the run that a number is of, its bytes proven. The arithmetic contract is in force when this is called.

    Raises:
        Tampered: the run has another one before that train step. Others as ``open_subject``.
    """
    from marin.evaluation.subject import open_subject

    last = "train" in case.run.steps and case.run.output("train").digest == state
    subject = open_subject(case.run, case.store, None if last else step)
    if (subject.state, subject.step) != (state, step):
        raise Tampered(
            "the state of a number is not the one that the run has",
            where=f"run {case.run.run}",
            expected=f"state {state} before train step {step}",
            found=f"{subject.state} before train step {subject.step}",
        )
    return subject


def recorded_states(case: Case) -> dict[str, int]:
    """The states of the run, each with the train step before which it is: those with which a segment begins or ends, of which
    a training checkpoint is recorded, and the last one."""
    standing = Standing(case.run).states
    saved = [fact.body for fact in case.run.checkpoints]
    states = {body.state: body.step for body in saved if standing.get(body.step) == body.state}
    if "train" in case.run.steps and case.run.segments:
        states.setdefault(case.run.output("train").digest, case.run.segments[-1].body.end)
    return states


def check_stands(case: Case, states: Mapping[str, int], state: str) -> None:
    """Refuse to judge a number of a state that was recorded and that no segment of the run leads to: whatever follows from it
    says nothing of the training.

    Raises:
        MissingEvidence: it is such a state.
    """
    if state in states:
        return
    for stretch in case.record.stretches:
        for fact in facts(stretch, CheckpointSaved):
            if fact.body.state == state:
                raise MissingEvidence(
                    "a number of a state that does not stand",
                    where=f"event {fact.index}",
                    expected="a state with which a segment of the run begins or ends",
                    found=f"{state} before train step {fact.body.step}, with which none does",
                    cure="nobody judges it: measure a state that stands",
                )


def judge_measured(case: Case, sample: int | None, root: bytes) -> list[tuple[Verdict, int, int]]:
    """For everything that was measured, and for what the recipe wants and nobody recorded: a verdict, how many documents it
    is about, and how many were scored again.

    Args:
        sample: how many documents of each measurement are scored again; None: all. ``root``: the log's, which draws them.
    """
    judging = _Judging(case)
    found = [judging.judge(fact, sample, root) for fact in case.record.measured]
    return [*found, *((Verdict("UNAVAILABLE", (line,)), 0, 0) for line in _lacking(case))]


def _lacking(case: Case) -> Iterator[str]:
    """What the recipe wants measured and nothing is recorded of: by state and set, and by state the tasks."""
    recipe = case.run.recipe
    if case.until is not None or "train" not in case.run.steps or recipe.evaluation.every is None:
        return
    saved = {fact.body.step: fact.body for fact in case.run.checkpoints}
    wanted = [step for step in range(recipe.first_step + 1, recipe.last_step + 1) if due(recipe, step)]
    if unsaved := _steps(step for step in wanted if step not in saved):
        yield f"the recipe wants the state before train step {unsaved} measured, and no such state is recorded"
    had = {
        (fact.body.step, fact.body.state, set_of(recipe, name))
        for fact in case.record.measured
        for name in fact.body.sets
    }
    for name in recipe.evaluation.sets or DEFAULT:
        without = (step for step in wanted if step in saved and (step, saved[step].state, name) not in had)
        if steps := _steps(without):
            yield f"the recipe wants {name} measured on the state before train step {steps}, and nothing of it is recorded"
    asked, evaluated = recipe.evaluation.tasks, [fact.body for fact in case.record.evaluations]
    states, samples = [saved[step] for step in wanted if step in saved], recipe.evaluation.samples
    if asked is not None and (steps := _steps(body.step for body in without_tasks(asked, states, evaluated))):
        line = (
            f"the recipe wants the tasks {', '.join(asked.names)[:200]} of the state before train step {steps}, and no"
        )
        yield line + " evaluation of them under its settings, of the documents of the first one, is recorded"
    if samples is not None and (steps := _steps(body.step for body in without_samples(samples, states, evaluated))):
        yield f"the recipe wants samples of the state before train step {steps}, and none after its prompts are recorded"


def _steps(lacking: Iterable[int]) -> str:
    """The first train steps before which something is lacking, in words; "" where nothing is."""
    return ", ".join(str(step) for step in sorted(set(lacking))[:8])


class _Judging:
    def __init__(self, case: Case) -> None:
        self.case, self.states = case, recorded_states(case)
        self.texts: dict[str, tuple[int, str]] = {}
        self.corpus: dict[str, str | None] = {}
        self.scorer: Scorer | None = None

    def judge(self, fact: Fact[EvaluationMeasured], sample: int | None, root: bytes) -> tuple[Verdict, int, int]:
        body, where = fact.body, f"event {fact.index}, before train step {fact.body.step}"
        total = sum(one.documents for one in body.sets.values())
        try:
            check_stands(self.case, self.states, body.state)
            if wrong := self._contradiction(body):
                return Verdict("FAIL", (f"{where}: the records contradict each other: {wrong}",)), total, 0
            chosen = None
            if sample is not None and sample < total:
                chosen = set(draw(total, sample, seed(root, body.state)))
            line = self._scored(body, chosen)
        except LedgerError as error:
            return Verdict(outcome_of(error), (f"{where}: {error}",)), total, 0
        answered = total if chosen is None else len(chosen)
        if line and (other := other_code(body.code, body.lock, CODE, self.case.run.recipe)):
            said = f"{where}: {other}, so the difference below proves nothing; {line}"
            return Verdict("UNAVAILABLE", (said,)), total, answered
        if line:
            return Verdict("FAIL", (f"{where}, {line}",), executed=True), total, answered
        said = f"{where}: {', '.join(body.sets)}: {answered} of {total} documents scored again by state {body.state}"
        if chosen is None:
            return Verdict("PASS", (said,)), total, answered
        return Verdict("PARTIAL", (said, describe_bound(len(chosen)))), total, answered

    def _contradiction(self, body: EvaluationMeasured) -> str:
        """What the event says of other events."""
        expected = self.case.run.output("tokenizer").digest
        if body.tokenizer != expected:
            return f"tokenizer: expected {expected}, found {body.tokenizer}"
        if self.states.get(body.state) != body.step:
            return f"state: expected one that is recorded before train step {body.step}, found {body.state}"
        recipe = self.case.run.recipe
        if not due(recipe, body.step):
            return f"step: expected one before which the recipe wants a state measured, found {body.step}"
        for name, one in body.sets.items():
            known = set_of(recipe, name)
            if known is None:
                wanted = ", ".join(recipe.evaluation.sets or DEFAULT)
                return f"set {name}: expected those of the recipe, {wanted}"
            if not one.documents or not one.tokens:
                return f"set {name}: expected documents with text, found {one.documents} with {one.tokens} tokens"
            if (data := self._follows(known)) is not None and data != one.data:
                return f"set {name}: expected the text of the run's corpus, {data}, found {one.data}"
            step, data = self.texts.setdefault(name, (body.step, one.data))
            if data != one.data:
                return f"set {name}: its text before train step {step} was {data}, here it is {one.data}"
        return ""

    def _follows(self, name: str) -> str | None:
        """The digest of a set's text where it follows from the run: of its corpus. None where it is that of files, which the
        recipe only names."""
        if name not in self.corpus:
            one = (self.case.run.recipe.evaluation.sets or DEFAULT)[name]
            data = corpus_set(self.case.run, self.case.store, name, one) if isinstance(one, CorpusSet) else None
            self.corpus[name] = None if data is None else digest_bytes(data)
        return self.corpus[name]

    def _scored(self, body: EvaluationMeasured, chosen: set[int] | None) -> str:
        """The first difference, or ""."""
        case = self.case
        apply(case.run.recipe.arithmetic, case.execution)
        from marin.evaluation.scoring import Scorer
        from marin.plugins.evaluation.heldout.measuring import plain_tokenizer

        subject = opened(case, body.state, body.step)
        if self.scorer is None:
            self.scorer = Scorer(subject.model, subject.recipe, devices=case.execution.devices)
        self.scorer = self.scorer.holding(subject.model)
        tokenizer, before = plain_tokenizer(subject), 0
        with bar(f"evaluation {body.step}", len(body.sets)) as progress:
            for place, (name, one) in enumerate(body.sets.items()):
                mine = None if chosen is None else {number - before for number in chosen}
                if line := self._set(one, name, tokenizer, self.scorer, mine):
                    return f"set {name}: {line}"
                before += one.documents
                progress(place + 1, name)
        return ""

    def _set(self, one: MeasuredSet, name: str, tokenizer: Tokenizer, scorer: Scorer, chosen: set[int] | None) -> str:
        from marin.plugins.evaluation.heldout.measuring import encode_texts, numbers_of, score, texts_of

        data, kept = self._read(one.data), self._read(one.scores)
        scores: list[float] = np.frombuffer(kept[: len(kept) // 4 * 4], dtype="<f4").tolist()
        texts = texts_of(data, name)
        documents = encode_texts(tokenizer, texts)
        counted = (len(texts), sum(len(text.encode()) for text in texts), sum(map(len, documents)))
        if counted != (one.documents, one.bytes, one.tokens) or len(kept) != 4 * one.tokens:
            return (
                f"documents, bytes and tokens: recorded {(one.documents, one.bytes, one.tokens)} with {len(scores)} "
                f"log-likelihoods, found {counted}"
            )
        again, start = score(scorer, documents, chosen), 0
        for number, tokens in enumerate(documents):
            end = start + len(tokens)
            for place, (recorded, found) in enumerate(zip(scores[start:end], again.get(number, ()), strict=False)):
                if np.float32(recorded).tobytes() != np.float32(found).tobytes():
                    said = f"log-likelihood recorded {recorded.hex()}, found {found.hex()}"
                    return f"document {number}, token {place}: {said}"
            start = end
        numbers = numbers_of(scores, one.bytes)
        for key in sorted(one.numbers.keys() | numbers.keys()):
            if one.numbers.get(key) != numbers.get(key):
                return f"{key}: recorded {one.numbers.get(key)}, found {numbers.get(key)}"
        return ""

    def _read(self, digest: str) -> bytes:
        data = self.case.store.read(digest)
        assert digest_bytes(data) == digest, "the store gives what it is asked for"
        return data
