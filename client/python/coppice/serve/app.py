"""The server's endpoints."""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import time
from contextlib import asynccontextmanager
from typing import Any, AsyncIterator, Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..generation.checkpoint import Checkpoint
from ..generation.request import Limits
from ..generation.stream import Stream
from ..generation.tokenizer import Tokenizer, tokenizer_of
from . import ask as asks
from . import ending, metrics, unicode
from .answerers import Streamed, Whole, error_response
from .ask import Ask, Fields
from .config import Config
from .errors import RETRY_AFTER_S, ApiError, api_error
from .job import Job
from .reply import ChatReply, Reply, TextReply
from .worker import Worker

_LONG_TEXT = 4096  # of all prompts together: is encoded off the event loop's thread
_SESSION_CHARS = 128

Endpoint = Callable[[Request], Awaitable[Response]]


class Server:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.checkpoint = Checkpoint(config.checkpoint)
        self.tokenizer: Tokenizer = tokenizer_of(self.checkpoint)
        self.name = config.name or self.checkpoint.name
        self._defaults = self.checkpoint.defaults()
        self._keys = list(config.api_keys())
        self._started = int(time.time())
        self.worker: Worker

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.worker = Worker(self.config, self.checkpoint)
        self.worker.start()
        loop = asyncio.get_running_loop()
        ending.when_asked(lambda: loop.call_soon_threadsafe(self.worker.drain))
        ending.with_parent()
        try:
            yield
        finally:
            await asyncio.to_thread(self.worker.stop)

    # ---- what every request has to pass -----------------------------------------------------

    def guarded(self, path: str, endpoint: Endpoint) -> Endpoint:
        """With the key, and failures in the API's shape. path: the route's, which is counted: of
        the paths that fit it there are as many as anybody likes."""

        async def guard(request: Request) -> Response:
            try:
                request.state.key = self._check_key(request)
                return await endpoint(request)
            except ClientDisconnect:
                metrics.HUNG_UP.inc()
                return Response(status_code=400)
            except Exception as error:
                failure = api_error(error)
                metrics.REQUESTS.labels(path, failure.status).inc()
                return error_response(failure)

        return guard

    def _check_key(self, request: Request) -> int:
        """Which one it is. Headers come as bytes, and are told as latin-1."""
        if not self._keys:
            return 0
        header = request.headers.get("authorization", "").encode("latin-1")
        scheme, _, key = header.partition(b" ")
        given = key.strip()
        known = [hmac.compare_digest(given, one) for one in self._keys]
        if scheme.lower() != b"bearer" or not any(known):
            raise ApiError(
                401,
                "the API key is missing or wrong: send it as 'Authorization: Bearer KEY'",
                code="invalid_api_key",
            )
        return known.index(True)

    async def _body(self, request: Request) -> Fields:
        most, body = self.config.max_body_bytes, bytearray()
        if int(request.headers.get("content-length", "0") or 0) > most:
            raise _too_large(most)
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise _too_large(most)
        fields = asks.parse(bytes(body))
        self._check_model(fields.get("model", str, self.name))
        return fields

    def _check_model(self, name: str) -> None:
        if name != self.name:
            message = f"the model {name!r} is not served here: ask for {self.name!r}"
            raise ApiError(404, message, code="model_not_found", param="model")

    # ---- what is computed -------------------------------------------------------------------

    async def completions(self, request: Request) -> Response:
        ask = asks.completion(await self._body(request), self._defaults)
        self._check_room(ask)
        prompts = await self._encode(ask.prompts)
        return self._answer(request, ask, prompts, TextReply)

    async def chat(self, request: Request) -> Response:
        ask = asks.chat(await self._body(request), self._defaults)
        self._check_room(ask)
        try:
            prompt = await asyncio.to_thread(self.tokenizer.chat, ask.messages, ask.tools)
        except RecursionError as error:  # the template's: a thread's stack is not this one's
            raise unicode.too_deep("messages and tools") from error
        return self._answer(request, ask, [prompt], ChatReply)

    def _check_room(self, ask: Ask) -> None:
        """Before anything is computed for it."""
        if ask.sampling.n > self.config.max_n:
            raise ApiError(400, f"n may be {self.config.max_n} at most", param="n")
        if max(len(ask.prompts), 1) * ask.sampling.n > self.config.max_streams:
            most = self.config.max_streams
            raise ApiError(400, f"prompts times n may be {most} at most", param="prompt")
        self.worker.model()

    async def _encode(self, prompts: list[str | list[int]]) -> list[list[int]]:
        if sum(len(prompt) for prompt in prompts if isinstance(prompt, str)) < _LONG_TEXT:
            return self._encode_now(prompts)
        return await asyncio.to_thread(self._encode_now, prompts)

    def _encode_now(self, prompts: list[str | list[int]]) -> list[list[int]]:
        encode = self.tokenizer.encode
        return [encode(one) if isinstance(one, str) else one for one in prompts]

    def _answer(
        self, request: Request, ask: Ask, prompts: list[list[int]], kind: type[Reply]
    ) -> Response:
        streams = self._streams(request, ask, prompts)
        job = Job(self.worker, self.tokenizer, ask.sampling, ask.token_ids)
        reply = kind(self.name, self.tokenizer, ask.token_ids, ask.sampling)
        if not ask.stream:
            return Whole(request.url.path, job, reply, streams)
        streamed = Streamed(request.url.path, job, reply, streams)
        streamed.include_usage = ask.include_usage
        return streamed

    def _streams(
        self, request: Request, ask: Ask, prompts: list[list[int]]
    ) -> list[list[Stream]]:
        limits: Limits = self.worker.model()
        asks.check_stop_ids(ask.sampling, limits.n_vocab)
        streams = [limits.streams(prompt, ask.sampling) for prompt in prompts]
        self._pin(request, streams[0][0])
        return streams

    def _pin(self, request: Request, stream: Stream) -> None:
        """Coppice-Pin: so many seconds; Coppice-Session: in place of that session's last, of those
        with the same API key."""
        given = request.headers.get("coppice-pin")
        if given is None:
            return
        try:
            seconds = float(given)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= self.config.max_pin_s:
            raise ApiError(400, f"Coppice-Pin has to be 0 to {self.config.max_pin_s:g} seconds")
        session = request.headers.get("coppice-session", "")[:_SESSION_CHARS]
        stream.session = f"{request.state.key}/{session}" if session else ""
        stream.pin_s = seconds

    # ---- what is told -----------------------------------------------------------------------

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        self._check_model(request.path_params["name"])
        return JSONResponse(self._model())

    def _model(self) -> dict[str, Any]:
        limits = self.worker.limits
        return {
            "id": self.name,
            "object": "model",
            "created": self._started,
            "owned_by": "coppice",
            "max_model_len": limits.max_positions if limits else self.checkpoint.max_positions,
        }

    async def embeddings(self, request: Request) -> Response:
        message = "embeddings are not computed here: /v1/completions and /v1/chat/completions are"
        raise ApiError(400, message, code="unsupported")

    async def health(self, request: Request) -> Response:
        ready = self.worker.ready
        body = json.dumps({"status": "ok" if ready else self.worker.state})
        headers = {} if ready else {"Retry-After": str(RETRY_AFTER_S)}
        return Response(body, 200 if ready else 503, headers, "application/json")

    async def metrics(self, request: Request) -> Response:
        await self.worker.noted()
        text, kind = metrics.exposition()
        return Response(text, headers={"content-type": kind})


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"the body has more than {most} bytes: send less", code="too_large")


async def _unknown(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    what = "takes no " + request.method if status == 405 else "is not known"
    return error_response(ApiError(status, f"{request.url.path} {what}", code="unknown_url"))


def create(config: Config | None = None) -> Starlette:
    """An application of a worker; config None: what the process that started it has published."""
    server = Server(config or Config.published())
    endpoints: list[tuple[str, str, Endpoint]] = [
        ("POST", "/v1/completions", server.completions),
        ("POST", "/v1/chat/completions", server.chat),
        ("POST", "/v1/embeddings", server.embeddings),
        ("GET", "/v1/models", server.models),
        ("GET", "/v1/models/{name:path}", server.model),
    ]
    routes = [Route(path, server.guarded(path, to), methods=[how]) for how, path, to in endpoints]
    routes += [Route("/health", server.health), Route("/metrics", server.metrics)]
    return Starlette(
        routes=routes,
        lifespan=server.lifespan,
        exception_handlers={404: _unknown, 405: _unknown},
    )
