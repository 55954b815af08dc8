"""What the server is told when it starts; workers read it from their environment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

_VARIABLE = "COPPICE_SERVE"


def _keys(text: bytes) -> frozenset[bytes]:
    return frozenset(line.strip() for line in text.splitlines() if line.strip())


@dataclass(frozen=True)
class Config:
    checkpoint: str
    name: str = ""  # by which clients ask for it; "": the folder's
    socket: str | None = None
    max_positions: int = 0  # 0: as many as the model was made for
    max_streams: int = 256  # of a worker, those that wait included
    max_n: int = 16
    max_body_bytes: int = 8 << 20
    max_pin_s: float = 3600.0
    api_key_file: str | None = None

    def api_keys(self) -> frozenset[bytes]:
        """Of $COPPICE_API_KEY and of the file, one a line; none: everybody may ask."""
        keys = _keys(os.fsencode(os.environ.get("COPPICE_API_KEY", "")))
        if self.api_key_file is None:
            return keys
        of_file = _keys(Path(self.api_key_file).read_bytes())
        if not of_file:
            what_to_do = "write one a line, or leave --api-key-file out"
            raise ValueError(f"{self.api_key_file} has no API key: {what_to_do}")
        return keys | of_file

    def publish(self) -> None:
        os.environ[_VARIABLE] = json.dumps(asdict(self))

    @staticmethod
    def published() -> Config:
        return Config(**json.loads(os.environ[_VARIABLE]))
