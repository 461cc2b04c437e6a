"""Parsers of foreign bytes of this plugin, which tests/fuzz tries."""

from contextlib import suppress

from marin.data.chat import TEMPLATE
from marin.data.template import ChatTemplate
from marin.plugins.serve.evidence import read_answer
from marin.plugins.serve.files import read_instructions, read_scenario
from marin.plugins.serve.wire import Chat, Completion, ContentForm, Refused, prompts_of, read_request, stops_of
from tests.fuzz.parsers import Parser, given, on_file

ANSWER = (
    b'{"choices":[{"index":0,"text":"b","logprobs":null}],"marin":{"state":"s","tokenizer":"t","seed":7,"temperature":0.5,'
    b'"max_tokens":2,"stop":["x"],"choices":[{"prompt_tokens":[1],"tokens":[2],"occurrence":0}]}}'
)


def asked_completion(data: bytes) -> None:
    """As the server reads it; its refusal is an answer."""
    with suppress(Refused):
        asked = read_request(Completion, data)
        prompts_of(asked)
        stops_of(asked.stop)


def asked_chat(data: bytes) -> None:
    """As the server reads it, with its messages rendered; its refusal is an answer."""
    with suppress(Refused, ValueError):
        asked = read_request(Chat, data)
        messages = [one.for_template(place, ContentForm()) for place, one in enumerate(asked.messages)]
        ChatTemplate(TEMPLATE, {}, where="fuzz").render(messages)


PARSERS = [
    Parser(
        "a completion asked",
        asked_completion,
        given(b'{"prompt":["a",[1,2]],"max_tokens":3,"temperature":0.5,"stop":["x"],"logprobs":2,"top_p":1}'),
        ("marin.plugins.serve.wire.read_request",),
    ),
    Parser(
        "a chat asked",
        asked_chat,
        given(b'{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"n":2,"seed":7}'),
    ),
    Parser(
        "an answer to replay",
        lambda data: read_answer(data, "fuzz"),
        given(ANSWER, b"data: " + ANSWER + b"\n\ndata: [DONE]\n\n", b'{"request":{},"response":' + ANSWER + b"}"),
        ("marin.plugins.serve.evidence.read_answer",),
    ),
    Parser(
        "instructions",
        on_file(read_instructions, "rows.jsonl"),
        given(b'{"instruction":"a","dataset":"x"}\n{"prompt":"b"}\n'),
        ("marin.plugins.serve.files.read_instructions",),
    ),
    Parser(
        "a scenario of HELM",
        on_file(read_scenario, "scenario_state.json"),
        given(
            b'{"adapter_spec":{},"request_states":[{"request":{"prompt":"a","num_completions":2,"max_tokens":3,'
            b'"temperature":0.5,"stop_sequences":["x"]}}]}'
        ),
        ("marin.plugins.serve.files.read_scenario",),
    ),
]
