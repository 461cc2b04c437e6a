"""Minimal pairs: two sentences that differ in one critical word, of which one is grammatical.

The shape is that of BLiMP (Warstadt et al., "BLiMP: The Benchmark of Linguistic Minimal Pairs for English", TACL 2020):
one JSON object per line with ``sentence_good``, ``sentence_bad``, ``field``, ``linguistics_term``, ``UID`` (the
paradigm) and ``pairID``. Sentences are drawn from the same lexicon and phrases as the stories, from streams of their
own, so they are new to a model that has read the stories, but for their words and rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from marin.plugins.grammar import lexicon
from marin.plugins.grammar.generator import Generator
from marin.plugins.grammar.lexicon import BE, DO, HAVE, PRONOUNS, THEY, Gender, Noun, Sort, Verb
from marin.plugins.grammar.morphology import IRREGULAR_PLURALS, IRREGULAR_VERBS, article
from marin.plugins.grammar.phrases import Phrases, Tense
from marin.plugins.grammar.sentences import finished


@dataclass(frozen=True, slots=True)
class MinimalPair:
    """A grammatical sentence and its minimally different, ungrammatical counterpart."""

    good: str
    bad: str
    uid: str
    pair_id: str

    def as_json(self) -> dict[str, str]:
        """The pair with BLiMP's field names."""
        field, term = PHENOMENA[self.uid].field, PHENOMENA[self.uid].term
        return {
            "sentence_good": self.good,
            "sentence_bad": self.bad,
            "field": field,
            "linguistics_term": term,
            "UID": self.uid,
            "pairID": self.pair_id,
        }


