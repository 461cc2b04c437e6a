"""Rules by name, with the thresholds of their papers: Gopher (Rae et al. 2021, A1.1), C4 (Raffel et al. 2020, 2.2) and FineWeb
(Penedo et al. 2024, 3.6). Each threshold is a whole number or a fraction written as such, each comparison exact.

A word is what white space separates, a paragraph what an empty line does. The first rule that a document breaks removes it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import regex
from msgspec import Struct

from marin.plugins.collections.document import Document, Judgement, Scalar
from marin.plugins.collections.steps.deciding import above, below, changed, removed

STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
ENDS = (".", "!", "?", '"')
SENTENCE_END = regex.compile(r"\p{Sentence_Terminal}\Z")
"""A line that ends a sentence, in any script (Unicode, PropList)."""
CITATION = re.compile(r"\[(?:\d*|edit|citation needed)\]")
BULLETS = ("•", "‣", "▶", "◀", "◦", "■", "□", "▪", "▫", "–", "-", "*")
POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
SENTENCE = re.compile(r"[.!?][\"')\]]*(?:\s|$)")


class Measure(NamedTuple):
    """What a rule finds in a text, and whether that breaks it: ``part`` of ``whole``, or a count where there is no whole."""

    rule: str
    broken: bool
    part: int
    whole: int | None
    threshold: Fraction | int

    def evidence(self) -> dict[str, Scalar]:
        """The numbers, so that nobody has to round."""
        if self.whole is None:
            return {"value": self.part, "threshold": int(self.threshold)}
        return {"part": self.part, "whole": self.whole, "threshold": str(self.threshold)}


type Rules = Callable[[str], Iterator[Measure]]


class _Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class GopherQuality(_Section, frozen=True):
    """Gopher's quality rules."""

    def make(self) -> Removing:
        """The step."""
        return Removing("gopher_quality", gopher_quality)


class GopherRepetition(_Section, frozen=True):
    """Gopher's repetition rules (its table A1)."""

    def make(self) -> Removing:
        """The step."""
        return Removing("gopher_repetition", gopher_repetition)


class FineWeb(_Section, frozen=True):
    """FineWeb's three rules."""

    def make(self) -> Removing:
        """The step."""
        return Removing("fineweb", fineweb)


class C4(_Section, frozen=True):
    """C4's rules, with the thresholds of the paper's last version and of its code. ``terminal_punctuation``: lines that end
    otherwise go too; FineWeb leaves this one out, as it takes most. ``citations``: Wikipedia's marks such as [1] and [edit] are
    taken out of lines, as that code does; in pages about programs they are indices. ``word_characters``: a line with a longer
    word goes."""

    terminal_punctuation: bool = False
    citations: bool = False
    words_per_line: int = 5
    word_characters: int = 1000
    sentences: int = 3

    def make(self) -> C4Step:
        """The step."""
        return C4Step(self)


class Removing:
    """A :class:`marin.plugins.collections.document.Step` that removes what breaks a rule."""

    def __init__(self, name: str, rules: Rules) -> None:
        self._name, self._rules = name, rules

    def judge(self, document: Document) -> Judgement:
        for found in self._rules(document.text):
            if found.broken:
                return removed(document, self._name, found.rule, **found.evidence())
        return Judgement(document)

    def measured(self, document: Document) -> Mapping[str, Any]:
        return {found.rule: found.evidence() for found in self._rules(document.text)}


def gopher_quality(text: str) -> Iterator[Measure]:
    """What each rule finds in ``text``."""
    words = text.split()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    count = len(words)
    yield Measure("gopher_too_few_words", count < 50, count, None, 50)
    yield Measure("gopher_too_many_words", count > 100_000, count, None, 100_000)
    letters = sum(map(len, words))
    yield Measure("gopher_short_words", below(letters, count, Fraction(3)), letters, count, Fraction(3))
    yield Measure("gopher_long_words", above(letters, count, Fraction(10)), letters, count, Fraction(10))
    yield _most("gopher_hashes", text.count("#"), count, Fraction(1, 10))
    yield _most("gopher_ellipses", text.count("...") + text.count("…"), count, Fraction(1, 10))
    bullets = sum(line.startswith(BULLETS) for line in lines)
    yield _most("gopher_bullets", bullets, len(lines), Fraction(9, 10))
    ellipses = sum(line.endswith(("...", "…")) for line in lines)
    yield _most("gopher_ellipsis_lines", ellipses, len(lines), Fraction(3, 10))
    alphabetic, least = sum(any(map(str.isalpha, word)) for word in words), Fraction(8, 10)
    yield Measure("gopher_alphabetic", below(alphabetic, count, least), alphabetic, count, least)
    stop = len(STOP_WORDS.intersection(word.lower().strip(".,;:!?\"'()") for word in words))
    yield Measure("gopher_stop_words", stop < 2, stop, None, 2)


def _most(rule: str, part: int, whole: int, threshold: Fraction) -> Measure:
    return Measure(rule, above(part, whole, threshold), part, whole, threshold)


