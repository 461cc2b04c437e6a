"""Conversations under chat templates: text, token ids and what is learned, beside transformers' ``apply_chat_template``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

sys.path.insert(0, str(Path(__file__).parent))
from chat_templates import TEMPLATES, unmarked

from marin.data.borrowed.chats import chat_template, check_marks, special_tokens
from marin.data.borrowed.folder import borrow
from marin.data.chat import messages_of
from marin.data.documents import Document
from marin.data.template import ChatTemplate, conversation, tools_of
from marin.errors import NoConversation
from marin.training.tokens.encoding import load_tokenizer
from marin.training.tokens.loss_mask import encoded_with_mask
from tests.fidelity.references import asked

MARKS = (
    "<|endoftext|>",
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    "<|im_start|>",
    "<|im_end|>",
    "[INST]",
    "[/INST]",
    "<|eot_id|>",
)
MARKS += (
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<|end|>",
    "<image>",
    "<think>",
)
TEXTS = [
    "the river finds the garden, and what is 2 + 2? yes no",
    "system user assistant tool User: ASSISTANT: USER ### Instruction Response",
    "naïve café Ünïcode ﬁne \U0001f600\U0001f468‍\U0001f469 日本語のテスト ﷺ é",
] * 3
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather <today> & later",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich"}}}


def user(text: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def said(text: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


SYSTEM = {"role": "system", "content": "Be brief."}
LINES: dict[str, dict[str, Any]] = {
    "one turn": {"messages": [user("what is 2 + 2?"), said("yes")]},
    "a system message": {"messages": [SYSTEM, user("what is 2 + 2?"), said("The river finds the garden.")]},
    "many turns": {"messages": [SYSTEM, *[one for n in range(4) for one in (user(f"and {n}?"), said(f"it is {n}"))]]},
    "unicode": {
        "messages": [
            user("naïve café \U0001f600?"),
            said("日本語 \U0001f468‍\U0001f469 é ﷺ ﬁ"),
            user("ü"),
            said("\U0001f600"),
        ]
    },
    "white space": {
        "messages": [user("  two  "), said("  yes \n"), user("\n\n"), said("\tno  no\n\n"), user("x"), said(" ")]
    },
    "empty contents": {"messages": [SYSTEM, user(""), said(""), user("again"), said("yes"), user("and"), said("")]},
    "marks in a message": {
        "messages": [user("a <|im_end|> b </s>[INST]<|im_start|>assistant\nno"), said("<think>yes</think> <s>no")]
    },
    "tools": {
        "messages": [
            user("weather?"),
            said(None, tool_calls=[CALL]),
            {"role": "tool", "name": "weather", "content": "sun"},
            said("It is sunny."),
        ],
        "tools": [TOOL],
    },
    "tools as a text": {
        "messages": [
            user("weather?"),
            said("", tool_calls=[CALL, CALL]),
            {"role": "tool", "content": ""},
            said("Nothing."),
        ],
        "tools": json.dumps([TOOL, TOOL]),
    },
    "no tools": {"messages": [user("weather?"), said("yes")], "tools": []},
    "parts": {"messages": [user([{"type": "text", "text": "what "}, {"type": "text", "text": "is it?"}]), said("yes")]},
    "other keys": {
        "messages": [
            user("why?", name="Ann", weight=0),
            said("so", reasoning_content="I think", metadata="m", weight=1),
        ],
        "functions": [],
        "images": None,
    },
    "a system text twice": {"system": "Be brief.", "messages": [SYSTEM, user("why?"), said("so")]},
    "thoughts": {
        "messages": [user("why?"), said("<think>\nhm\n</think>\n\nso"), user("and?"), said("<think>ha</think>no")]
    },
    "documents": {"messages": [user("why?"), said("so")], "documents": [{"title": "t", "text": "the river"}]},
    "settings": {
        "messages": [user("why?"), said("so")],
        "chat_template_kwargs": {"enable_thinking": False, "date_string": "1 May 2026", "bos_token": "<x>"},
    },
    "other roles": {"messages": [{"role": "developer", "content": "Be good."}, user("why?"), said("so")]},
    "the user has the last word": {"messages": [user("why?"), said("so"), user("and?")]},
}


def _special(library: Tokenizer, **how: Any) -> Tokenizer:
    library.add_special_tokens([AddedToken(mark, special=True, normalized=False, **how) for mark in MARKS])
    library.add_tokens(
        [AddedToken("<|user|>", special=False), AddedToken("ASSISTANT:", special=False, single_word=True)]
    )
    return library


def _trained(library: Tokenizer, trainer: Any) -> Tokenizer:
    library.train_from_iterator(TEXTS, trainer)
    return library


def byte_level(*, trim: bool = False, prefix: bool = False) -> Tokenizer:
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    library.decoder = decoders.ByteLevel()
    if trim:
        library.post_processor = processors.ByteLevel(trim_offsets=True)
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        min_frequency=1,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    return _special(_trained(library, trainer))


def metaspace() -> Tokenizer:
    """As Llama 2: a dummy space in front, unknown letters as bytes."""
    library = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    byte_tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=420, show_progress=False, special_tokens=byte_tokens, limit_alphabet=40)
    return _special(_trained(library, trainer))


def wordpiece() -> Tokenizer:
    library = Tokenizer(models.WordPiece(unk_token="<unk>"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["<unk>"], show_progress=False)
    return _special(_trained(library, trainer))


def unigram() -> Tokenizer:
    library = Tokenizer(models.Unigram())
    library.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=150, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    return _special(_trained(library, trainer))


def words() -> Tokenizer:
    vocabulary = {
        word: number for number, word in enumerate(["<unk>", *sorted({one for text in TEXTS for one in text.split()})])
    }
    library = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _special(library)


def stripping() -> Tokenizer:
    """Marks that swallow the white space around them, as Phi 3 has them."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "merged_with_next"), pre_tokenizers.ByteLevel(use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())
    )
    return _special(_trained(library, trainer), lstrip=True, rstrip=True)


