"""The server's fields beside OpenAI's interface and vLLM's: honoured, or refused by name.

Neither runs here: what is right stands with each row (OpenAI's API reference; ``vllm/entrypoints/openai`` of vLLM 0.10).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import jax.random as jrandom
import pytest
from haliax import Axis
from tokenizers import Tokenizer, decoders
from tokenizers.decoders import ByteLevel as ByteDecoder
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import BPE, Unigram, WordLevel, WordPiece
from tokenizers.normalizers import Prepend, Replace, Sequence
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel, Metaspace
from transformers import PreTrainedTokenizerFast

from marin.data.template import ChatTemplate
from marin.data.tokenizer import SpecialTokens, parse_tokenizer
from marin.data.tokenizer import Tokenizer as Opened
from marin.errors import UsageError
from marin.evaluation.subject import Subject
from marin.plugins.serve.answers import Answer, Choice, Question, question, text_offsets, token_text
from marin.plugins.serve.chat import content_form
from marin.plugins.serve.engine import SequenceUpdate
from marin.plugins.serve.wire import Chat, Completion, Refused, prompts_of, read_request, stops_of
from marin.recipe.schema import Model, Recipe, Tokens
from marin.training.model import model_config
from tests.fidelity.chat_templates import TEMPLATES

KIND = "serving"
RECIPE = Recipe(model=Model(hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, num_kv_heads=2, seq_len=64))
MESSAGES = [{"role": "user", "content": "hi"}]


def asked(kind: type[Completion] | type[Chat], **body: Any) -> Any:
    """The request as it is read; a refusal as the product's own."""
    needed = {"messages": MESSAGES} if kind is Chat else {}
    try:
        found = read_request(kind, json.dumps({**needed, **body}).encode())
        stops_of(found.stop)
        if isinstance(found, Completion):
            prompts_of(found)
        return found
    except Refused as error:
        assert (error.param or "").partition(".")[0].partition("[")[0] in {*body}, "it names the field"
        raise UsageError("refused", where=str(error.param), expected="", found=error.message) from None


FIELDS = (
    *(
        "suffix",
        "max_tokens",
        "temperature",
        "top_p",
        "n",
        "stream",
        "logprobs",
        "echo",
        "stop",
        "presence_penalty",
        "user",
    ),
    *(
        "frequency_penalty",
        "best_of",
        "logit_bias",
        "seed",
        "stream_options",
        "top_k",
        "min_p",
        "repetition_penalty",
        "tools",
    ),
    *(
        "tool_choice",
        "response_format",
        "top_logprobs",
        "max_completion_tokens",
        "parallel_tool_calls",
        "length_penalty",
    ),
    *(
        "stop_token_ids",
        "min_tokens",
        "ignore_eos",
        "guided_json",
        "prompt_logprobs",
        "truncate_prompt_tokens",
        "metadata",
    ),
)


@pytest.mark.parametrize("kind", [Completion, Chat])
@pytest.mark.parametrize("name", FIELDS)
def test_null_is_the_default(compare: Callable[..., None], kind: type[Any], name: str) -> None:
    compare(KIND, f"{kind.__name__}: {name}: null", lambda: asked(kind, **{name: None}), asked(kind))


def test_the_default_of_a_completion_is_sixteen_tokens() -> None:
    assert asked(Completion, max_tokens=None).max_tokens == 16 and asked(Chat, max_tokens=None).max_tokens is None


CHANGE_NOTHING: list[tuple[type[Any], dict[str, Any]]] = [
    (Completion, {"top_p": 1}),
    (Completion, {"top_k": -1}),
    (Completion, {"presence_penalty": 0.0, "frequency_penalty": 0}),
    (Completion, {"logit_bias": {}}),
    (Completion, {"suffix": ""}),
    (Completion, {"user": "somebody", "metadata": {"a": "b"}}),
    (Completion, {"ignore_eos": False, "min_tokens": 0, "stop_token_ids": []}),
    (Completion, {"stop": []}),
    (Chat, {"tools": [], "tool_choice": "none"}),
    (Chat, {"response_format": {"type": "text"}}),
    (Chat, {"top_logprobs": 0}),
    (Chat, {"parallel_tool_calls": True, "service_tier": "auto", "store": False}),
    (Chat, {"add_generation_prompt": True, "continue_final_message": False}),
    (Chat, {"skip_special_tokens": False}),
]


