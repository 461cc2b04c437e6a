"""The OpenAI interface over a real socket: the same bits for every neighbour, clear refusals, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import jax.random as jrandom
import pytest
from msgspec import structs

from marin.data.chat import TEMPLATE
from marin.data.earlier.chats import render
from marin.data.template import ChatTemplate
from marin.evaluation.scoring import Prompt, Row, Scorer, request_name
from marin.evaluation.subject import Subject
from marin.plugins.serve import server as serving
from marin.plugins.serve.evidence import read_answer
from marin.plugins.serve.replay import replay
from marin.training.model import model_config
from tests.plugins.serve.conftest import running

Ask = Callable[..., httpx.Response]


def events(answer: httpx.Response) -> list[Any]:
    """The chunks of a stream; it ends as the interface says."""
    lines = [line for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]" and answer.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_a_completion_is_what_the_scorer_generates(ask: Ask, subject: Subject, scorer: Scorer) -> None:
    answer = ask(prompt="the dog", max_tokens=9, temperature=0.8, seed=7, logprobs=3, n=2)
    said = answer.json()
    tokens = tuple(subject.encode("the dog"))
    expected = scorer.generate(
        [Prompt(tokens, 9, lambda new: False, 0.8, request_name(tokens, copy)) for copy in range(2)], 7
    )
    assert [tuple(one["tokens"]) for one in said["marin"]["choices"]] == expected
    for choice, new in zip(said["choices"], expected, strict=True):
        (scored,) = scorer.score([Row((*tokens, *new), len(new))])
        assert choice["text"] == subject.decode(new) and choice["finish_reason"] == "length"
        assert tuple(choice["logprobs"]["token_logprobs"]) == scored.logprobs
        assert all(3 <= len(one) <= 4 for one in choice["logprobs"]["top_logprobs"])
    assert said["usage"] == {"prompt_tokens": 7, "completion_tokens": 18, "total_tokens": 25}
    assert answer.headers["x-marin-state"] == said["system_fingerprint"] == subject.state
    assert answer.headers["x-marin-seed"] == "7" == str(said["marin"]["seed"])


def test_an_echo_has_every_log_likelihood_but_the_first(ask: Ask, subject: Subject, scorer: Scorer) -> None:
    prompts = [subject.encode("the dog"), subject.encode("é")]
    said = ask(prompt=prompts, max_tokens=0, echo=True, logprobs=1).json()
    for choice, tokens in zip(said["choices"], prompts, strict=True):
        shown = choice["logprobs"]
        (scored,) = scorer.score([Row(tuple(tokens), len(tokens) - 1)])
        assert shown["token_logprobs"] == [None, *scored.logprobs] and shown["top_logprobs"][0] is None
        greedy = [
            max(top.values()) == value
            for top, value in zip(shown["top_logprobs"], shown["token_logprobs"], strict=True)
            if top
        ]
        assert all(greedy) == scored.greedy and choice["text"] == subject.decode(tuple(tokens))
    assert said["choices"][1]["logprobs"]["tokens"] == ["bytes:\\xc3", "bytes:\\xa9"]


def test_neighbours_change_no_bit(ask: Ask) -> None:
    asked = [
        {"prompt": text, "max_tokens": 12, "temperature": 0.9, "seed": seed, "logprobs": 2}
        for seed in (1, 2)
        for text in ("the dog", "a cat", "", "x" * 40)
    ]

    def told(body: dict[str, Any]) -> Any:
        said = ask(**body).json()
        return said["choices"], said["marin"]

    alone = [told(body) for body in asked]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(told, asked)) == alone
    assert alone[0][0][0]["text"] != alone[4][0][0]["text"], "another seed draws otherwise"


def test_a_stream_says_the_same_in_pieces(ask: Ask, subject: Subject) -> None:
    body = {"prompt": "the", "max_tokens": 20, "temperature": 1.0, "seed": 5, "logprobs": 0, "n": 2}
    whole = ask(**body).json()
    chunks = events(ask(**body, stream=True, stream_options={"include_usage": True}))
    for index in range(2):
        parts = [one for chunk in chunks for one in chunk["choices"] if one["index"] == index]
        assert "".join(one["text"] for one in parts) == whole["choices"][index]["text"] and len(parts) > 5
        assert parts[-1]["finish_reason"] == "length" and all(one["finish_reason"] is None for one in parts[:-1])
        assert parts[-1]["logprobs"] == whole["choices"][index]["logprobs"]
    assert (chunks[-1]["usage"], chunks[-1]["marin"]) == (whole["usage"], whole["marin"])


def test_a_stop_string_ends_a_text_and_never_shows(ask: Ask, subject: Subject) -> None:
    body = {"prompt": "the", "max_tokens": 30, "temperature": 1.0, "seed": 11}
    free = ask(**body).json()["choices"][0]["text"]
    stop = free[8:10]
    said = ask(**body, stop=[stop, "never comes"]).json()["choices"][0]
    assert said["text"] == free[: free.index(stop)] and said["finish_reason"] == "stop"
    chunks = events(ask(**body, stop=stop, stream=True))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == said["text"], "a client takes one out of each"


def test_a_prompt_is_made_as_it_was_asked_for(subject: Subject) -> None:
    longer = structs.replace(subject.recipe, model=structs.replace(subject.recipe.model, seq_len=256))
    model = model_config(longer.model).build(subject.model.Vocab, key=jrandom.PRNGKey(2))
    subject = replace(subject, recipe=longer, model=model)
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "4", "tool_call_id": "x"},
        {"role": "assistant", "content": "It is "},
    ]

    def prompt(**how: Any) -> str:
        answer = ask(max_tokens=1, **how)
        assert answer.status_code == 200, answer.text
        said = answer.json()
        return subject.decode(tuple(said["marin"]["choices"][0]["prompt_tokens"]))

    whole = '<|user|>\nhi\n<|assistant|>\n{"name": "f", "arguments": {"a": 1}}\n<|tool|>\n4\n<|assistant|>\nIt is '
    with (
        running(subject, Scorer(model, longer)) as (address, _, _),
        httpx.Client(base_url=address, timeout=600) as client,
    ):

        def ask(**how: Any) -> httpx.Response:
            return client.post("/v1/chat/completions", json={"messages": messages, **how})

        assert prompt(continue_final_message=True) == whole
        assert prompt(add_generation_prompt=False) == f"{whole}\n"
        assert prompt() == prompt(chat_template_kwargs={"x": 1}) == f"{whole}\n<|assistant|>\n"
        for how, why in (
            ({"continue_final_message": True, "add_generation_prompt": True}, "continues the last message or begins"),
            ({"chat_template_kwargs": {"messages": []}}, "an argument of its own: messages"),
        ):
            refused = ask(**how)
            assert refused.status_code == 400 and why in refused.text


@pytest.mark.parametrize("causal", [None, False, True])
def test_an_answer_is_generated_by_the_pass_that_it_names(
    causal: bool | None, ask: Ask, subject: Subject, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release before there was a causal pass under profile exact names none."""
    passes: list[Scorer] = []
    monkeypatch.setattr(Scorer, "one_by_one", lambda self: passes.append(self) or self)
    said = ask("completions", prompt="The dog", max_tokens=3, seed=3).json()
    said["marin"] |= {} if causal is None else {"causal": causal}
    assert replay(subject, scorer, *read_answer(json.dumps(said).encode(), "test")).difference is None
    assert passes == [scorer] * (not causal)