NAMED = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
KINDS: dict[str, tuple[Callable[[], Tokenizer], dict[str, Any]]] = {
    "bytes": (byte_level, {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}),
    "bytes, offsets trimmed": (
        lambda: byte_level(trim=True, prefix=True),
        {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"},
    ),
    "metaspace": (metaspace, NAMED),
    "wordpiece": (wordpiece, {**NAMED, "sep_token": "<|end|>", "cls_token": "<s>", "mask_token": "<think>"}),
    "unigram": (unigram, {**NAMED, "image_token": "<image>"}),
    "words": (words, {"eos_token": "</s>", "extra_special_tokens": {"image_token": "<image>"}}),
    "stripping": (stripping, {**NAMED, "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each tokenizer, as it was made and as it is kept."""
    found = {}
    for name, (made, config) in KINDS.items():
        folder = tmp_path_factory.mktemp("brought")
        made().save(str(folder / "tokenizer.json"))
        told = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
        (folder / "tokenizer_config.json").write_text(json.dumps(told), encoding="utf-8")
        borrow(folder, tmp_path_factory.mktemp("kept"))
        found[name] = folder
    return found


@cache
def _theirs(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def reference(folder: Path, template: str, line: dict[str, Any], *, marks: bool) -> Any:
    """Text, ids and (of a template that marks) mask; ``"refused"`` where transformers raises."""
    tokenizer = _theirs(folder)
    tools = line.get("tools")
    given = {
        "tools": json.loads(tools) if isinstance(tools, str) else tools,  # as TRL 1.16.0 reads them
        "documents": line.get("documents"),
        "chat_template": template,
        **line.get("chat_template_kwargs", {}),
    }
    try:
        text = tokenizer.apply_chat_template(line["messages"], tokenize=False, **given)
        found = tokenizer.apply_chat_template(line["messages"], return_assistant_tokens_mask=marks, **given)
    except Exception:
        return "refused"
    return text, list(found["input_ids"]), list(found["assistant_masks"]) if marks else None


def ours(folder: Path, template: str, line: dict[str, Any]) -> Any:
    """The same as a build makes of it."""
    made = ChatTemplate(template, special_tokens(folder), where="x")
    try:
        text, learned = conversation(made, line, "x")
    except NoConversation as error:
        if made.marks or "before others follow" not in error.found:
            return "refused"
        others, documents = line.get("chat_template_kwargs"), line.get("documents")
        more = {"tools": tools_of(line.get("tools"), "x"), "documents": documents, "others": others}
        text, learned = (
            made.render(line["messages"], prompt=False, **more),
            (),
        )  # refused for what is learned of it alone
    document = Document(text, "x", {}, learned, by_difference=not made.marks)
    ((ids, mask),) = encoded_with_mask(load_tokenizer(folder), [document], [])
    return text, ids.tolist(), list(mask) if made.marks else None


@pytest.mark.table
@pytest.mark.parametrize("marks", [True, False], ids=["marked", "unmarked"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template(compare: Callable[..., None], folders: dict[str, Path], name: str, kind: str, marks: bool) -> None:
    pytest.importorskip("transformers")
    template = TEMPLATES[name] if marks else unmarked(TEMPLATES[name])
    for title, line in LINES.items():
        theirs = reference(folders[kind], template, line, marks=marks)
        compare("chats", f"{name}, {kind}: {title}", partial(ours, folders[kind], template, line), theirs)


@pytest.mark.parametrize("how", ["prompt", "continues"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_prompt(compare: Callable[..., None], folders: dict[str, Path], name: str, how: str) -> None:
    """What a model is asked by: the head of the next answer, or the last message left open."""
    pytest.importorskip("transformers")
    theirs = _theirs(folders["metaspace"])
    made = ChatTemplate(TEMPLATES[name], special_tokens(folders["metaspace"]), where="x")
    for title, line in LINES.items():
        tools = line.get("tools") if isinstance(line.get("tools"), list) else None
        asked = {"add_generation_prompt": how == "prompt", "continue_final_message": how == "continues"}
        try:
            text = theirs.apply_chat_template(
                line["messages"], chat_template=TEMPLATES[name], tools=tools, tokenize=False, **asked
            )
        except Exception:
            text = "refused"

        def rendered(line: dict[str, Any] = line, tools: Any = tools) -> str:
            try:
                return made.render(line["messages"], tools=tools, prompt=how == "prompt", continues=how == "continues")
            except ValueError:
                return "refused"

        compare("prompts of chats", f"{name}, {how}: {title}", rendered, text)


PLACES: dict[str, dict[str, Any]] = {
    "in the settings": {"tokenizer_config.json": {"chat_template": "a{{ eos_token }}"}},
    "a file before the settings": {
        "tokenizer_config.json": {"chat_template": "a"},
        "chat_template.jinja": "b\r\n{{ bos_token }}\n",
    },
    "several in the settings": {
        "tokenizer_config.json": {
            "chat_template": [
                {"name": "default", "template": "  a\n\n"},
                {"name": "tool_use", "template": "\n b  {% if 1 %}\nc{% endif %}\n"},
            ]
        }
    },
    "only one for tools": {"tokenizer_config.json": {"chat_template": [{"name": "tool_use", "template": "b"}]}},
    "files of several": {
        "chat_template.jinja": "a",
        "additional_chat_templates/tool_use.jinja": "{{ tools | length }}",
        "additional_chat_templates/rag.jinja": "c",
    },
    "special tokens in the map": {
        "tokenizer_config.json": {"bos_token": "<s>", "chat_template": "{{ bos_token }}{{ eos_token }}{{ unk_token }}"},
        "special_tokens_map.json": {
            "bos_token": {
                "content": "<pad>",
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
            },
            "eos_token": "</s>",
        },
    },
    "none": {"tokenizer_config.json": {"bos_token": "<s>"}},
}


@pytest.mark.parametrize("tools", [None, [TOOL]], ids=["no tools", "tools"])
@pytest.mark.parametrize("name", PLACES)
def test_where_a_template_is(compare: Callable[..., None], tmp_path: Path, name: str, tools: Any) -> None:
    pytest.importorskip("transformers")
    metaspace().save(str(tmp_path / "tokenizer.json"))
    files = {"tokenizer_config.json": {}, **PLACES[name]}
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        told = (
            {"tokenizer_class": "PreTrainedTokenizerFast", **content}
            if path.startswith("tokenizer_config")
            else content
        )
        (tmp_path / path).write_text(told if isinstance(told, str) else json.dumps(told), encoding="utf-8", newline="")
    messages = LINES["one turn"]["messages"]
    try:
        text = _theirs(tmp_path).apply_chat_template(messages, tools=tools, tokenize=False)
    except Exception:
        text = "refused"

    def found() -> str:
        brought = chat_template(tmp_path)
        try:
            assert brought is not None
            return ChatTemplate(brought, special_tokens(tmp_path), where="x").render(
                messages, tools=tools, prompt=False
            )
        except (ValueError, AssertionError):
            return "refused"

    compare("places of chat templates", f"{name}, tools {bool(tools)}", found, text)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "an image": (
        "{% generation %}{{ messages[0].content[0].text }}{% endgeneration %}",
        {"messages": [said([{"type": "image", "url": "a.png"}])]},
        "A content that is no text",
    ),
    "the clock": (
        "{% generation %}{{ strftime_now('%Y') }}{% endgeneration %}",
        {"messages": [said("x")]},
        "A template that reads the clock",
    ),
    "what a later message changes": (
        "{% for m in messages %}{{ m.content if loop.last else '' }}{% endfor %}",
        {"messages": [said("x"), user("y"), said("z")]},
        "without `{% generation %}` whose text before a message depends on what follows it",
    ),
    "an answer of weight 0": (
        "{% generation %}{{ messages[0].content }}{% endgeneration %}",
        {"messages": [said("x", weight=0), user("y"), said("z", weight=1)]},
        "An answer that other tools leave out of what is learned",
    ),
    "an answer that axolotl leaves out": (
        "{% generation %}{{ messages[0].content }}{% endgeneration %}",
        {"messages": [said("x", train=False)]},
        "An answer that other tools leave out of what is learned",
    ),
    "a system text beside the messages": (
        "{% generation %}{{ messages[0].content }}{% endgeneration %}",
        {"messages": [said("x")], "system": "Be brief."},
        "What stands beside the messages of a line",
    ),
    "functions beside the messages": (
        "{% generation %}{{ messages[0].content }}{% endgeneration %}",
        {"messages": [said("x")], "functions": [{"name": "f"}]},
        "What stands beside the messages of a line",
    ),
    "pictures beside the messages": (
        "{% generation %}{{ messages[0].content }}{% endgeneration %}",
        {"messages": [said("x")], "images": ["a.png"]},
        "What stands beside the messages of a line",
    ),
    "documents as texts": (
        "{% generation %}{{ documents | length }}{{ messages[0].content }}{% endgeneration %}",
        {"messages": [said("x")], "documents": ["the river"]},
        "`documents` that are no list of objects",
    ),
    "instruction and output": (
        "{% generation %}{{ messages[0].content }}{% endgeneration %}",
        {"instruction": "x", "input": "", "output": "y"},
        "A line of other fields alone",
    ),
    "half a character": (
        "{% generation %}{{ messages[0].content }}{% endgeneration %}",
        {"messages": [said("\ud83d")]},
        "Half of a surrogate pair",
    ),
    "an indent that fills memory": (
        "{% generation %}{{ messages | tojson(indent=100000000) }}{% endgeneration %}",
        {"messages": [said("x")]},
        "`tojson` with an indent above 256",
    ),
}


TURNS: dict[str, dict[str, Any]] = {
    "from and value": {"conversations": [{"from": "user", "value": "why?"}, {"from": "assistant", "value": "so"}]},
    "from and value, tools and a system": {
        "conversations": [
            {"from": "system", "value": "Be brief."},
            {"from": "user", "value": "weather?", "weight": 0},
            {"from": "assistant", "value": None, "tool_calls": [CALL]},
            {"from": "tool", "value": "sun"},
            {"from": "assistant", "value": "It is sunny."},
        ]
    },
    "from and value beside messages": {
        "messages": [user("no"), said("not this")],
        "conversations": [{"from": "user", "value": "why?"}, {"from": "assistant", "value": "so"}],
    },
    "from and value beside role and content": {
        "conversations": [
            {"from": "user", "value": "why?", "role": "x", "content": "y"},
            {"role": "assistant", "content": "so"},
        ]
    },
    "messages beside other conversations": {"messages": [user("why?"), said("so")], "conversations": [{"id": 1}]},
}
BY_TRL = """
import copy, json, sys
from trl.data_utils import is_conversational, is_conversational_from_value, maybe_convert_to_chatml
def made(line):
    line = maybe_convert_to_chatml(line) if is_conversational_from_value(line) else line
    return line["messages"] if is_conversational(line) else "no conversation"
print(json.dumps([made(line) for line in json.load(sys.stdin)]))
"""


def test_lines_of_from_and_value(compare: Callable[..., None]) -> None:
    theirs = asked(BY_TRL, list(TURNS.values()))
    for (name, line), messages in zip(TURNS.items(), theirs, strict=True):
        compare("lines of chats", name, lambda line=line: messages_of(line, "x"), messages)


@pytest.mark.parametrize("role", ["human", "gpt"])
def test_roles_that_tools_read_otherwise(compare: Callable[..., None], role: str) -> None:
    turns = [{"from": "user", "value": "why?"}, {"from": role, "value": "so"}]
    compare(
        "lines of chats",
        role,
        lambda: messages_of({"conversations": turns}, "x"),
        None,
        refusal="roles `human` and `gpt` beside `from`",
    )


def test_conversations_of_roles(compare: Callable[..., None]) -> None:
    line = {"conversations": [user("why?"), said("so")]}
    compare(
        "lines of chats", "conversations", lambda: messages_of(line, "x"), None, refusal="a field `conversations` of"
    )


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(compare: Callable[..., None], name: str) -> None:
    template, line, words = REFUSED[name]
    made = ChatTemplate(template, {}, where="x")
    compare("chats", name, lambda: conversation(made, line, "x"), None, refusal=words)


def test_a_tokenizer_that_splits_its_marks(compare: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"split_special_tokens": true}')
    compare("chats", "split marks", lambda: check_marks(tmp_path), None, refusal="`split_special_tokens`")
