"""How a request is answered: all at once, or token by token. Either way a client that hangs up ends
its streams, and a failure before the first token has a status of its own."""

from __future__ import annotations

import asyncio
import json
import time
from abc import abstractmethod
from contextlib import asynccontextmanager
from typing import AsyncIterator, Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..generation.stream import Stream
from . import metrics
from .errors import ApiError, api_error
from .job import HungUp, Job
from .reply import DONE, Reply


def error_response(error: ApiError) -> Response:
    return Response(error.text, error.status, error.headers, "application/json")


@asynccontextmanager
async def _watched(receive: Receive, job: Job) -> AsyncIterator[None]:
    """Within it the job hears of a client that hangs up."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        job.hang_up()

    task = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        task.cancel()


class Answer(Response):
    """streams: of each prompt; they are under way while the answer is."""

    def __init__(
        self, endpoint: str, job: Job, reply: Reply, streams: Sequence[list[Stream]]
    ) -> None:
        self.endpoint, self.job, self.reply, self._streams = endpoint, job, reply, streams
        self._begun = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 200
        try:
            with self.job:
                for of_prompt in self._streams:
                    self.job.add(of_prompt)
                async with _watched(receive, self.job):
                    await self._send(scope, receive, send)
        except HungUp:
            metrics.HUNG_UP.inc()
            status = 499
        except Exception as error:  # before the first byte
            failure = api_error(error)
            status = failure.status
            await error_response(failure)(scope, receive, send)
        self._count(status)

    def _count(self, status: int) -> None:
        usage = self.job.usage
        metrics.REQUESTS.labels(self.endpoint, status).inc()
        metrics.PROMPT.inc(usage.prompt)
        metrics.CACHED.inc(usage.cached)
        metrics.GENERATED.inc(usage.generated)
        if self.job.first_s is not None:
            metrics.FIRST.observe(self.job.first_s)
        metrics.WHOLE.observe(time.monotonic() - self._begun)

    @abstractmethod
    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises what went wrong before it has sent anything."""


class Whole(Answer):
    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        while await self.job.some():
            pass
        body = json.dumps(self.reply.whole(self.job.done(), self.job.usage))
        await Response(body, media_type="application/json")(scope, receive, send)


_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class Streamed(Answer):
    include_usage = False

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        pieces = await self.job.some()
        start = {"type": "http.response.start", "status": 200, "headers": _HEADERS}
        await self.job.sent(send(start))
        try:
            while pieces:
                text = "".join(map(self.reply.chunk, pieces))
                await self.job.sent(_body(send, text, more=True))
                pieces = await self.job.some()
            usage = self.reply.usage_chunk(self.job.usage) if self.include_usage else ""
            await _body(send, usage + DONE, more=False)
        except HungUp:
            raise
        except Exception as error:  # too late for a status
            await _body(send, f"data: {api_error(error).text}\n\n", more=False)


async def _body(send: Send, text: str, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": more})
