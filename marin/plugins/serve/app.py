"""The routes: ``/v1/models``, ``/v1/completions``, ``/v1/chat/completions``, ``/health``. Errors are OpenAI's shape, everywhere.

A prompt is continued as it is: nothing is put in front of it, and an empty one is an end of text, as lm-evaluation-harness
has it. A request whose client went away is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from marin.data.template import OWN, ChatTemplate
from marin.evaluation.subject import Subject
from marin.plugins.serve import wire
from marin.plugins.serve.answers import Answer, Question, question
from marin.plugins.serve.chat import content_form
from marin.plugins.serve.engine import Engine, Job, SequenceUpdate

BODY_SECONDS = 20.0
"""How long a client may take to send a request."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Served:
    """What is served: under ``name``, and under ``aliases`` too."""

    subject: Subject
    engine: Engine
    template: ChatTemplate | None
    name: str
    created: int
    aliases: tuple[str, ...] = ()


def application(served: Served) -> Starlette:
    """The ASGI application."""
    routes = Routes(served)
    return Starlette(
        routes=[
            Route("/health", routes.health, methods=["GET"]),
            Route("/v1/models", routes.models, methods=["GET"]),
            Route("/v1/models/{name:path}", routes.model, methods=["GET"]),
            Route("/v1/completions", routes.completions, methods=["POST"]),
            Route("/v1/chat/completions", routes.chat, methods=["POST"]),
        ],
        exception_handlers={wire.Refused: _refused_response, HTTPException: _http, Exception: _defect},
    )


