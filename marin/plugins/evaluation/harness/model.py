"""The model as lm-evaluation-harness calls it: its requests become sequences of tokens, and what was answered is kept.

Followed where the harness leaves it to a model (its HFLM, 0.4.13): a request that is longer than the context loses its beginning;
an empty context is the token that begins a text; around another one stands what the tokenizer's own files put there, unless it
begins with that token's text already. Rules of an older release, by which recorded evaluations are verified, put nothing there.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from lm_eval import utils
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from marin.errors import UsageError
from marin.evaluation.marks import Marks
from marin.evaluation.scoring import Prompt, Row, Scorer, request_name
from marin.evaluation.subject import Subject
from marin.plugins.evaluation.recorded.answering import answered, recorded_answer, row_to_score
from marin.plugins.evaluation.recorded.records import Key, Request, ScoredRow
from marin.recipe.schema import chats

log = logging.getLogger(__name__)
MOST_NEW_TOKENS = 256
"""Of a generation that names no number; the harness's own default."""


class Harness(LM):
    """The model as the harness calls it. ``asked`` keeps every request with what was answered, by (task, document,
    request of the document, repeat).

    Args:
        recorded: requests that were answered before.
        again: those of them that are answered anew; None: all. The others get the recorded answer where they have the
            recorded tokens.
        rules: :class:`~marin.plugins.evaluation.recorded.records.Settings` says which there are.
    """

    def __init__(
        self,
        subject: Subject,
        scorer: Scorer,
        seed: int,
        progress: Callable[[int], None] = lambda done: None,
        recorded: Mapping[Key, Request] | None = None,
        again: Collection[Key] | None = None,
        rules: int = 2,
    ) -> None:
        super().__init__()
        self.subject, self.scorer, self.seed, self.progress = subject, scorer, seed, progress
        self.recorded = recorded or {}
        self.again = again
        self.asked: dict[Key, Request] = {}
        self.repeated: Counter[tuple[str, int, int]] = Counter()
        self.answered = 0
        self.rules, tokens = rules, subject.recipe.tokens
        marks = subject.marks if rules > 1 else None
        self.marks = marks or Marks((), (), tokens.begin, tokens.end)
        self.begin = self.marks.begin
        self.chat = False
        """Whether prompts are chats."""

    @property
    def max_length(self) -> int:
        """Tokens of the context."""
        return self.subject.recipe.model.seq_len

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """The log-likelihood of each continuation, and whether greedy decoding gives it. An empty one has 0.0."""
        drafts = []
        for request in requests:
            context, continuation = request.args
            before, after = self._pair(context, continuation)
            whole = [*before, *after]
            kept = tuple(whole[-(self.max_length + 1) :])
            rows = [Row(kept, min(len(after), len(kept) - 1))] if after else []
            drafts.append((request, rows, len(whole) - len(kept)))
        answers = self._scored(drafts)
        return [(answer.total(), answer.greedy()) for answer in answers]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """The log-likelihood of each whole text after an end of text, in the harness's windows."""
        drafts = []
        for request in requests:
            windows = utils.get_rolling_token_windows(
                self._encode(request.args[0]), self.begin, self.max_length, context_len=1
            )
            rows = [Row((*before, *after), len(after)) for before, after in map(utils.make_disjoint_window, windows)]
            drafts.append((request, rows, 0))
        return [answer.total() for answer in self._scored(drafts)]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """What comes after each context, up to the first stop string, an end of text, or so many tokens."""
        seen: Counter[tuple[int, ...]] = Counter()
        drafts: list[tuple[Key, Prompt, list[str], Request]] = []
        for request in requests:
            context, options = request.args
            stops, limit, temperature = generation(options, self.rules)
            stops = [*stops, *self._closing()]
            stops += [self._shown((self.marks.end,))] if self.rules > 1 else []
            whole = (self._encode(context) or [self.begin]) if context else [self.begin]
            most = self.max_length - 1 if self.rules > 1 and limit < self.max_length else self.max_length // 2
            room = min(limit, most)
            kept = tuple(whole[-(self.max_length - room) :])
            name = request_name(kept, seen[kept])
            seen[kept] += 1
            prompt = Prompt(kept, min(limit, self.max_length + 1 - len(kept)), self._stopper(stops), temperature, name)
            key = self._key(request)
            if (known := self.recorded.get(key)) is not None and known.prompt == list(kept):
                prompt = replace(prompt, said=_new_tokens(known))
            lost = len(whole) - len(kept)
            asked = Request("generate_until", _arguments(request), *key[2:], truncated=lost, prompt=list(kept))
            drafts.append((key, prompt, stops, asked))
        anew = [
            place
            for place, (key, _, _, asked) in enumerate(drafts)
            if recorded_answer(self.recorded.get(key), asked, key, self.again) is None
        ]
        news = dict(zip(anew, self.scorer.generate([drafts[place][1] for place in anew], self.seed), strict=True))
        logprobs = self.scorer.score(
            [Row((*drafts[place][1].tokens, *news[place]), len(news[place])) for place in anew if news[place]]
        )
        scored = iter(logprobs)
        for place, (key, _, stops, asked) in enumerate(drafts):
            if place not in news:
                known = self.recorded[key]
                new = _new_tokens(known)
                self.asked[key] = msgspec.structs.replace(known, text=self._text(new, stops))
                continue
            new = news[place]
            values = next(scored).logprobs if new else ()
            rows = [ScoredRow([*asked.prompt, *new], [value.hex() for value in values], False)]
            text = self._text(new, stops)
            self.asked[key] = msgspec.structs.replace(asked, rows=rows, text=text)
        self._count(len(drafts))
        return [self.asked[key].text for key, *_ in drafts]

    @property
    def tokenizer_name(self) -> str:
        """What the harness would name a cache by; there is none here."""
        return self.subject.tokenizer_digest

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Messages as a prompt, under the subject's template; without the prompt for an answer (a task's ``gen_prefix``) the last
        message is open, to be continued. As HFLM, a template that takes no system message gets none.

        Raises:
            UsageError: it has no template, or refuses the messages.
        """
        template = (self.subject.earlier if self.rules < 4 else None) or self.subject.template
        self.chat = True
        try:
            if template is None:
                raise ValueError("no chat template")
            render = partial(template.render, prompt=add_generation_prompt, continues=not add_generation_prompt)
            try:
                return render(chat_history)
            except ValueError:
                others = [one for one in chat_history if one["role"] != "system"]
                if len(others) == len(chat_history):
                    raise
                log.warning("the chat template takes no system message: it is left out")
                return render(others)
        except ValueError as error:
            raise UsageError(
                "these prompts are no messages for this model",
                where="--apply_chat_template",
                expected="a chat template that renders them",
                found=str(error)[:200],
                cure="leave it out",
            ) from None

    # -- answering

    def _pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Tokens before and of the continuation. Spaces at the end of the context belong to the continuation, whose
        tokens are those that the context alone has not."""
        kept = context.rstrip()
        if not kept and not (context and self.marks.before):
            after = self.subject.encode(context + continuation)
            return [self.begin], after[1:] if after[:1] == [self.begin] else after
        before = self._encode(kept)
        return before, self._encode(context + continuation)[len(before) :]

    def _encode(self, text: str) -> list[int]:
        """Tokens of a text with the marks around it."""
        tokens, marks = self.subject.encode(text), self.marks
        if not (marks.before or marks.after) or text.startswith(self._shown((marks.begin,))):
            return tokens
        return [*marks.before, *tokens, *marks.after]

    def _shown(self, tokens: tuple[int, ...]) -> str:
        """The text of tokens, of special ones too."""
        return str(self.subject.tokenizer.decode(list(tokens), skip_special_tokens=False))

    def _text(self, new: tuple[int, ...], stops: Iterable[str]) -> str:
        """What was said, before the first stop string; special tokens in it have no text."""
        if self.rules > 1:
            return _cut(str(self.subject.tokenizer.decode(list(new), skip_special_tokens=True)), stops)
        return _cut(self.subject.decode(new), stops)

    def _scored(self, drafts: Sequence[tuple[Instance, list[Row], int]]) -> list[Request]:
        asked = {}
        for request, rows, lost in drafts:
            key = self._key(request)
            whole = [row_to_score(row.tokens, row.scored) for row in rows]
            asked[key] = Request(request.request_type, _arguments(request), *key[2:], truncated=lost, rows=whole)
        before = self.answered
        found = answered(self.scorer, asked, self.recorded, self.again, lambda done: self._tell(before + done))
        self.asked |= found
        self._count(len(drafts))
        return [found[key] for key in asked]

    def _key(self, request: Instance) -> Key:
        place = (str(request.task_name), int(request.doc_id), int(request.idx))
        repeat = self.repeated[place]
        self.repeated[place] += 1
        return (*place, repeat)

    def _stopper(self, stops: Sequence[str]) -> Callable[[tuple[int, ...]], bool]:
        shown = self._shown if self.rules > 1 else self.subject.decode
        return lambda new: any(stop in shown(new) for stop in stops)

    def _closing(self) -> tuple[str, ...]:
        """Where an answer ends of a model that was trained on conversations by their reference, as its exported folder says."""
        template = self.subject.template
        return template.stops if self.chat and template is not None and chats(self.subject.recipe.dataset) else ()

    def _tell(self, done: int) -> None:
        self.progress(done)

    def _count(self, count: int) -> None:
        self.answered += count
        self.progress(self.answered)


