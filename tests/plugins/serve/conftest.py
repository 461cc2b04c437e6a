"""A tiny model with a byte tokenizer, and a server over it on a port of the loopback interface."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import jax.random as jrandom
import pytest
import uvicorn
from compiled_once import compiled_once
from haliax import Axis
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from marin.data.chat import TEMPLATE
from marin.data.template import ChatTemplate
from marin.data.tokenizer import parse_tokenizer
from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject
from marin.plugins.serve.app import Served
from marin.plugins.serve.engine import Engine
from marin.plugins.serve.server import configuration
from marin.process.listening import bind
from marin.recipe.schema import Model, Recipe
from marin.training.model import model_config

__all__ = ["compiled_once"]

RECIPE = Recipe(model=Model(hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, num_kv_heads=2, seq_len=64))


@pytest.fixture(scope="session")
def subject() -> Subject:
    vocabulary = {"<|endoftext|>": 0} | {sign: n for n, sign in enumerate(sorted(ByteLevel.alphabet()), start=1)}
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), ByteDecoder()
    model = model_config(RECIPE.model).build(Axis("vocab", len(vocabulary)), key=jrandom.PRNGKey(2))
    read = parse_tokenizer(tokenizer.to_str().encode(), where="here")
    return Subject("aaaa", RECIPE, model, read, f"sha256:{'5' * 64}", 6, f"sha256:{'7' * 64}")


@pytest.fixture(scope="session")
def scorer(subject: Subject) -> Scorer:
    return Scorer(subject.model, subject.recipe)


@contextmanager
def running(subject: Subject, scorer: Scorer, waiting: int = 256) -> Iterator[tuple[str, uvicorn.Server, Engine]]:
    """A server in a thread; its end finishes what was taken."""
    engine = Engine(scorer, waiting=waiting)
    engine.start()
    listener: socket.socket = bind("127.0.0.1", 0)
    served = Served(subject, engine, ChatTemplate(TEMPLATE, {}, where="test"), "aaaa", int(time.time()))
    server = uvicorn.Server(configuration(listener, served))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", server, engine
    finally:
        server.should_exit = True
        thread.join(600)
        engine.end()
        listener.close()
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def address(subject: Subject, scorer: Scorer) -> Iterator[str]:
    with running(subject, scorer) as (address, _, _):
        yield address


@pytest.fixture(scope="session")
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=600) as client:
        yield client


@pytest.fixture(scope="session")
def ask(client: httpx.Client) -> Callable[..., httpx.Response]:
    def ask(path: str = "completions", **body: object) -> httpx.Response:
        return client.post(f"/v1/{path}", json=body)

    return ask