Draw = Callable[[Generator], tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Phenomenon:
    """A paradigm of pairs; ``draw`` gives a frame with one gap, the right filler and the wrong one."""

    field: str
    term: str
    draw: Draw


def _present(generator: Generator) -> Phrases:
    return Phrases(generator, Tense.PRESENT)


def _past(generator: Generator) -> Phrases:
    return Phrases(generator, Tense.PAST)


def _rest(phrases: Phrases) -> str:
    """What may follow a transitive verb with a personal object, or nothing."""
    return phrases.noun_phrase(Sort.PERSON, depth=0).text


def _regular_noun(phrases: Phrases, sort: Sort) -> Noun:
    noun = phrases.noun(sort)
    while noun.singular == noun.plural or noun.singular in IRREGULAR_PLURALS:
        noun = phrases.noun(sort)
    return noun


def _irregular_noun(phrases: Phrases) -> Noun:
    nouns = [
        noun
        for table in (lexicon.GROUPS, lexicon.WOMEN_NOUNS, lexicon.MEN_NOUNS, *lexicon.NOUNS.values())
        for noun in table.items
        if noun.singular in IRREGULAR_PLURALS and noun.singular != noun.plural
    ]
    return phrases.generator.pick(nouns)


def _person(generator: Generator) -> tuple[str, Gender]:
    gender = generator.pick((Gender.FEMININE, Gender.MASCULINE))
    if generator.chance(60):
        return generator.draw(lexicon.NAMES[gender]), gender
    table = lexicon.WOMEN_NOUNS if gender is Gender.FEMININE else lexicon.MEN_NOUNS
    return f"the {generator.draw(table).singular}", gender


def _numbered(verb: Verb, many: bool) -> tuple[str, str]:
    return (verb.base, verb.third) if many else (verb.third, verb.base)


def _be(many: bool, tense: Tense) -> tuple[str, str]:
    singular, plural = (BE.third, "are") if tense is Tense.PRESENT else (BE.past, "were")
    return (plural, singular) if many else (singular, plural)


def _subject_verb(generator: Generator) -> tuple[str, str, str]:
    phrases, many = _present(generator), generator.chance(50)
    head = phrases.modified(_regular_noun(phrases, Sort.PERSON), many)
    good, bad = _numbered(generator.draw(lexicon.TAKES[Sort.PERSON]), many)
    return f"the {head} {{}} {_rest(phrases)}", good, bad


def _across_relative_clause(generator: Generator) -> tuple[str, str, str]:
    """The attractor inside the relative clause has the other number."""
    phrases, many = _present(generator), generator.chance(50)
    head = _regular_noun(phrases, Sort.PERSON).form(many)
    attractor = _regular_noun(phrases, Sort.PERSON).form(not many)
    inner = _numbered(generator.draw(lexicon.TAKES[Sort.PERSON]), not many)[0]
    good, bad = _numbered(generator.draw(lexicon.INTRANSITIVE), many)
    return f"the {head} that the {attractor} {inner} {{}} {phrases.place()}", good, bad


def _across_preposition(generator: Generator) -> tuple[str, str, str]:
    phrases = Phrases(generator, generator.pick((Tense.PRESENT, Tense.PAST)))
    many = generator.chance(50)
    head = _regular_noun(phrases, Sort.THING).form(many)
    attractor = _regular_noun(phrases, Sort.FIXTURE).form(not many)
    good, bad = _be(many, phrases.tense)
    where = generator.pick(("near", "behind", "under", "on", "beside"))
    return (f"the {head} {where} the {attractor} {{}} {generator.draw(lexicon.ADJECTIVES[Sort.THING])}", good, bad)


def _auxiliary_number(generator: Generator) -> tuple[str, str, str]:
    phrases, many = _present(generator), generator.chance(50)
    head = phrases.modified(_regular_noun(phrases, Sort.PERSON), many)
    verb = generator.draw(lexicon.TAKES[Sort.THING])
    rest = phrases.noun_phrase(Sort.THING, depth=0).text
    if generator.chance(50):
        good, bad = ("have", HAVE.third) if many else (HAVE.third, "have")
        return f"the {head} {{}} {verb.participle} {rest}", good, bad
    good, bad = ("do", DO.third) if many else (DO.third, "do")
    return f"the {head} {{}} not {verb.base} {rest}", good, bad


def _existential(generator: Generator) -> tuple[str, str, str]:
    phrases = Phrases(generator, generator.pick((Tense.PRESENT, Tense.PAST)))
    many = generator.chance(50)
    head = phrases.modified(_regular_noun(phrases, Sort.THING), many)
    good, bad = _be(many, phrases.tense)
    quantity = generator.pick(("some", "many", "several", "three")) if many else article(head)
    return f"there {{}} {quantity} {head} {phrases.place()}", good, bad


def _reflexive_gender(generator: Generator) -> tuple[str, str, str]:
    subject, gender = _person(generator)
    verb = generator.draw(lexicon.REFLEXIVE)
    other = Gender.MASCULINE if gender is Gender.FEMININE else Gender.FEMININE
    form = generator.pick((verb.past, verb.third, f"has {verb.participle}", f"did not {verb.base}"))
    return f"{subject} {form} {{}}", PRONOUNS[gender].reflexive, PRONOUNS[other].reflexive


def _reflexive_number(generator: Generator) -> tuple[str, str, str]:
    phrases, many = _past(generator), generator.chance(50)
    verb = generator.draw(lexicon.REFLEXIVE)
    gender = generator.pick((Gender.FEMININE, Gender.MASCULINE))
    table = lexicon.WOMEN_NOUNS if gender is Gender.FEMININE else lexicon.MEN_NOUNS
    head = phrases.modified(generator.draw(table), many)
    single = PRONOUNS[gender].reflexive
    good, bad = (THEY.reflexive, single) if many else (single, THEY.reflexive)
    return f"the {head} {verb.past} {{}}", good, bad


def _pronoun_gender(generator: Generator) -> tuple[str, str, str]:
    subject, gender = _person(generator)
    other = Gender.MASCULINE if gender is Gender.FEMININE else Gender.FEMININE
    phrases = _past(generator)
    thing = phrases.modified(phrases.noun(Sort.THING), False)
    verb = generator.draw(lexicon.TAKES[Sort.THING])
    if generator.chance(50):
        trait = generator.draw(lexicon.ADJECTIVES[Sort.PERSON])
        frame = f"{subject} {verb.past} the {thing} because {{}} was {trait}"
        return frame, PRONOUNS[gender].subject, PRONOUNS[other].subject
    where = generator.pick(("when", "before", "after"))
    frame = f"{where} {subject} left, {{}} {verb.past} the {thing}"
    return frame, PRONOUNS[gender].subject, PRONOUNS[other].subject


def _determined(generator: Generator, noun: Noun, head: str) -> tuple[str, str, str]:
    many = generator.chance(50)
    determiner = generator.pick(("these", "those")) if many else generator.pick(("this", "that"))
    verb = generator.draw(lexicon.TAKES[noun.sort])
    subject = generator.draw(lexicon.NAMES[generator.pick((Gender.FEMININE, Gender.MASCULINE))])
    return f"{subject} {verb.past} {determiner} {head}{{}}", noun.form(many), noun.form(not many)


_DETERMINED_SORTS = (Sort.THING, Sort.PERSON, Sort.ANIMAL, Sort.FOOD, Sort.PLACE)


def _determiner_noun(generator: Generator) -> tuple[str, str, str]:
    return _determined(generator, _regular_noun(_past(generator), generator.pick(_DETERMINED_SORTS)), "")


def _determiner_adjective_noun(generator: Generator) -> tuple[str, str, str]:
    noun = _regular_noun(_past(generator), generator.pick(_DETERMINED_SORTS))
    return _determined(generator, noun, generator.draw(lexicon.ADJECTIVES[noun.sort]) + " ")


def _determiner_irregular_noun(generator: Generator) -> tuple[str, str, str]:
    return _determined(generator, _irregular_noun(_past(generator)), "")


def _distinct_irregular(generator: Generator) -> tuple[Sort, Verb]:
    while True:
        sort = generator.pick((Sort.THING, Sort.PERSON, Sort.FOOD))
        verb = generator.draw(lexicon.TAKES[sort])
        if verb.base in IRREGULAR_VERBS and verb.past != verb.participle:
            return sort, verb


def _irregular_past(generator: Generator) -> tuple[str, str, str]:
    phrases = _past(generator)
    sort, verb = _distinct_irregular(generator)
    subject = phrases.noun_phrase(Sort.PERSON, depth=0).text
    return f"{subject} {{}} {phrases.noun_phrase(sort, depth=0).text}", verb.past, verb.participle


def _irregular_participle(generator: Generator) -> tuple[str, str, str]:
    phrases = _past(generator)
    sort, verb = _distinct_irregular(generator)
    subject = phrases.noun_phrase(Sort.PERSON, depth=0).text
    return f"{subject} had {{}} {phrases.noun_phrase(sort, depth=0).text}", verb.participle, verb.past


def _verb_form(generator: Generator) -> tuple[str, str, str]:
    """After *did not* and modals the bare form, not the past."""
    phrases = _past(generator)
    subject = phrases.noun_phrase(Sort.PERSON, depth=0).text
    verb = generator.draw(lexicon.TAKES[Sort.PERSON])
    while verb.base == verb.past:
        verb = generator.draw(lexicon.TAKES[Sort.PERSON])
    auxiliary = generator.pick(("did not", "could", "would", "might not"))
    return f"{subject} {auxiliary} {{}} {_rest(phrases)}", verb.base, verb.past


def _polarity_ever(generator: Generator) -> tuple[str, str, str]:
    phrases, many = _present(generator), generator.chance(50)
    head = phrases.modified(phrases.noun(Sort.PERSON), many)
    sort = generator.pick((Sort.PERSON, Sort.PLACE, Sort.ANIMAL))
    verb = generator.draw(lexicon.TAKES[sort])
    have = "have" if many else HAVE.third
    return f"{{}} {head} {have} ever {verb.participle} {phrases.noun_phrase(sort, depth=0).text}", "no", "the"


def _polarity_any(generator: Generator) -> tuple[str, str, str]:
    phrases = Phrases(generator, generator.pick((Tense.PRESENT, Tense.PAST)))
    sort = generator.pick((Sort.PERSON, Sort.THING, Sort.ANIMAL))
    verb = phrases.finite(generator.draw(lexicon.TAKES[sort]), False)
    return f"{{}} {verb} any {phrases.noun(sort).plural}", "nobody", "somebody"


def _indefinite_article(generator: Generator) -> tuple[str, str, str]:
    phrases = _past(generator)
    sort = generator.pick((Sort.THING, Sort.ANIMAL, Sort.FOOD))
    head = phrases.modified(phrases.noun(sort), False)
    good = article(head)
    if good == "a" and generator.chance(70):
        head = f"{generator.pick(('old', 'ugly', 'expensive', 'empty', 'ordinary'))} {phrases.noun(sort).singular}"
        good = "an"
    subject = phrases.noun_phrase(Sort.PERSON, depth=0).text
    verb = generator.draw(lexicon.TAKES[sort]).past
    return f"{subject} {verb} {{}} {head}", good, "a" if good == "an" else "an"


_AGREEMENT, _ANAPHOR, _DETERMINER = "subject_verb_agreement", "anaphor_agreement", "determiner_noun_agreement"
PHENOMENA: dict[str, Phenomenon] = {
    "subject_verb_agreement": Phenomenon("morphology", _AGREEMENT, _subject_verb),
    "agreement_across_relative_clause": Phenomenon("morphology", _AGREEMENT, _across_relative_clause),
    "agreement_across_preposition": Phenomenon("morphology", _AGREEMENT, _across_preposition),
    "auxiliary_agreement": Phenomenon("morphology", _AGREEMENT, _auxiliary_number),
    "existential_agreement": Phenomenon("morphology", _AGREEMENT, _existential),
    "reflexive_gender_agreement": Phenomenon("morphology", _ANAPHOR, _reflexive_gender),
    "reflexive_number_agreement": Phenomenon("morphology", _ANAPHOR, _reflexive_number),
    "pronoun_gender_agreement": Phenomenon("discourse", _ANAPHOR, _pronoun_gender),
    "determiner_noun_agreement": Phenomenon("morphology", _DETERMINER, _determiner_noun),
    "determiner_noun_agreement_with_adjective": Phenomenon("morphology", _DETERMINER, _determiner_adjective_noun),
    "determiner_noun_agreement_irregular": Phenomenon("morphology", _DETERMINER, _determiner_irregular_noun),
    "irregular_past": Phenomenon("morphology", "irregular_forms", _irregular_past),
    "irregular_past_participle": Phenomenon("morphology", "irregular_forms", _irregular_participle),
    "verb_form_after_auxiliary": Phenomenon("morphology", "verb_forms", _verb_form),
    "npi_ever": Phenomenon("semantics", "npi_licensing", _polarity_ever),
    "npi_any": Phenomenon("semantics", "npi_licensing", _polarity_any),
    "indefinite_article": Phenomenon("phonology", "article_allomorphy", _indefinite_article),
}


def minimal_pairs(seed: int, count: int) -> list[MinimalPair]:
    """``count`` pairs, no two alike, the phenomena in turn; equal numbers of each but for the remainder."""
    names = list(PHENOMENA)
    pairs: list[MinimalPair] = []
    seen: set[str] = set()
    streams = {name: Generator.named("marin.grammar.pairs", 1, seed, name) for name in names}
    while len(pairs) < count:
        uid = names[len(pairs) % len(names)]
        frame, good, bad = PHENOMENA[uid].draw(streams[uid])
        sentence = finished(frame.format(good))
        if sentence not in seen:
            seen.add(sentence)
            pairs.append(MinimalPair(sentence, finished(frame.format(bad)), uid, str(len(pairs) // len(names))))
    return pairs