def test_a_chat_is_rendered_as_chats_are_trained_on(ask: Ask, subject: Subject, scorer: Scorer) -> None:
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": [{"type": "text", "text": "why"}]},
    ]
    said = ask("chat/completions", messages=messages, max_tokens=6, seed=3, logprobs=True, top_logprobs=2).json()
    plain = [*messages[:2], {"role": "user", "content": "why"}]
    text = render([*plain, {"role": "assistant", "content": "x"}], "test")[0].removesuffix("x\n")
    assert said["marin"]["choices"][0]["prompt_tokens"] == subject.encode(text)
    assert ChatTemplate(TEMPLATE, {}, where="test").render(plain) == text
    (choice,) = said["choices"]
    assert choice["message"]["role"] == "assistant"
    assert len(choice["logprobs"]["content"]) == said["usage"]["completion_tokens"]
    assert replay(subject, scorer, *read_answer(json.dumps(said).encode(), "test")).difference is None
    assert "causal" not in said["marin"], "of profile exact alone"
    choice["logprobs"]["content"][0]["top_logprobs"][1]["token"] = "best"
    edited = replay(subject, scorer, *read_answer(json.dumps(said).encode(), "test")).difference
    assert edited is not None and edited["what"] == "logprobs"
    streamed_answer = ask("chat/completions", messages=messages, max_tokens=6, seed=3, stream=True, logprobs=True)
    assert replay(subject, scorer, *read_answer(streamed_answer.content, "test")).difference is None
    chunks = events(ask("chat/completions", messages=messages, max_tokens=6, seed=3, stream=True))
    first, *_ = chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    streamed = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk["choices"]]
    assert "".join(streamed) == choice["message"]["content"]