MOST = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Names of the most new tokens, the first that is there wins, as in the harness."""
DRAWN_ONLY: Mapping[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}
"""Ways of drawing, with the values that change nothing; where nothing is drawn they decide nothing."""
NEUTRAL: Mapping[str, Any] = {
    "num_beams": 1,
    "num_return_sequences": 1,
    "repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "early_stopping": False,
    "min_new_tokens": 0,
    "use_cache": True,
}
"""Others, with the values that change nothing."""


def generation(options: Mapping[str, Any], rules: int = 2) -> tuple[list[str], int, float]:
    """Stop strings, most new tokens and temperature (0: greedy) of the harness's ``generation_kwargs``, as its
    ``normalize_gen_kwargs`` reads them. ``rules`` 1: as an older release read them.

    Raises:
        UsageError: they ask for another way of generating.
    """
    stops = options.get("until", [])
    stops = [stops] if isinstance(stops, str) else [str(stop) for stop in stops or []]
    names = MOST if rules > 1 else MOST[:2]
    limit = int(next((options[name] for name in names if options.get(name) is not None), MOST_NEW_TOKENS))
    heat = float(options.get("temperature") or 0.0)
    drawn = bool(heat > 0 if options.get("do_sample") is None else options["do_sample"])
    if drawn and not heat:
        if rules > 1:
            raise _other_way(
                "temperature", "a number above 0 beside do_sample: true, as transformers wants it", options
            )
        heat = float(options.get("temperature", 1.0) or 0.0)
    cut = (
        [
            name
            for name, off in list(DRAWN_ONLY.items())[: 4 if rules > 1 else 3]
            if options.get(name, off) not in (off, None)
        ]
        if drawn and heat
        else []
    )
    if rules > 1:
        known = {"until", "do_sample", "temperature", *MOST, *DRAWN_ONLY}
        cut += [name for name in options if name not in known and options[name] not in (NEUTRAL.get(name), None)]
    if cut:
        raise _other_way(cut[0], "temperature alone", options)
    if limit < 1:
        raise UsageError(
            "no token may be generated", where="generation_kwargs.max_gen_toks", expected="1 or more", found=str(limit)
        )
    return [stop for stop in stops if stop], limit, heat if drawn else 0.0


def _other_way(name: str, expected: str, options: Mapping[str, Any]) -> UsageError:
    return UsageError(
        "a way of generating that is not there",
        where=f"generation_kwargs.{name}",
        expected=expected,
        found=f"{name}: {options.get(name)}"[:200],
        cure="leave it out, or draw nothing (do_sample: false)",
    )


def _new_tokens(known: Request) -> tuple[int, ...]:
    return tuple(token for row in known.rows for token in row.tokens[len(known.prompt) :])


def _cut(text: str, stops: Iterable[str]) -> str:
    """``text`` before the first stop string, as the harness cuts it."""
    for stop in filter(None, stops):
        text = text.split(stop)[0]
    return text


def _arguments(request: Instance) -> list[Any]:
    return [copy.deepcopy(part) for part in request.args]