@pytest.mark.parametrize(("kind", "body"), CHANGE_NOTHING, ids=str)
def test_values_that_change_nothing(compare: Callable[..., None], kind: type[Any], body: dict[str, Any]) -> None:
    compare(
        KIND,
        f"{kind.__name__}: {body}",
        lambda: (asked(kind, **body).temperature, asked(kind, **body).seed),
        (1.0, None),
    )


HONOURED: list[tuple[type[Any], dict[str, Any], Callable[[Any], bool]]] = [
    (Completion, {"stop": "a"}, lambda found: stops_of(found.stop) == ("a",)),
    (Completion, {"stop": ["a", "b"]}, lambda found: stops_of(found.stop) == ("a", "b")),
    (Completion, {"prompt": [1, 2]}, lambda found: prompts_of(found) == [[1, 2]]),
    (Completion, {"prompt": [[1, 2], [3]]}, lambda found: prompts_of(found) == [[1, 2], [3]]),
    (Completion, {"prompt": ["a", "b"]}, lambda found: prompts_of(found) == ["a", "b"]),
    (
        Completion,
        {"max_tokens": 0, "echo": True, "logprobs": 0},
        lambda found: (found.max_tokens, found.logprobs) == (0, 0),
    ),
    (
        Completion,
        {"temperature": 0, "seed": 4, "n": 3},
        lambda found: (found.temperature, found.seed, found.n) == (0, 4, 3),
    ),
    (Chat, {"max_completion_tokens": 4}, lambda found: found.max_completion_tokens == 4),
    (Chat, {"max_completion_tokens": 4, "max_tokens": 4}, lambda found: found.max_completion_tokens == 4),
    (Chat, {"logprobs": True, "top_logprobs": 3}, lambda found: found.top_logprobs == 3),
    (
        Chat,
        {"stream": True, "stream_options": {"include_usage": True}},
        lambda found: found.stream_options.include_usage,
    ),
    (
        Chat,
        {"stream": True, "stream_options": {"include_usage": None}},
        lambda found: not found.stream_options.include_usage,
    ),
]


@pytest.mark.parametrize(("kind", "body", "right"), HONOURED, ids=str)
def test_what_is_honoured(
    compare: Callable[..., None], kind: type[Any], body: dict[str, Any], right: Callable[[Any], bool]
) -> None:
    compare(KIND, f"{kind.__name__}: {body}", lambda: asked(kind, **body), right)


PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
PARTS_ALONE = (
    "{% for m in messages %}{% set all = m['content'] %}{% for p in all[1:] %}{{ p.text }}{% endfor %}{% endfor %}"
)
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}
SENT_BACK = {"refusal": None, "annotations": [], "audio": None, "function_call": None, "tool_calls": None, "name": None}


def calls(arguments: object) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{**CALL, "function": {"name": "f", "arguments": arguments}}],
    }


SAID: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "parts, to a template of texts": ("chatml", {"content": PARTS}, {"content": "a\nb"}),
    "parts, to a template of either": ("gemma 3 with parts", {"content": PARTS}, {"content": PARTS}),
    "a text, to a template of either": ("gemma 3 with parts", {"content": "a"}, {"content": "a"}),
    "a text, to a template of parts": (PARTS_ALONE, {"content": "a"}, {"content": PARTS[:1]}),
    "calls as clients have them": (
        "llama 3.1 with tools",
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        calls({"a": [1]}),
    ),
    "calls without arguments": ("llama 3.1 with tools", calls(""), calls({})),
    "calls as transformers has them": ("chatml", calls({"a": "1"}), calls({"a": "1"})),
    "an answer's message": (
        "chatml",
        {"role": "assistant", "content": "x", **SENT_BACK},
        {"role": "assistant", "content": "x"},
    ),
}
"""A message, and as what a template sees it: that of vLLM (``entrypoints/chat_utils.py``)."""