def gopher_repetition(text: str) -> Iterator[Measure]:
    """What each rule finds in ``text``."""
    size = len(text)
    for name, parts, of_count, of_characters in (
        ("paragraphs", re.split(r"\n{2,}", text.strip()), Fraction(3, 10), Fraction(2, 10)),
        ("lines", [line for line in text.split("\n") if line.strip()], Fraction(3, 10), Fraction(2, 10)),
    ):
        again, characters = duplicates(parts)
        yield _most(f"gopher_duplicate_{name}", again, len(parts), of_count)
        yield _most(f"gopher_duplicate_{name}_characters", characters, size, of_characters)
    words = text.split()
    for n, percent in ((2, 20), (3, 18), (4, 16)):
        grams = Counter(zip(*(words[start:] for start in range(n)), strict=False))
        most = max(grams.values(), default=0)
        part = max(len(" ".join(gram)) for gram, count in grams.items() if count == most) * most if most > 1 else 0
        yield _most(f"gopher_top_{n}_gram", part, size, Fraction(percent, 100))
    part = size
    for n, percent in ((5, 15), (6, 14), (7, 13), (8, 12), (9, 11), (10, 10)):
        part = repeated(words, n) if part else 0  # where none repeats, what is longer does not either
        yield _most(f"gopher_duplicate_{n}_gram", part, size, Fraction(percent, 100))


def duplicates(parts: Sequence[str]) -> tuple[int, int]:
    """How many of ``parts`` stood before, and their characters."""
    seen: set[str] = set()
    again = characters = 0
    for part in parts:
        if part in seen:
            again, characters = again + 1, characters + len(part)
        seen.add(part)
    return again, characters


def repeated(words: Sequence[str], n: int) -> int:
    """Characters of words in n-grams that stood before, each word once: what is counted is not looked at again."""
    grams = list(zip(*(words[start:] for start in range(n)), strict=False))
    if len(set(grams)) == len(grams):
        return 0
    seen: set[tuple[str, ...]] = set()
    place = characters = 0
    while place < len(grams):
        gram = grams[place]
        if gram in seen:
            characters += sum(map(len, gram))
            place += n
        else:
            seen.add(gram)
            place += 1
    return characters


def fineweb(text: str) -> Iterator[Measure]:
    """What each rule finds in ``text``."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    count = len(lines)
    ends, few = sum(SENTENCE_END.search(line) is not None for line in lines), Fraction(12, 100)
    yield Measure("fineweb_line_ends", not above(ends, count, few), ends, count, few)
    short, many = sum(len(line) < 30 for line in lines), Fraction(67, 100)
    yield Measure("fineweb_short_lines", not below(short, count, many), short, count, many)
    _, characters = duplicates(lines)
    whole, tenth = sum(map(len, lines)), Fraction(1, 10)
    yield Measure("fineweb_duplicate_lines", not below(characters, whole, tenth), characters, whole, tenth)


class C4Step:
    """The :class:`marin.plugins.collections.document.Step` ``c4``: lines go one by one, then the page is judged."""

    def __init__(self, settings: C4) -> None:
        self._settings = settings

    def judge(self, document: Document) -> Judgement:
        lower = document.text.lower()
        for rule, words in (("c4_lorem_ipsum", "lorem ipsum"), ("c4_curly_bracket", "{")):
            if (place := lower.find(words)) >= 0:
                return removed(document, "c4", rule, place=place)
        text, gone = self._left(document.text)
        found = self._sentences(text)
        if found.broken:
            return removed(document, "c4", found.rule, **found.evidence(), **gone)
        return changed(document, text, "c4", "c4_lines", **gone)

    def measured(self, document: Document) -> Mapping[str, Any]:
        lower, (text, gone) = document.text.lower(), self._left(document.text)
        return {
            "c4_lorem_ipsum": {"value": lower.count("lorem ipsum"), "threshold": 0},
            "c4_curly_bracket": {"value": lower.count("{"), "threshold": 0},
            "c4_sentences": self._sentences(text).evidence(),
            "c4_lines": {"value": sum(gone.values()), "words_per_line": self._settings.words_per_line},
        }

    def _sentences(self, text: str) -> Measure:
        count, least = len(SENTENCE.findall(text)), self._settings.sentences
        return Measure("c4_sentences", count < least, count, None, least)

    def _left(self, whole: str) -> tuple[str, Counter[str]]:
        """The text without the lines that go, and how many go for each reason."""
        kept: list[str] = []
        gone: Counter[str] = Counter()
        for read in whole.split("\n"):
            line = CITATION.sub("", read) if self._settings.citations else read
            reason = self._wrong(line.strip()) if line.strip() else ""
            if reason:
                gone[reason] += 1
            else:
                kept.append(line)
        return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), gone

    def _wrong(self, line: str) -> str:
        lower = line.lower()
        if self._settings.terminal_punctuation and (not line.endswith(ENDS) or line.endswith("...")):
            return "no_terminal_punctuation"
        words = line.split()
        if len(words) < self._settings.words_per_line:
            return "few_words"
        if max(map(len, words), default=0) > self._settings.word_characters:
            return "long_word"
        if "javascript" in lower:
            return "javascript"
        return "policy" if any(policy in lower for policy in POLICIES) else ""