class Routes:
    """The handlers of one served state."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.form = wire.ContentForm() if served.template is None else content_form(served.template)

    async def health(self, request: Request) -> Response:
        """Whether it computes, and how much waits."""
        running, waiting = self.served.engine.load
        alive = self.served.engine.alive
        told = {"status": "ok" if alive else "failed", "running": running, "waiting": waiting}
        return _json_response(told, 200 if alive else 503)

    async def models(self, request: Request) -> Response:
        """The one that is here."""
        return _json_response({"object": "list", "data": [self._described()]})

    async def model(self, request: Request) -> Response:
        """The one of that name."""
        self._check(request.path_params["name"])
        return _json_response(self._described())

    async def completions(self, request: Request) -> Response:
        """``/v1/completions``."""
        asked = wire.read_request(wire.Completion, await _body(request))
        self._check(asked.model)
        n = asked.n or 1
        if asked.best_of is not None and asked.best_of != n:
            raise wire.Refused("best_of is not supported beyond n", param="best_of", code="unsupported_parameter")
        prompts = wire.prompts_of(asked)
        if len(prompts) * n > wire.MOST_SEQUENCES:
            raise wire.Refused(f"at most {wire.MOST_SEQUENCES} sequences in a request", param="n", code="invalid_value")
        asking = question(
            self.served.subject,
            [self._tokens(prompt) for prompt in prompts],
            n=n,
            limit=asked.max_tokens,
            temperature=1.0 if asked.temperature is None else asked.temperature,
            seed=wire.seed_of(asked.seed),
            stops=wire.stops_of(asked.stop),
            echo=bool(asked.echo),
            alternatives=asked.logprobs,
        )
        usage = asked.stream_options is not None and bool(asked.stream_options.include_usage)
        return await self._answer(request, asking, bool(asked.stream), usage)

    async def chat(self, request: Request) -> Response:
        """``/v1/chat/completions``."""
        asked = wire.read_request(wire.Chat, await _body(request))
        self._check(asked.model)
        template = self.served.template
        if template is None:
            raise wire.Refused("this model has no chat template", param="messages", code="no_chat_template")
        messages = [one.for_template(number, self.form) for number, one in enumerate(asked.messages)]
        continues, others = bool(asked.continue_final_message), asked.chat_template_kwargs or {}
        prompt = not continues if asked.add_generation_prompt is None else asked.add_generation_prompt
        if named := sorted(OWN & others.keys()):
            raise wire.Refused(
                f"an argument of its own: {named[0]}", param="chat_template_kwargs", code="invalid_value"
            )
        try:
            text = await asyncio.to_thread(
                template.render, messages, documents=asked.documents, prompt=prompt, continues=continues, others=others
            )
        except ValueError as error:
            raise wire.Refused(f"the chat template refuses: {error}", param="messages", code="invalid_value") from None
        limit = asked.max_completion_tokens if asked.max_completion_tokens is not None else asked.max_tokens
        asking = question(
            self.served.subject,
            [self._tokens(text)],
            n=asked.n or 1,
            limit=limit,
            temperature=1.0 if asked.temperature is None else asked.temperature,
            seed=wire.seed_of(asked.seed),
            stops=(*wire.stops_of(asked.stop), *template.stops),
            alternatives=(asked.top_logprobs or 0) if asked.logprobs else None,
            chat=True,
        )
        usage = asked.stream_options is not None and bool(asked.stream_options.include_usage)
        return await self._answer(request, asking, bool(asked.stream), usage)

    # -- answering

    async def _answer(self, request: Request, asking: Question, stream: bool, usage: bool) -> Response:
        told: asyncio.Queue[SequenceUpdate] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def tell(one: SequenceUpdate) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(told.put_nowait, one)

        job = Job(asking.asked(), tell)
        self.served.engine.ask(job)
        answer = Answer(asking, self.served.name, usage)
        headers = {"x-marin-state": asking.subject.state, "x-marin-seed": str(asking.seed)}
        if stream:
            return StreamingResponse(_stream(answer, told, job), headers=headers, media_type="text/event-stream")
        try:
            gone = asyncio.create_task(_gone(request))
            try:
                while len(answer.told) < len(job.asked):
                    next_one = asyncio.create_task(told.get())
                    await asyncio.wait({next_one, gone}, return_when=asyncio.FIRST_COMPLETED)
                    if not next_one.done():
                        next_one.cancel()
                        raise wire.Refused("the client went away", 499, "server_error", code="client_closed")
                    one = next_one.result()
                    if one.failed:
                        raise wire.Refused(one.failed, 500, "server_error", code="internal_error")
                    if one.done:
                        answer.told[one.place] = one
            finally:
                gone.cancel()
        finally:
            job.cancelled.set()
        return _json_response(answer.whole(), 200, headers)

    def _described(self) -> dict[str, Any]:
        subject = self.served.subject
        return {
            "id": self.served.name,
            "object": "model",
            "created": self.served.created,
            "owned_by": "marin",
            "max_model_len": subject.recipe.model.seq_len,
            "marin": {
                "run": subject.run or None,
                "state": subject.state,
                "step": subject.step if subject.run else None,
                "tokenizer": subject.tokenizer_digest,
                "profile": subject.recipe.arithmetic.profile,
            },
        }

    def _check(self, name: str | None) -> None:
        if name is not None and name not in (self.served.name, *self.served.aliases):
            raise wire.Refused(
                f"The model {name[:100]!r} does not exist: {self.served.name!r} is here",
                404,
                param="model",
                code="model_not_found",
            )

    def _tokens(self, prompt: str | list[int]) -> list[int]:
        if not isinstance(prompt, str):
            return prompt or [self.served.subject.recipe.tokens.begin]
        try:
            prompt.encode("utf-8")
        except UnicodeEncodeError:
            raise wire.Refused("a lone surrogate is no character", param="prompt", code="invalid_value") from None
        return self.served.subject.encode(prompt) or [self.served.subject.recipe.tokens.begin]


async def _stream(answer: Answer, told: asyncio.Queue[SequenceUpdate], job: Job) -> AsyncIterator[bytes]:
    """Server-sent events: a chunk for what is new, the evidence with the last of them, and ``[DONE]``."""
    left = len(job.asked)
    try:
        while left:
            one = await told.get()
            if one.failed:
                failed = wire.Refused(one.failed, 500, "server_error", code="internal_error")
                yield _event(failed.body())
                return
            left -= one.done
            for chunk in answer.piece(one) if left else answer.last(one):
                yield _event(chunk)
        yield b"data: [DONE]\n\n"
    finally:
        job.cancelled.set()


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


async def _gone(request: Request) -> None:
    """Returns when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    """The request's body.

    Raises:
        Refused: it is not JSON by its type, too large, or too slow.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise wire.Refused("Content-Type: application/json is expected", 415, code="unsupported_media_type")
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > wire.MOST_BODY:
                    raise wire.Refused(f"a request has at most {wire.MOST_BODY} bytes", 413, code="request_too_large")
                parts.append(part)
    except TimeoutError:
        raise wire.Refused(
            f"the request did not come within {BODY_SECONDS:.0f} s", 408, code="request_timeout"
        ) from None
    except ClientDisconnect:
        raise wire.Refused("the client went away", 499, "server_error", code="client_closed") from None
    return b"".join(parts)


def _json_response(value: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


async def _refused_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, wire.Refused)
    headers = {"retry-after": str(error.retry_after)} if error.retry_after is not None else {}
    if error.status in (408, 413):
        headers["connection"] = "close"  # the rest of the body is not read
    return _json_response(error.body(), error.status, headers)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    told = wire.Refused(
        f"{request.method} {request.url.path[:200]}: {error.detail}",
        error.status_code,
        code=f"http_{error.status_code}",
    )
    return _json_response(told.body(), error.status_code, dict(error.headers or {}))


async def _defect(request: Request, error: Exception) -> Response:
    _log.error("%s %s: %s", request.method, request.url.path, type(error).__name__)
    _log.debug("the defect", exc_info=error)
    return _json_response(
        wire.Refused("a defect of the server", 500, "server_error", code="internal_error").body(), 500
    )
