"""Another server beside ours: the same numbers are 0 apart, other weights are found, and what is no answer is said."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jax
import pytest

from marin.errors import MissingEvidence, UsageError
from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject
from marin.plugins.serve.beside import compare


@pytest.mark.long
def test_our_own_server_has_the_same_bits(address: str, subject: Subject, scorer: Scorer) -> None:
    found = compare(scorer, 257, f"{address}/v1", "aaaa", sequences=6)
    assert (found.sequences, found.furthest) == (6, 0.0) and found.tokens > 60


@pytest.mark.long
def test_other_weights_are_found(address: str, subject: Subject, scorer: Scorer) -> None:
    other = scorer.holding(jax.tree.map(lambda x: x * 1.05, subject.model))
    found = compare(other, 257, f"{address}/v1", "aaaa", sequences=6)
    assert found.furthest > 1e-3 and found.token > 0


@contextmanager
def answering(answer: Callable[[dict[str, Any]], tuple[int, bytes]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, content = answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *said: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "content", "said"),
    [
        (400, b'{"error": "echo is not here"}', "the other server refuses"),
        (200, b'{"choices": [{"logprobs": null}]}', "without the log-likelihoods"),
        (200, b'{"choices": [{"logprobs": {"token_logprobs": [null, -1.0]}}]}', "without the log-likelihoods"),
        (200, b"[]", "without the log-likelihoods"),
        (200, b"no JSON", "no other server answers"),
    ],
)
def test_what_is_no_answer_is_said(status: int, content: bytes, said: str, scorer: Scorer) -> None:
    with answering(lambda asked: (status, content)) as url, pytest.raises((UsageError, MissingEvidence), match=said):
        compare(scorer, 257, url, "aaaa", sequences=2, seed=1)


def test_no_number_is_no_agreement(scorer: Scorer) -> None:
    def nothing(asked: dict[str, Any]) -> tuple[int, bytes]:
        values = [None, *["nan"] * (len(asked["prompt"]) - 1)]
        return 200, json.dumps({"choices": [{"logprobs": {"token_logprobs": values}}]}).encode()

    with answering(nothing) as url:
        assert not compare(scorer, 257, url, "aaaa", sequences=2).furthest <= 1e9


def test_nobody_there_and_no_address_are_said(scorer: Scorer) -> None:
    with pytest.raises(MissingEvidence, match="--vllm"):
        compare(scorer, 257, "http://127.0.0.1:9/v1", "aaaa", sequences=1)
    with pytest.raises(UsageError, match="no address"):
        compare(scorer, 257, "file:///etc", "aaaa", sequences=1)
