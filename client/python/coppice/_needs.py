"""What parts of this package need beside it, each asked for where such a part begins."""

from __future__ import annotations

from importlib.util import find_spec


def need(install: str, *names: str) -> None:
    """Raises ImportError with what is missing and what to install."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise ImportError(f"{', '.join(missing)} cannot be found: pip install {install}")