@pytest.mark.parametrize("name", SAID)
def test_messages(compare: Callable[..., None], name: str) -> None:
    template, message, wanted = SAID[name]
    form = content_form(ChatTemplate(TEMPLATES.get(template, template), {}, where="a test"))

    def seen() -> Any:
        return asked(Chat, messages=[{"role": "user", **message}]).messages[0].for_template(0, form)

    compare(KIND, f"message: {name}", seen, {"role": "user", **wanted})


SETTINGS = "fields of a request that the server does not have"
REFUSED: list[tuple[type[Any], dict[str, Any]]] = [
    *((Completion, {name: value}) for name, value in {"top_p": 0.9, "top_k": 5, "min_p": 0.1, "suffix": "x"}.items()),
    *((Completion, {name: 0.5}) for name in ("presence_penalty", "frequency_penalty", "repetition_penalty")),
    *(
        (Completion, {name: value})
        for name, value in {"logit_bias": {"1": 5}, "best_of": -1, "stop": "", "n": 0}.items()
    ),
    *(
        (Completion, {name: value})
        for name, value in {"prompt": [], "max_new_tokens": 4, "nothing": 1, "ignore_eos": True}.items()
    ),
    *(
        (Completion, {name: value})
        for name, value in {"temperature": "hot", "max_tokens": -1, "logprobs": 20, "seed": -4}.items()
    ),
    (Completion, {"stream_options": {"include_usage": True}}),
    (Completion, {"stop": ["a", None]}),
    (Completion, {"prompt": [[1], None]}),
    (Chat, {"top_logprobs": 2}),
    (Chat, {"max_tokens": 3, "max_completion_tokens": 4}),
    (Chat, {"response_format": {"type": "json_object"}}),
    (Chat, {"tools": [{"type": "function", "function": {"name": "f"}}]}),
    (Chat, {"tool_choice": "auto"}),
    (Chat, {"reasoning_effort": "low"}),
    (Chat, {"logprobs": 3}),
    (Chat, {"skip_special_tokens": True}),
    *(
        (Chat, {"messages": [{"role": "user", "content": "a", **more}]})
        for more in ({"refusal": "no"}, {"function_call": {"name": "f"}}, {"audio": {"id": "x"}}, {"content": 3})
    ),
]


@pytest.mark.parametrize(("kind", "body"), REFUSED, ids=str)
def test_what_is_refused(compare: Callable[..., None], kind: type[Any], body: dict[str, Any]) -> None:
    compare(KIND, f"{kind.__name__}: {body}", lambda: asked(kind, **body), None, refusal=SETTINGS)


def opened(tokenizer: Tokenizer) -> Opened:
    return parse_tokenizer(tokenizer.to_str().encode(), where="a test")


def over(tokenizer: Tokenizer, recipe: Recipe = RECIPE) -> Subject:
    model = model_config(recipe.model).build(Axis("vocab", tokenizer.get_vocab_size()), key=jrandom.PRNGKey(2))
    return Subject("aaaa", recipe, model, opened(tokenizer), f"sha256:{'5' * 64}", 6, f"sha256:{'7' * 64}")


@pytest.fixture(scope="module")
def by_bytes() -> Subject:
    vocabulary = {"<|endoftext|>": 0} | {sign: n for n, sign in enumerate(sorted(ByteLevel.alphabet()), start=1)}
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), ByteDecoder()
    return over(tokenizer)


@pytest.mark.parametrize("text", ["the dog", "日本", "aé日🙂b", "é", "", "a🙂"])
def test_offsets_are_those_of_the_text(compare: Callable[..., None], by_bytes: Subject, text: str) -> None:
    """By a tokenizer of single bytes: each letter has as many tokens as bytes, all of them at its place."""
    wanted = [place for place, letter in enumerate(text) for _ in letter.encode()]
    compare(KIND, f"text_offset of {text!a}", lambda: text_offsets(by_bytes, tuple(by_bytes.encode(text))), wanted)


