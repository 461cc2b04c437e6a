"""Rules by name, with the thresholds of their papers: Gopher (Rae et al. 2021, A1.1), C4 (Raffel et al. 2020, 2.2) and FineWeb
(Penedo et al. 2024, 3.6). Each threshold is a whole number or a fraction written as such, each comparison exact.

A word is what white space separates, a paragraph what an empty line does. The first rule that a document breaks removes it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import regex
from msgspec import Struct

from marin.collection.document import Document, Judgement, Scalar
from marin.collection.steps.deciding import above, below, changed, fraction, removed

STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
ENDS = (".", "!", "?", '"')
SENTENCE_END = regex.compile(r"\p{Sentence_Terminal}\Z")
"""A line that ends a sentence, in any script (Unicode, PropList)."""
CITATION = re.compile(r"\[(?:\d*|edit|citation needed)\]")
BULLETS = ("•", "‣", "▶", "◀", "◦", "■", "□", "▪", "▫", "–", "-", "*")
POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
SENTENCE = re.compile(r"[.!?][\"')\]]*(?:\s|$)")

type Broken = tuple[str, dict[str, Scalar]]
"""A rule and the evidence."""
type Rules = Callable[[str], Iterator[Broken]]


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
    """A step that removes what breaks a rule."""

    def __init__(self, name: str, rules: Rules) -> None:
        self._name, self._rules = name, rules

    def judge(self, document: Document) -> Judgement:
        """See :class:`marin.collection.document.Step`."""
        for rule, evidence in self._rules(document.text):
            return removed(document, self._name, rule, **evidence)
        return Judgement(document)


def _count(value: int, threshold: int) -> dict[str, Scalar]:
    return {"value": value, "threshold": threshold}


def gopher_quality(text: str) -> Iterator[Broken]:
    """The rules that ``text`` breaks."""
    words = text.split()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    count = len(words)
    if count < 50:
        yield "gopher_too_few_words", _count(count, 50)
    if count > 100_000:
        yield "gopher_too_many_words", _count(count, 100_000)
    letters = sum(map(len, words))
    for rule, wrong, limit in (
        ("gopher_short_words", below(letters, count, Fraction(3)), Fraction(3)),
        ("gopher_long_words", above(letters, count, Fraction(10)), Fraction(10)),
    ):
        if wrong:
            yield rule, fraction(letters, count, limit)
    tenth = Fraction(1, 10)
    for rule, symbols in (("gopher_hashes", text.count("#")), ("gopher_ellipses", text.count("...") + text.count("…"))):
        if above(symbols, count, tenth):
            yield rule, fraction(symbols, count, tenth)
    bullets = sum(line.startswith(BULLETS) for line in lines)
    if above(bullets, len(lines), Fraction(9, 10)):
        yield "gopher_bullets", fraction(bullets, len(lines), Fraction(9, 10))
    ellipses = sum(line.endswith(("...", "…")) for line in lines)
    if above(ellipses, len(lines), Fraction(3, 10)):
        yield "gopher_ellipsis_lines", fraction(ellipses, len(lines), Fraction(3, 10))
    alphabetic = sum(any(map(str.isalpha, word)) for word in words)
    if below(alphabetic, count, Fraction(8, 10)):
        yield "gopher_alphabetic", fraction(alphabetic, count, Fraction(8, 10))
    stop = len(STOP_WORDS.intersection(word.lower().strip(".,;:!?\"'()") for word in words))
    if stop < 2:
        yield "gopher_stop_words", _count(stop, 2)


def gopher_repetition(text: str) -> Iterator[Broken]:
    """The rules that ``text`` breaks."""
    size = len(text)
    for name, parts, of_count, of_characters in (
        ("paragraphs", re.split(r"\n{2,}", text.strip()), Fraction(3, 10), Fraction(2, 10)),
        ("lines", [line for line in text.split("\n") if line.strip()], Fraction(3, 10), Fraction(2, 10)),
    ):
        again, characters = duplicates(parts)
        if above(again, len(parts), of_count):
            yield f"gopher_duplicate_{name}", fraction(again, len(parts), of_count)
        if above(characters, size, of_characters):
            yield f"gopher_duplicate_{name}_characters", fraction(characters, size, of_characters)
    words = text.split()
    for n, percent in ((2, 20), (3, 18), (4, 16)):
        grams = Counter(zip(*(words[start:] for start in range(n)), strict=False))
        if grams:
            most = max(grams.values())
            part = max(len(" ".join(gram)) for gram, count in grams.items() if count == most) * most if most > 1 else 0
            if above(part, size, Fraction(percent, 100)):
                yield f"gopher_top_{n}_gram", fraction(part, size, Fraction(percent, 100))
    for n, percent in ((5, 15), (6, 14), (7, 13), (8, 12), (9, 11), (10, 10)):
        part = repeated(words, n)
        if not part:
            break  # what is longer repeats even less
        if above(part, size, Fraction(percent, 100)):
            yield f"gopher_duplicate_{n}_gram", fraction(part, size, Fraction(percent, 100))


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


def fineweb(text: str) -> Iterator[Broken]:
    """The rules that ``text`` breaks."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    count = len(lines)
    ends, few = sum(SENTENCE_END.search(line) is not None for line in lines), Fraction(12, 100)
    if not above(ends, count, few):
        yield "fineweb_line_ends", fraction(ends, count, few)
    short, many = sum(len(line) < 30 for line in lines), Fraction(67, 100)
    if not below(short, count, many):
        yield "fineweb_short_lines", fraction(short, count, many)
    _, characters = duplicates(lines)
    whole, tenth = sum(map(len, lines)), Fraction(1, 10)
    if not below(characters, whole, tenth):
        yield "fineweb_duplicate_lines", fraction(characters, whole, tenth)


class C4Step:
    """The step ``c4``: lines go one by one, then the page is judged by what is left."""

    def __init__(self, settings: C4) -> None:
        self._settings = settings

    def judge(self, document: Document) -> Judgement:
        """See :class:`marin.collection.document.Step`."""
        settings, lower = self._settings, document.text.lower()
        for rule, words in (("c4_lorem_ipsum", "lorem ipsum"), ("c4_curly_bracket", "{")):
            if (place := lower.find(words)) >= 0:
                return removed(document, "c4", rule, place=place)
        kept: list[str] = []
        gone: Counter[str] = Counter()
        for read in document.text.split("\n"):
            line = CITATION.sub("", read) if settings.citations else read
            reason = self._wrong(line.strip()) if line.strip() else ""
            if reason:
                gone[reason] += 1
            else:
                kept.append(line)
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
        sentences = len(SENTENCE.findall(text))
        if sentences < settings.sentences:
            return removed(document, "c4", "c4_sentences", **_count(sentences, settings.sentences), **gone)
        return changed(document, text, "c4", "c4_lines", **gone)

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
