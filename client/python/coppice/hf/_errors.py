"""What the exceptions of this folder are made of."""

from __future__ import annotations

import errno

from .._errors import Closed, Invalid, Unsupported


def unsupported(sentence: str) -> Unsupported:
    return Unsupported(errno.EOPNOTSUPP, sentence)


def invalid(sentence: str) -> Invalid:
    return Invalid(errno.EINVAL, sentence)


def closed(what: str) -> Closed:
    return Closed(errno.EBADF, f"the {what} is closed")