def test_an_answer_is_generated_again_and_an_edited_one_is_found(ask: Ask, subject: Subject, scorer: Scorer) -> None:
    body = {"prompt": ["the dog", "the dog"], "max_tokens": 8, "temperature": 0.9, "logprobs": 1, "echo": True}
    for saved in (
        ask(**body).content,
        ask(**body, stream=True).content,
        json.dumps({"request": body, "response": ask(**body).json()}).encode(),
    ):
        found = replay(subject, scorer, *read_answer(saved, "test"))
        assert found.difference is None and found.logprobs == found.tokens + 12, saved
    answers = (ask(**body).json() for _ in range(100))  # the server draws the seeds: an answer may end at once
    said = next(said for said in answers if len(said["marin"]["choices"][1]["tokens"]) > 2)

    def differs(change: Callable[[Any], object]) -> Any:
        edited = json.loads(json.dumps(said))
        change(edited)
        found = replay(subject, scorer, *read_answer(json.dumps(edited).encode(), "test")).difference
        assert found is not None
        return found

    def token(said: Any) -> None:
        said["marin"]["choices"][1]["tokens"][2] ^= 1

    assert (differs(token)["what"], differs(token)["choice"], differs(token)["token"]) == ("token", 1, 2)
    assert differs(lambda said: said["marin"].update(seed=said["marin"]["seed"] + 1))["what"] == "token"
    assert differs(lambda said: said["choices"][0].update(text="better"))["what"] == "text"
    for change, what in (
        (lambda said: said["choices"][0].update(finish_reason="content_filter"), "finish_reason"),
        (lambda said: said["choices"][0].update(index=7), "index"),
        (lambda said: said["choices"][0].update(judged="good"), "judged"),
        (lambda said: said["choices"][1]["logprobs"]["tokens"].__setitem__(0, "best"), "logprobs"),
        (lambda said: said["choices"][1]["logprobs"]["top_logprobs"][2].update(best=-0.1), "logprobs"),
        (lambda said: said["choices"].append({"text": "best", "index": 2}), "choices"),
        (lambda said: said["choices"].__setitem__(1, "best"), "choice"),
        (lambda said: said.update(choices=None), "choices"),
    ):
        assert differs(change)["what"] == what
    for shown in (
        {"logprobs": None},
        {"logprobs": 0},
        {"logprobs": 5, "stream": True},
        {"logprobs": 3, "echo": True},
        {"echo": True, "max_tokens": 0},
    ):
        answered = read_answer(ask(**body | {"echo": False} | shown).content, "test")
        assert replay(subject, scorer, *answered).difference is None, shown
    place = len(said["choices"][0]["logprobs"]["token_logprobs"]) - 2
    assert differs(lambda said: said["choices"][0]["logprobs"]["token_logprobs"].__setitem__(place, -0.1)) == {
        "choice": 0,
        "what": "logprob",
        "token": place,
        "found": -0.1,
        "expected": said["choices"][0]["logprobs"]["token_logprobs"][place],
    }


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"prompt": "a", "max_tokens": 999}, 400, "prompt"),
        ({"prompt": "a" * 70}, 400, "prompt"),
        ({"prompt": [[300]]}, 400, "prompt"),
        ({"prompt": []}, 400, "prompt"),
        ({"prompt": "a", "n": 1000}, 400, "n"),
        ({"prompt": ["a"] * 100, "n": 2}, 400, "n"),
        ({"prompt": "a", "top_p": 0.5}, 400, "top_p"),
        ({"prompt": "a", "best_of": 4}, 400, "best_of"),
        ({"prompt": "a", "temperature": -1}, 400, "temperature"),
        ({"prompt": "a", "temperature": "hot"}, 400, "temperature"),
        ({"prompt": "a", "seed": 2**70}, 400, "seed"),
        ({"prompt": "a", "stop": ["x"] * 40}, 400, "stop"),
        ({"prompt": "a", "logprobs": 50}, 400, "logprobs"),
        ({"prompt": "a", "model": "gpt-5"}, 404, "model"),
        ({"prompt": "a", "nonsense": 1}, 400, "nonsense"),
        ({"prompt": "a", "top_k": 5}, 400, "top_k"),
        ({"prompt": "a", "num_beams": 10}, 400, "num_beams"),
        ({"prompt": "a", "max_tokens": 256, "max_new_tokens": 8}, 400, "max_new_tokens"),
        ({"prompt": {"a": 1}}, 400, "prompt"),
        ({"prompt": "\ud800"}, 400, None),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(
    client: httpx.Client, body: dict[str, Any], status: int, param: str | None
) -> None:
    headers = {"content-type": "application/json"}
    answer = client.post("/v1/completions", content=json.dumps(body), headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param), error
    assert error["type"] == "invalid_request_error" and set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("method", "path", "content", "headers", "status"),
    [
        ("POST", "/v1/completions", b"{", {}, 400),
        ("POST", "/v1/completions", b"[" * 100_000, {}, 400),
        ("POST", "/v1/completions", b"\xff\xfe", {}, 400),
        ("POST", "/v1/completions", b"{}", {"content-type": "text/plain"}, 415),
        ("POST", "/v1/completions", b" " * (1 << 21), {}, 413),
        ("POST", "/v1/completions", b"{}", {"host": "evil.example"}, 421),
        ("GET", "/v1/completions", b"", {}, 405),
        ("GET", "/v1/nothing", b"", {}, 404),
        ("GET", "/v1/models/other", b"", {}, 404),
        ("POST", "/v1/chat/completions", b'{"messages": [{"role": "robot", "content": "a"}]}', {}, 400),
        ("POST", "/v1/chat/completions", b'{"messages": [{"role": "user", "content": [{"type": "image"}]}]}', {}, 400),
        ("POST", "/v1/chat/completions", b'{"messages": []}', {}, 400),
    ],
)
def test_what_is_no_request_is_answered_in_the_same_shape(
    client: httpx.Client, method: str, path: str, content: bytes, headers: dict[str, str], status: int
) -> None:
    sent = {"content-type": "application/json"} | headers
    answer = client.request(method, path, content=content, headers=sent)
    assert answer.status_code == status and set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_the_model_and_the_health_are_told(client: httpx.Client, subject: Subject) -> None:
    (model,) = client.get("/v1/models").json()["data"]
    assert model["marin"]["state"] == subject.state and client.get(f"/v1/models/{model['id']}").json() == model
    assert client.get("/health").json()["status"] == "ok"


