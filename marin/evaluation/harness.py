"""lm-evaluation-harness over a recorded state: requests, filters, metrics and errors are its own, log-likelihoods ours.

It runs in this process, with no network and nothing of the task executed: templates are rendered in jinja2's sandbox, and
data comes from the task's own bytes. What it prints goes nowhere.

Followed where the harness leaves it to a model (its HFLM): a request that is longer than the context loses its beginning;
an empty context is an end of text; nothing is put in front of another one.
"""

from __future__ import annotations

import copy
import io
import json
import logging
import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import version
from typing import Any

import datasets
import jinja2
import jinja2.sandbox
import msgspec
import numpy as np
from lm_eval import evaluator, utils
from lm_eval.api.group import Group
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.task import ConfigurableTask

from ledger import LedgerError
from marin.errors import UsageError
from marin.evaluation.records import Key, Outcome, Request, Sample, ScoredRow, Settings, TaskGroup
from marin.evaluation.scoring import Prompt, Row, Scorer, request_name
from marin.evaluation.subject import Subject
from marin.evaluation.tasks import EvaluationTask
from marin.training.model import END_OF_TEXT_ID

logging.getLogger("lm_eval").setLevel(logging.ERROR)

MOST_NEW_TOKENS = 256
"""Of a generation that names no number; the harness's own default."""


def harness_version() -> str:
    """The installed one."""
    return version("lm-eval")