def test_offsets_of_broken_letters(by_bytes: Subject) -> None:
    """A letter that never ends is one sign of the text."""
    tokens = tuple(by_bytes.encode("日a日"))
    broken = (*tokens[:2], *tokens[3:6])
    assert by_bytes.decode(broken) == "\ufffda\ufffd" and text_offsets(by_bytes, broken) == [0, 0, 1, 2, 2]


def test_offsets_of_words_with_marks(by_bytes: Subject) -> None:
    tokenizer = Tokenizer(WordLevel({"▁the": 0, "▁dog": 1, "s": 2}, unk_token="s"))
    tokenizer.pre_tokenizer, tokenizer.decoder = Metaspace(), MetaspaceDecoder()
    assert text_offsets(over(tokenizer), (0, 1, 2, 1)) == [0, 3, 7, 8], "the dogs dog"


CONTINUED = ("the river bends", "a mill, and é日🙂", " two  spaces", "running runs")


def sentencepiece(model: Any) -> Tokenizer:
    """As Llama 2's: a space in front of the text, which decoding takes away, and bytes of what is unknown."""
    made = Tokenizer(model)
    made.normalizer = Sequence([Prepend("▁"), Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return made


def llama() -> Tokenizer:
    names = ["</s>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"thervbndsamil,ow", "▁t", "▁r", "er"]
    merges = [("▁", "t"), ("▁", "r"), ("e", "r")]
    vocabulary = {name: number for number, name in enumerate(names)}
    return sentencepiece(BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))


def metaspace() -> Tokenizer:
    pieces = [
        "</s>",
        "<unk>",
        "▁",
        "▁the",
        "▁ri",
        "ver",
        "▁bends",
        "▁a",
        "▁mill",
        ",",
        "▁and",
        "▁two",
        "▁sp",
        "aces",
        "▁runn",
    ]
    made = Tokenizer(Unigram([(piece, -float(n)) for n, piece in enumerate([*pieces, "ing", "▁runs"])], unk_id=1))
    made.pre_tokenizer, made.decoder = Metaspace(), MetaspaceDecoder()
    return made


def wordpiece() -> Tokenizer:
    pieces = ["</s>", "[UNK]", "the", "river", "bend", "##s", "a", "mill", ",", "and", "two", "space", "run", "##ning"]
    made = Tokenizer(WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.pre_tokenizer, made.decoder = BertPreTokenizer(), decoders.WordPiece()
    return made


def single_bytes() -> Tokenizer:
    made = Tokenizer(BPE({sign: n for n, sign in enumerate(["</s>", *sorted(ByteLevel.alphabet())])}, []))
    made.pre_tokenizer, made.decoder = ByteLevel(add_prefix_space=False), ByteDecoder()
    return made


@pytest.mark.parametrize(
    ("counted", "choices"), [(False, [1, 1, 1, 1, 1, 1]), (True, [1, 1, 1, 1, 1, 1, 0])], ids=["alone", "with usage"]
)
def test_a_stream_has_a_choice_in_each_chunk(
    compare: Callable[..., None], by_bytes: Subject, counted: bool, choices: list[int]
) -> None:
    """OpenAI: a chunk without one is for clients that asked for the usage, which is null in all others then."""
    asking = question(by_bytes, [[5]], n=2, limit=1, temperature=0.0, seed=0, stops=(), chat=True)
    answer = Answer(asking, "m", counted)
    ends = [SequenceUpdate(place, (place + 70,), True) for place in range(2)]
    chunks = [*answer.piece(ends[0]), *answer.last(ends[1])]
    compare(
        KIND,
        f"choices of a stream's chunks, usage: {counted}",
        lambda: [len(one["choices"]) for one in chunks],
        choices,
    )
    usage = [one.get("usage", "none") for one in chunks]
    wanted = (
        [*([None] * 6), {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}] if counted else ["none"] * 6
    )
    compare(KIND, f"usage of a stream's chunks, usage: {counted}", lambda: usage, wanted)
    assert [number for number, one in enumerate(chunks) if "marin" in one] == [len(chunks) - 1]


@pytest.mark.parametrize("made", [llama, metaspace, wordpiece, single_bytes])
def test_a_text_goes_on_with_its_prompt(
    compare: Callable[..., None], by_bytes: Subject, made: Callable[[], Tokenizer]
) -> None:
    """As the pipeline of transformers has it: the text of all tokens without that of the prompt."""
    reference, subject = PreTrainedTokenizerFast(tokenizer_object=made()), replace(by_bytes, tokenizer=opened(made()))
    for text in CONTINUED:
        ids = tuple(reference.encode(text, add_special_tokens=False))
        for cut in range(1, len(ids)):
            prompt, new = ids[:cut], ids[cut:]
            lead, whole = reference.decode(prompt), reference.decode(ids)
            if lead.endswith("\ufffd"):
                continue  # nobody shows half a letter
            asking = Question(subject, (), len(new), 0.0, 0, ())
            name = f"{made.__name__}: {text} behind {cut} tokens"
            compare(KIND, name, lambda q=asking, n=new, p=prompt: q.completion(n, p)[0], whole.removeprefix(lead))
            offsets = text_offsets(subject, new, prompt)
            letters = [
                max(0, len(reference.decode(ids[: cut + n]).rstrip("\ufffd")) - len(lead)) for n in range(len(new))
            ]
            compare(KIND, f"{name}, text_offset", lambda found=offsets: found, list(accumulate(letters, max)))


@pytest.mark.parametrize("made", [wordpiece, llama, single_bytes])
def test_a_stream_is_the_whole_text(
    compare: Callable[..., None], by_bytes: Subject, made: Callable[[], Tokenizer]
) -> None:
    """Also where spaces before punctuation go (``clean_up_tokenization_spaces``), as in the folders of Llama 3."""
    signs = ["n", "'", "t", "s", ".", "don", "'s", "n't", "'re", "!"]
    library = made()
    library.add_tokens([sign for sign in (*signs, " '", " n", " s", " .") if library.token_to_id(sign) is None])
    subject = replace(by_bytes, tokenizer=Opened(library, SpecialTokens(), cleans=True))
    draw, ids = random.Random(2), sorted({library.token_to_id(sign) for sign in (*signs, " '", " n", " s", " .")})
    for _ in range(60):
        prompt, new = ((*draw.choices(ids, k=count),) for count in (2, 8))
        asking = Question(subject, (Choice(0, prompt, 0),), 8, 0.0, 0, ())
        answer = Answer(asking, "m")
        updates = [SequenceUpdate(0, new[:count], count == 8) for count in range(1, 9)]
        said = "".join(chunk["choices"][0]["text"] for one in updates for chunk in answer.piece(one))
        compare(KIND, f"stream of {made.__name__}, {new}", lambda said=said: said, asking.completion(new, prompt)[0])
        assert max(text_offsets(subject, new)) <= len(subject.text(new))


def test_a_byte_is_shown_as_one(by_bytes: Subject) -> None:
    tokens = llama().encode("é\n").ids
    subject = replace(by_bytes, tokenizer=opened(llama()))
    assert [token_text(subject, one) for one in tokens] == ["▁".replace("▁", " "), "bytes:\\xc3", "bytes:\\xa9", "\n"]


def test_every_end_ends_an_answer(compare: Callable[..., None], by_bytes: Subject) -> None:
    """As of a chat of Llama 3, whose turns end with another token than its documents."""
    recipe = Recipe(model=RECIPE.model, tokens=Tokens(stop_tokens=(0, 7, 9)))
    subject = replace(by_bytes, recipe=recipe)
    asking = question(subject, [[5]], n=1, limit=8, temperature=0.0, seed=0, stops=())
    for end in (0, 7, 9):
        compare(
            KIND, f"ended by token {end}", lambda end=end: asking.completion((5, end)), (subject.decode((5,)), "stop")
        )
    compare(KIND, "ended by length", lambda: asking.completion((5, 6))[1], "length")
