"""English inflection: from a stem to its forms, by rule where there is a rule and from a table where there is none.

The rules are those of any school grammar (Quirk et al., "A Comprehensive Grammar of the English Language", chapters 3
and 5): spelling of -s, -ed, -ing, -er, -est and -ly, doubling of a final consonant, and the choice of *a* or *an* by
sound.
"""

from __future__ import annotations

_VOWELS = "aeiou"
_SIBILANTS = ("s", "x", "z", "ch", "sh")

IRREGULAR_PLURALS = {
    "man": "men",
    "woman": "women",
    "child": "children",
    "foot": "feet",
    "tooth": "teeth",
    "goose": "geese",
    "mouse": "mice",
    "ox": "oxen",
    "sheep": "sheep",
    "deer": "deer",
    "fish": "fish",
    "wolf": "wolves",
    "calf": "calves",
    "leaf": "leaves",
    "loaf": "loaves",
    "knife": "knives",
    "wife": "wives",
    "thief": "thieves",
    "shelf": "shelves",
    "scarf": "scarves",
    "half": "halves",
    "hero": "heroes",
    "potato": "potatoes",
    "tomato": "tomatoes",
    "echo": "echoes",
    "policeman": "policemen",
    "policewoman": "policewomen",
    "fisherman": "fishermen",
    "grandchild": "grandchildren",
    "elf": "elves",
    "salmon": "salmon",
    "person": "people",
    "louse": "lice",
    "fireman": "firemen",
    "milkman": "milkmen",
}

_IRREGULAR_VERBS = """
    be was been | have had had | do did done | go went gone | say said said | make made made | take took taken
    come came come | see saw seen | get got got | give gave given | find found found | think thought thought
    tell told told | become became become | leave left left | feel felt felt | bring brought brought
    begin began begun | keep kept kept | hold held held | write wrote written | stand stood stood | hear heard heard
    let let let | mean meant meant | set set set | meet met met | run ran run | pay paid paid | sit sat sat
    speak spoke spoken | lie lay lain | lead led led | read read read | grow grew grown | lose lost lost
    fall fell fallen | send sent sent | build built built | understand understood understood | draw drew drawn
    break broke broken | spend spent spent | cut cut cut | rise rose risen | drive drove driven | buy bought bought
    wear wore worn | choose chose chosen | throw threw thrown | catch caught caught | teach taught taught
    fight fought fought | win won won | sell sold sold | sleep slept slept | swim swam swum | sing sang sung
    ride rode ridden | fly flew flown | forget forgot forgotten | hide hid hidden | drink drank drunk | eat ate eaten
    steal stole stolen | feed fed fed | shake shook shaken | wake woke woken | blow blew blown | bite bit bitten
    hurt hurt hurt | know knew known | sweep swept swept | weep wept wept | shine shone shone | sink sank sunk
    shrink shrank shrunk | freeze froze frozen | tear tore torn | hang hung hung | dig dug dug | bend bent bent
    lend lent lent | forgive forgave forgiven | mistake mistook mistaken | creep crept crept | leap leapt leapt
    kneel knelt knelt | swear swore sworn | ring rang rung | spring sprang sprung | bind bound bound
    seek sought sought | shut shut shut | put put put | show showed shown | burst burst burst | dream dreamt dreamt
    swing swung swung | stick stuck stuck | strike struck struck | weave wove woven | bear bore borne
"""

IRREGULAR_VERBS: dict[str, tuple[str, str]] = {
    base: (past, participle)
    for base, past, participle in (entry.split() for entry in _IRREGULAR_VERBS.strip().replace("\n", "|").split("|"))
}

# Verbs of more than one syllable whose stress is on the last one double it; the rule cannot be seen in the spelling.
_DOUBLING = frozenset({"admit", "regret", "begin", "forget", "prefer", "travel", "permit", "refer", "occur"})
_IRREGULAR_THIRD = {"be": "is", "have": "has"}
_IRREGULAR_COMPARISON = {"good": ("better", "best"), "bad": ("worse", "worst"), "far": ("farther", "farthest")}
_SILENT_H = ("hour", "honest", "honour")
_VOWEL_SOUNDED_AS_CONSONANT = ("uni", "use", "usu", "one", "eu", "ewe")