def connected(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=600)


def rest(one: socket.socket) -> bytes:
    """Whatever comes until the server closes."""
    found = b""
    while piece := one.recv(65536):
        found += piece
    return found


def raw(address: str, *parts: bytes) -> bytes:
    """What a socket is told that sends this and then waits."""
    with connected(address) as one:
        for part in parts:
            one.sendall(part)
        return rest(one)


def test_a_connection_that_speaks_nothing_is_closed(
    subject: Subject, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 1.0)
    monkeypatch.setattr("marin.plugins.serve.app.BODY_SECONDS", 0.5)
    with running(subject, scorer) as (address, _, _):
        assert raw(address) == b"" and raw(address, b"POST /v1/comp") == b""
        assert b"invalid_http" in raw(address, b"\x16\x03\x01 nonsense\r\n\r\n")
        head = b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        assert b"request_timeout" in raw(address, head + b"content-length: 9\r\n\r\n{")
        with connected(address) as one:
            one.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert one.recv(65536).startswith(b"HTTP/1.1 200")
            one.sendall(b"GET /hea")
            assert rest(one) == b"", "nor half of a second request"
        assert httpx.get(f"{address}/health").status_code == 200


def test_a_flood_is_answered_one_by_one(subject: Subject, scorer: Scorer, ask: Ask) -> None:
    """Two hundred requests at once, of which a third is malformed and a third goes away: each that stays is answered, with
    its own bits or with the time to come again."""
    body = {"prompt": "the dog", "max_tokens": 4, "seed": 3}
    expected = ask(**body).json()["choices"]

    async def flood(address: str) -> list[Any]:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(base_url=address, timeout=600, limits=limits) as client:
            json_type = {"content-type": "application/json"}

            async def one(number: int) -> Any:
                if number % 3 == 0:
                    return await client.post("/v1/completions", content=b'{"prompt": [', headers=json_type)
                if number % 3 == 1:
                    task = asyncio.ensure_future(client.post("/v1/completions", json=body | {"max_tokens": 50}))
                    await asyncio.sleep(0)
                    task.cancel()
                    return (await asyncio.gather(task, return_exceptions=True))[0]
                return await client.post("/v1/completions", json=body)

            return await asyncio.gather(*(one(number) for number in range(200)))

    with running(subject, scorer, waiting=20) as (address, _, engine):
        told = asyncio.run(flood(address))
        for number, answer in enumerate(told):
            if number % 3 == 0:
                assert answer.status_code == 400
            elif number % 3 == 2 and answer.status_code == 200:
                assert answer.json()["choices"] == expected
            elif number % 3 == 2:
                assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
        statuses = [answer.status_code for number, answer in enumerate(told) if number % 3 == 2]
        assert 200 in statuses and 429 in statuses
        assert httpx.post(f"{address}/v1/completions", json=body, timeout=600).json()["choices"] == expected
        assert engine.alive


def test_the_end_finishes_what_was_taken(subject: Subject, scorer: Scorer) -> None:
    body = {"prompt": "the dog", "max_tokens": 40, "seed": 3, "stream": True}
    with running(subject, scorer) as (address, server, _):
        begun, texts = threading.Barrier(5), []

        def stream() -> None:
            with httpx.stream("POST", f"{address}/v1/completions", json=body, timeout=600) as answer:
                lines = answer.iter_lines()
                first = next(lines)
                begun.wait(600)
                texts.append("\n".join([first, *lines]))

        threads = [threading.Thread(target=stream) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun.wait(600)
        server.should_exit = True
        for thread in threads:
            thread.join(600)
    assert len(texts) == 4 and all(text.rstrip().endswith("data: [DONE]") for text in texts)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/health")