class Harness(LM):
    """The model as the harness calls it. ``asked`` keeps every request with what was answered, by (task, document,
    request of the document, repeat).

    Args:
        recorded: requests that were answered before.
        again: those of them that are answered anew; None: all. The others get the recorded answer where they have the
            recorded tokens.
    """

    def __init__(
        self,
        subject: Subject,
        scorer: Scorer,
        seed: int,
        progress: Callable[[int], None] = lambda done: None,
        recorded: Mapping[Key, Request] | None = None,
        again: Collection[Key] | None = None,
    ) -> None:
        super().__init__()
        self.subject, self.scorer, self.seed, self.progress = subject, scorer, seed, progress
        self.recorded = recorded or {}
        self.again = again
        self.asked: dict[Key, Request] = {}
        self.repeated: Counter[tuple[str, int, int]] = Counter()
        self.answered = 0

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
                self.subject.encode(request.args[0]), END_OF_TEXT_ID, self.max_length, context_len=1
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
            stops, limit, temperature = generation(options)
            whole = (self.subject.encode(context) or [END_OF_TEXT_ID]) if context else [END_OF_TEXT_ID]
            room = min(limit, self.max_length // 2)
            kept = tuple(whole[-(self.max_length - room) :])
            name = request_name(kept, seen[kept])
            seen[kept] += 1
            prompt = Prompt(kept, min(limit, self.max_length + 1 - len(kept)), self._stopper(stops), temperature, name)
            key = self._key(request)
            lost = len(whole) - len(kept)
            asked = Request("generate_until", _arguments(request), *key[2:], truncated=lost, prompt=list(kept))
            drafts.append((key, prompt, stops, asked))
        anew = [place for place, (key, _, _, asked) in enumerate(drafts) if not self._taken(key, asked)]
        news = dict(zip(anew, self.scorer.generate([drafts[place][1] for place in anew], self.seed), strict=True))
        logprobs = self.scorer.score([Row((*drafts[place][1].tokens, *news[place]), len(news[place])) for place in anew
                                      if news[place]])  # fmt: skip
        scored = iter(logprobs)
        for place, (key, _, stops, asked) in enumerate(drafts):
            if place not in news:
                known = self.recorded[key]
                new = tuple(token for row in known.rows for token in row.tokens[len(known.prompt) :])
                self.asked[key] = msgspec.structs.replace(known, text=_cut(self.subject.decode(new), stops))
                continue
            new = news[place]
            values = next(scored).logprobs if new else ()
            rows = [ScoredRow([*asked.prompt, *new], [value.hex() for value in values], False)]
            text = _cut(self.subject.decode(new), stops)
            self.asked[key] = msgspec.structs.replace(asked, rows=rows, text=text)
        self._told(len(drafts))
        return [self.asked[key].text for key, *_ in drafts]

    @property
    def tokenizer_name(self) -> str:
        """What the harness would name a cache by; there is none here."""
        return self.subject.tokenizer_digest

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Messages as a prompt, under the subject's template.

        Raises:
            UsageError: it has none, refuses the messages, or is to end within an answer.
        """
        template = self.subject.template
        try:
            if template is None or not add_generation_prompt:
                raise ValueError(
                    "no chat template" if template is None else "a prompt that ends within an answer (gen_prefix)"
                )
            return template(chat_history)
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
        if not kept:
            after = self.subject.encode(context + continuation)
            return [END_OF_TEXT_ID], after[1:] if after[:1] == [END_OF_TEXT_ID] else after
        before = self.subject.encode(kept)
        return before, self.subject.encode(context + continuation)[len(before) :]

    def _scored(self, drafts: Sequence[tuple[Instance, list[Row], int]]) -> list[Request]:
        keys, anew = [], []
        for request, rows, lost in drafts:
            key = self._key(request)
            keys.append(key)
            asked = Request(
                request.request_type,
                _arguments(request),
                *key[2:],
                truncated=lost,
                rows=[ScoredRow(list(row.tokens), [""] * row.scored, False) for row in rows],
            )
            if self._taken(key, asked):
                self.asked[key] = self.recorded[key]
            else:
                self.asked[key] = asked
                anew += [(key, number, row) for number, row in enumerate(rows)]
        before = self.answered
        results = self.scorer.score([row for _, _, row in anew], lambda done: self._tell(before + done))
        for (key, number, row), scored in zip(anew, results, strict=True):
            found = ScoredRow(list(row.tokens), [value.hex() for value in scored.logprobs], scored.greedy)
            self.asked[key].rows[number] = found
        self._told(len(drafts))
        return [self.asked[key] for key in keys]

    def _taken(self, key: Key, asked: Request) -> bool:
        """Whether the recorded answer stands for this request."""
        known = self.recorded.get(key)
        if known is None or self.again is None or key in self.again:
            return False
        shape = [(row.tokens, len(row.logprobs)) for row in asked.rows]
        same = known.prompt == asked.prompt if asked.kind == "generate_until" else shape == [
            (row.tokens, len(row.logprobs)) for row in known.rows
        ]  # fmt: skip
        return same and known.arguments == asked.arguments and known.kind == asked.kind

    def _key(self, request: Instance) -> Key:
        place = (str(request.task_name), int(request.doc_id), int(request.idx))
        repeat = self.repeated[place]
        self.repeated[place] += 1
        return (*place, repeat)

    def _stopper(self, stops: Sequence[str]) -> Callable[[tuple[int, ...]], bool]:
        return lambda new: any(stop in self.subject.decode(new) for stop in stops)

    def _tell(self, done: int) -> None:
        self.progress(done)

    def _told(self, count: int) -> None:
        self.answered += count
        self.progress(self.answered)


def generation(options: Mapping[str, Any]) -> tuple[list[str], int, float]:
    """Stop strings, most new tokens and temperature (0: greedy) of the harness's ``generation_kwargs``.

    Raises:
        UsageError: they ask for another way of drawing.
    """
    stops = options.get("until", [])
    stops = [stops] if isinstance(stops, str) else [str(stop) for stop in stops or []]
    limit = int(options.get("max_gen_toks", options.get("max_new_tokens", MOST_NEW_TOKENS)))
    drawn = bool(options.get("do_sample", float(options.get("temperature") or 0.0) > 0))
    temperature = float(options.get("temperature", 1.0) or 0.0) if drawn else 0.0
    cut = [
        name
        for name, off in (("top_k", 0), ("top_p", 1.0), ("min_p", 0.0))
        if options.get(name, off) not in (off, None)
    ]
    if temperature and cut:
        raise UsageError(
            "a way of drawing that is not there",
            where=f"generation_kwargs.{cut[0]}",
            expected="temperature alone",
            found=f"{cut[0]}: {options[cut[0]]}",
            cure="leave it out, or draw nothing (do_sample: false)",
        )
    if limit < 1:
        raise UsageError(
            "no token may be generated", where="generation_kwargs.max_gen_toks", expected="1 or more", found=str(limit)
        )
    return [stop for stop in stops if stop], limit, temperature


def _cut(text: str, stops: Iterable[str]) -> str:
    """``text`` before the first stop string, as the harness cuts it."""
    for stop in stops:
        text = text.split(stop)[0]
    return text


def _arguments(request: Instance) -> list[Any]:
    return [copy.deepcopy(part) for part in request.args]


class _FileTask(ConfigurableTask):
    """A task whose data is here."""

    given: EvaluationTask
    dataset: dict[str, datasets.Dataset]

    def __init__(self, task: EvaluationTask) -> None:
        self.given = task
        super().__init__(config=copy.deepcopy({**task.config, "task": task.name, "dataset_path": "json"}))

    def download(self, dataset_kwargs: Any = None, **kwargs: Any) -> None:
        self.dataset = {split: datasets.Dataset.from_list(self.given.rows(split)) for split in sorted(self.given.data)}


def evaluate(
    tasks: Sequence[EvaluationTask], settings: Settings, lm: Harness
) -> tuple[dict[str, dict[str, Any]], dict[str, list[Sample]], Mapping[str, Any]]:
    """The harness's results by task, in its own shape; what was asked and found of every document; and all that the harness
    gave back.

    Raises:
        UsageError: the harness can make nothing of a task, its documents and the settings together.
    """
    _be_safe()
    quiet = io.StringIO()
    try:
        with redirect_stdout(quiet), redirect_stderr(quiet):
            built = {task.name: _built(task, settings) for task in tasks}
            found = evaluator.evaluate(
                lm,
                {"tasks": built, "groups": {group.name: _group(group, built) for group in settings.groups}},
                limit=settings.limit,
                bootstrap_iters=settings.bootstrap,
                apply_chat_template=settings.chat,
                log_samples=True,
            )
    except LedgerError:
        raise
    except (jinja2.TemplateError, AssertionError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError,
            SyntaxError, RecursionError, NotImplementedError, datasets.exceptions.DatasetsError) as error:  # fmt: skip
        raise UsageError(
            "lm-evaluation-harness can not evaluate these tasks",
            where=", ".join(task.name for task in tasks)[:200],
            expected="templates, splits and settings that fit the documents",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            cure="correct the task file, or --num-fewshot and --limit",
        ) from error
    shown = {**found["results"], **found.get("groups", {})}
    results = {
        name: dict(shown[name]) for name in (*built, *(group.name for group in settings.groups)) if name in shown
    }
    return results, {name: _samples(name, found["samples"][name], lm.asked) for name in built}, found


def _built(task: EvaluationTask, settings: Settings) -> ConfigurableTask:
    built = _FileTask(task)
    named = built.get_config("num_fewshot")
    if settings.num_fewshot is not None and named != 0:  # a task that says 0 stays so, as in the harness
        built.set_config(key="num_fewshot", value=settings.num_fewshot)
    elif named is None:
        built.set_config(key="num_fewshot", value=0)
    built.set_fewshot_seed(seed=settings.seed)
    return built


def _group(group: TaskGroup, built: Mapping[str, ConfigurableTask]) -> Group:
    metrics = [
        {"metric": one.metric, "aggregation": "mean", "weight_by_size": one.weight_by_size, "filter_list": one.filters}
        for one in group.metrics
    ]
    made = Group.from_config({"group": group.name, "task": group.tasks, "aggregate_metric_list": metrics})
    for name in group.tasks:
        made.add(built[name])
    return made


def _be_safe() -> None:
    """Templates are rendered in jinja2's sandbox, and nothing is computed by other processes."""
    if not isinstance(utils.env, jinja2.sandbox.SandboxedEnvironment):
        sandbox = jinja2.sandbox.ImmutableSandboxedEnvironment(
            undefined=jinja2.StrictUndefined, keep_trailing_newline=True
        )
        sandbox.filters["regex_replace"] = utils.regex_replace
        utils.env = sandbox
    os.environ["DISABLE_MULTIPROC"] = "1"


def _samples(task: str, logged: Sequence[Mapping[str, Any]], asked: Mapping[Key, Request]) -> list[Sample]:
    outcomes: dict[int, list[Outcome]] = {}
    first: dict[int, Mapping[str, Any]] = {}
    for one in logged:
        first.setdefault(one["doc_id"], one)
        metrics = {name: plain(one[name]) for name in one["metrics"]}
        outcomes.setdefault(one["doc_id"], []).append(Outcome(one["filter"], plain(one["filtered_resps"]), metrics))
    requests: dict[int, list[Request]] = {}
    for key in sorted(key for key in asked if key[0] == task):
        requests.setdefault(key[1], []).append(asked[key])
    return [
        Sample(
            number, str(first[number]["doc_hash"]), plain(first[number]["target"]), requests[number], outcomes[number]
        )
        for number in sorted(first)
    ]


def own_files(found: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, bytes]:
    """What the harness writes of an evaluation, by name: ``results.json`` and ``samples_NAME.jsonl``, in its form (of
    ``EvaluationTracker``) without times and dates, so that the same evaluation gives the same bytes.

    Args:
        config: what its ``config`` says of the model and of how it was asked.
    """
    head = {name: value for name, value in found.items() if name != "samples"}
    text = json.dumps({**head, "config": dict(config), "lm_eval_version": harness_version()}, indent=2, sort_keys=True,
                      default=utils.handle_non_serializable, ensure_ascii=False)  # fmt: skip
    files = {"results.json": text.encode() + b"\n"}
    for task, samples in found["samples"].items():
        lines = []
        for sample in samples:
            arguments = {
                f"gen_args_{number}": {f"arg_{place}": part for place, part in enumerate(given)}
                for number, given in enumerate(sample["arguments"])
            }
            said = {
                "resps": utils.sanitize_list(sample["resps"]),
                "filtered_resps": utils.sanitize_list(sample["filtered_resps"]),
                "arguments": arguments,
                "target": str(sample["target"]),
            }
            lines.append(json.dumps({**sample, **said}, default=utils.handle_non_serializable, ensure_ascii=False))
        files[f"samples_{task}.jsonl"] = "".join(f"{line}\n" for line in lines).encode()
    return files


def plain(value: Any) -> Any:
    """A value of the harness as JSON; floats as hex."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value).hex()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, str) else repr(value)


def numbers(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """The harness's results as hex floats, without what is no number."""
    return {
        task: {
            name: float(value).hex()
            for name, value in found.items()
            if isinstance(value, int | float | np.number)
            and not isinstance(value, bool)
            and not math.isnan(float(value))
        }
        for task, found in results.items()
    }