def _syllables(word: str) -> int:
    """Groups of vowels; a final silent e is not one."""
    stem = word[:-1] if word.endswith("e") and not word.endswith("ee") else word
    groups, inside = 0, False
    for letter in stem:
        vowel = letter in _VOWELS or letter == "y"
        groups += vowel and not inside
        inside = vowel
    return groups


def _doubles(word: str) -> bool:
    """Whether the final consonant is doubled before a vowel: stop, stopped; but rain, rained; open, opened."""
    if word in _DOUBLING:
        return True
    if len(word) < 3 or _syllables(word) != 1:
        return False
    before, vowel, last = word[-3], word[-2], word[-1]
    short = before not in _VOWELS or word[-4:-2] == "qu"
    return short and vowel in _VOWELS and last not in _VOWELS and last not in "wxy"


def _with_s(word: str) -> str:
    if word.endswith(_SIBILANTS):
        return word + "es"
    if word.endswith("y") and word[-2] not in _VOWELS:
        return word[:-1] + "ies"
    return word + "s"


def plural(noun: str) -> str:
    """The plural: bakers, boxes, cherries, children, wolves, sheep."""
    return IRREGULAR_PLURALS.get(noun) or _with_s(noun)


def third_person(verb: str) -> str:
    """The third person singular of the present: walks, watches, carries, goes."""
    if verb in _IRREGULAR_THIRD:
        return _IRREGULAR_THIRD[verb]
    return verb + "es" if verb.endswith("o") else _with_s(verb)


def past(verb: str) -> str:
    """The simple past: walked, stopped, carried, took."""
    irregular = IRREGULAR_VERBS.get(verb)
    return irregular[0] if irregular else _with_ed(verb)


def participle(verb: str) -> str:
    """The past participle: walked, stopped, carried, taken."""
    irregular = IRREGULAR_VERBS.get(verb)
    return irregular[1] if irregular else _with_ed(verb)


def _with_ed(verb: str) -> str:
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in _VOWELS:
        return verb[:-1] + "ied"
    return verb + verb[-1] + "ed" if _doubles(verb) else verb + "ed"


def gerund(verb: str) -> str:
    """The -ing form: walking, stopping, lying, making."""
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")) and verb != "be":
        return verb[:-1] + "ing"
    return verb + verb[-1] + "ing" if _doubles(verb) else verb + "ing"


def comparison(adjective: str) -> tuple[str, str]:
    """Comparative and superlative: older, oldest; happier, happiest; more patient, most patient."""
    if adjective in _IRREGULAR_COMPARISON:
        return _IRREGULAR_COMPARISON[adjective]
    syllables = _syllables(adjective)
    if syllables > 2 or (syllables == 2 and not adjective.endswith(("y", "ow", "er"))):
        return f"more {adjective}", f"most {adjective}"
    if adjective.endswith("e"):
        return adjective + "r", adjective + "st"
    if adjective.endswith("y") and adjective[-2] not in _VOWELS:
        return adjective[:-1] + "ier", adjective[:-1] + "iest"
    stem = adjective + adjective[-1] if _doubles(adjective) else adjective
    return stem + "er", stem + "est"


def adverb(adjective: str) -> str:
    """The adverb in -ly: quickly, happily, gently, truly, tragically."""
    if adjective.endswith("y") and adjective[-2] not in _VOWELS and len(adjective) > 3:
        return adjective[:-1] + "ily"
    if adjective.endswith("le") and adjective[-3] not in _VOWELS:
        return adjective[:-1] + "y"
    if adjective.endswith("ic"):
        return adjective + "ally"
    return adjective + "ly" if not adjective.endswith("ll") else adjective + "y"


def article(word: str) -> str:
    """*a* or *an*, by the sound that ``word`` begins with."""
    if word.startswith(_SILENT_H):
        return "an"
    if word.startswith(_VOWEL_SOUNDED_AS_CONSONANT):
        return "a"
    return "an" if word[0] in _VOWELS else "a"
