"""What lies in the folder of a checkpoint, in Hugging Face's layout.

    config.json                     the model
    model.safetensors               the weights, or model-*.safetensors with an index
    generation_config.json          may be: how it likes to be sampled, and what ends a text
    tokenizer.json, tokenizer_config.json, chat_template.jinja
                                    may be: without them prompts are tokens, and so is what comes
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")


def _read(path: Path) -> dict[str, Any]:
    """Of a file that need not be there."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} has to hold an object, and holds a {type(found).__name__}")
    return found


def _ids(value: Any) -> list[int]:
    if isinstance(value, int):
        return [value]
    return [i for i in value if isinstance(i, int)] if isinstance(value, list) else []


def _token_text(value: Any) -> str | None:
    """Written as a text, or as an object that has it."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise FileNotFoundError(f"{path}: {error}") from error


class Checkpoint:
    """Read when it is made, but for the weights."""

    def __init__(self, path: str | Path) -> None:
        self.path = _expanded(Path(path))
        if not self.path.is_dir():
            raise FileNotFoundError(f"{self.path} is no folder; give a checkpoint's, unpacked")
        self.config_path = self.path / "config.json"
        if not self.config_path.is_file():
            raise FileNotFoundError(f"{self.path} has no config.json; it is no checkpoint")
        self.config = _read(self.config_path)
        self._generation = _read(self.path / "generation_config.json")
        self._tokenizer = _read(self.path / "tokenizer_config.json")
        if not self._tokenizer:
            self._tokenizer = _read(self.path / "special_tokens_map.json")

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def max_positions(self) -> int:
        return int(self.config.get("max_position_embeddings", 0))

    def eos_ids(self) -> frozenset[int]:
        """Tokens that end a text."""
        found = _ids(self._generation.get("eos_token_id")) or _ids(self.config.get("eos_token_id"))
        return frozenset(found)

    def defaults(self) -> dict[str, Any]:
        """Of Sampling, as the model's makers would have them."""
        known = {key: self._generation.get(key) for key in ("temperature", "top_p", "top_k")}
        return {key: value for key, value in known.items() if value is not None}

    def special(self) -> dict[str, str]:
        texts = {name: _token_text(self._tokenizer.get(name)) for name in _SPECIAL}
        return {name: text for name, text in texts.items() if text is not None}

    def tokenizer_path(self) -> Path | None:
        path = self.path / "tokenizer.json"
        return path if path.is_file() else None

    def chat_template(self) -> str | None:
        file = self.path / "chat_template.jinja"
        if file.is_file():
            return file.read_text(encoding="utf-8")
        found = self._tokenizer.get("chat_template")
        if isinstance(found, list):  # several, by name
            named = {one.get("name"): one.get("template") for one in found}
            found = named.get("default")
        return found if isinstance(found, str) else None
