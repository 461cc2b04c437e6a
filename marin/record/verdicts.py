"""Recorded verdicts, five on a run and ``evaluation`` beside them: which of them count, and all in one word, as lists,
tags, aliases and attestations show it.

A verdict counts where this user gave it: it stands in a log that this user's own key signs, and is about a run of that very
log. Anyone who signs a log can write PASS into it, so that in the log of someone else every verdict is a claim.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from marin.record.events import LOOP, ReplayCompleted

NAMES = ("ledger", "artifacts", "data", "training", "model")
"""The verdicts on a run, in the order of causes."""
EVALUATION = "evaluation"
"""The verdict beside them, on numbers that were drawn from states of the run later."""
SHOWN = (*NAMES, EVALUATION)
"""All that a report has."""
NEVER = "never"
"""What is shown of a run on which this user gave no verdict."""

_ANSWERS = ("PASS", "FAIL")


def effective(verdicts: Mapping[str, str], training: Mapping[str, object]) -> dict[str, str]:
    """The verdicts as they count. A replay of less than all of training was once recorded as PASS: it is PARTIAL.

    Args:
        verdicts: outcomes by name, as ``replay.completed`` holds them.
        training: its account of the replay.
    """
    partial = verdicts.get("training") == "PASS" and training.get("mode") != "full"
    return {**verdicts, **({"training": "PARTIAL"} if partial else {})}


COPY = "copy"
"""The field of a log checkpoint that names the place where a copy of the log was verified."""


def of_the_log(verdicts: Mapping[str, str], log_checkpoint: Mapping[str, object]) -> dict[str, str]:
    """What verdicts say of the log itself, where a copy of it in another place was verified. Damaged bytes there say
    nothing of the bytes here, and whole ones neither. Where they were whole, what fails rests on signatures and consistency
    alone, and fails here too. An evaluation reads bytes that ``artifacts`` does not look at."""
    if COPY not in log_checkpoint:
        return dict(verdicts)
    whole = verdicts.get("artifacts") == "PASS"
    return {name: word for name, word in verdicts.items() if whole and word == "FAIL" and name != EVALUATION}


def counting(body: ReplayCompleted, last: int, evaluated: int = -1) -> dict[str, str]:
    """Verdicts as they count for a run that has been told of until the event ``last`` (verdicts aside), and ``evaluated`` until
    another: what passed before is PARTIAL. Nobody looked at the rest."""
    words, size = (
        of_the_log(effective(body.verdicts, body.training), body.log_checkpoint),
        body.log_checkpoint.get("size"),
    )
    if not isinstance(size, int):
        return words
    old = [name for name in words if last >= size or (name == EVALUATION and evaluated >= size)]
    return {name: "PARTIAL" if name in old and word == "PASS" else word for name, word in words.items()}


def standing(verifications: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """What several verifications of one run, oldest first, say together: of each question the newest answer that is PASS
    or FAIL. Anyone who looks at less later takes nothing back, and does not cover a FAIL; where nobody has answered so, the
    newest other word stands.

    Args:
        verifications: outcomes by name, as they count (:func:`counting`).
    """
    found: dict[str, str] = {}
    for verdicts in verifications:
        for name, word in verdicts.items():
            if word == "NOT_RUN":
                found.setdefault(name, word)
            elif word in _ANSWERS or found.get(name) not in _ANSWERS:
                found[name] = word
    return found


def answerable(pipeline: str, steps: Collection[str]) -> tuple[str, ...]:
    """The verdicts that a run of its kind can have: a loop's data are its own, and it has a model if it saved an output.

    Args:
        pipeline: as ``run.started`` names it. ``steps``: those with an output.
    """
    if pipeline != LOOP:
        return NAMES
    return ("ledger", "artifacts", "training", *(("model",) if set(steps) - {LOOP} else ()))


def overall(verdicts: Mapping[str, str], answerable: Collection[str] = NAMES) -> str:
    """PASS only where every one of the five passes that the run can have; FAIL where one fails, or the evaluation beside
    them; PARTIAL where nothing was wrong in what was looked at; otherwise the worst of the words that are there.

    Args:
        verdicts: outcomes by name, as ``replay.completed`` holds them. One that is missing was not run.
        answerable: those that a run of its kind can have (:func:`answerable`).
    """
    words = [verdicts.get(name, "NOT_RUN") for name in NAMES]
    if verdicts.get(EVALUATION) == "FAIL":
        return "FAIL"
    if all(
        word == "PASS" or (word == "NOT_RUN" and name not in answerable)
        for name, word in zip(NAMES, words, strict=True)
    ):
        return "PASS"
    for word in ("FAIL", "UNAVAILABLE", "UNSUPPORTED"):
        if word in words:
            return word
    return "PARTIAL" if {"PASS", "PARTIAL"} & set(words) else "NOT_RUN"


def verdict_line(
    verdicts: Mapping[str, str] | None,
    claimed: Mapping[str, str] | None = None,
    answerable: Collection[str] = NAMES,
    *,
    by: str = "",
) -> str:
    """The same for a column: with the verdicts that decide, or :data:`NEVER` where this user did not verify; then with what
    the log itself says (``claimed``), or who writes in it (``by``)."""
    if not verdicts:
        return f"{NEVER} (claimed by {by or 'this log'}: {overall(claimed, answerable)})" if claimed else NEVER
    word = overall(verdicts, answerable)
    decisive = [name for name in SHOWN if verdicts.get(name) == word]
    passed = sum(verdicts.get(name) == "PASS" for name in NAMES)
    if word == "PARTIAL":
        return f"PARTIAL, {passed} of {len(answerable)} PASS"
    return word if word == "PASS" else f"{word} {', '.join(decisive)}".strip()


Bytes = tuple[str, tuple[tuple[str, str], ...]]
"""What makes two complete runs equal: the recipe's digest, and each step with the digest of what it made."""


def bytes_of(recipe: str, outputs: Mapping[str, str]) -> Bytes:
    """What decides whether two complete runs are equal; ``outputs`` by step."""
    return recipe, tuple(sorted(outputs.items()))


def in_order(verdicts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names and outcomes in the order of causes; a record has them in that of the alphabet."""
    return [(name, verdicts[name]) for name in SHOWN if name in verdicts]


def same_numbers[K](own: Mapping[K, float], others: Mapping[K, float]) -> bool:
    """Whether each number of ``own`` stands in ``others`` too, to the last bit."""
    return all(key in others and others[key].hex() == value.hex() for key, value in own.items())


def passed_as(twin: str) -> str:
    """What is said of a run whose bytes are those of ``twin``, which passed."""
    return f"PASS as {twin}"


def twins(complete: Iterable[tuple[str, Bytes]], passed: Iterable[str]) -> dict[str, str]:
    """For each of these complete runs without a verdict the first one of equal bytes that ``passed``, if there is one.

    What was established of one holds for the bytes of the other, so lists say ``PASS as`` it where they show no number of
    the other that the verified run does not have; the twin's own record (when it ran, where, by whom) was judged by nobody.
    """
    runs, verified = dict(complete), set(passed)
    first: dict[Bytes, str] = {}
    for run, key in runs.items():
        if run in verified:
            first.setdefault(key, run)
    return {run: first[key] for run, key in runs.items() if run not in verified and key in first}
