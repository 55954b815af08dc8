"""Failures as clients of OpenAI's API expect them."""

from __future__ import annotations

import json
from typing import Any

import coppice

from ..generation.request import TooLong

RETRY_AFTER_S = 1


class ApiError(Exception):
    """status, and a sentence that says what to do."""

    def __init__(
        self, status: int, message: str, *, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param

    @property
    def body(self) -> dict[str, Any]:
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        usual = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = kinds.get(self.status, usual)
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}

    @property
    def text(self) -> str:
        return json.dumps(self.body)

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(RETRY_AFTER_S)} if self.status in (429, 503) else {}


def busy(message: str) -> ApiError:
    """Too many streams (Worker.add), or no room in the daemon (api_error)."""
    return ApiError(429, message, code="rate_limit_exceeded")


def unavailable(message: str) -> ApiError:
    return ApiError(503, message, code="unavailable")


def api_error(error: Exception) -> ApiError:
    """Of whatever went wrong with a request."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, TooLong):
        return ApiError(400, str(error), code="context_length_exceeded")
    if isinstance(error, coppice.TooLong):
        return ApiError(400, str(error.strerror), code="context_length_exceeded")
    if isinstance(error, (coppice.NoRoom, coppice.LimitReached)):
        return busy(f"{error.strerror}; come back later")
    if isinstance(error, coppice.DaemonGone):
        return unavailable("the daemon is gone; come back later")
    if isinstance(error, (coppice.NoDaemon, coppice.Draining)):
        return unavailable(f"{error.strerror}; come back later")
    if isinstance(error, coppice.Invalid):
        return ApiError(400, str(error.strerror))
    if isinstance(error, coppice.Error):
        return ApiError(500, str(error.strerror))
    if isinstance(error, ValueError):
        return ApiError(400, str(error))
    return ApiError(500, f"{type(error).__name__}: {error}")
