"""python -m coppice.serve FOLDER: serves a checkpoint to clients of OpenAI's API."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from typing import Sequence

import uvicorn
from uvicorn.supervisors import Multiprocess

import coppice

from ..generation.checkpoint import Checkpoint
from .config import Config
from .listener import Listener

_DRAIN_S = 10  # for answers that are under way when the server is to end


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m coppice.serve",
        description="Serves a checkpoint to clients of OpenAI's API. Weights and KV are the "
        "daemon's, so workers cost little. API keys, if any, are those of $COPPICE_API_KEY.",
        allow_abbrev=False,
    )
    parser.add_argument("checkpoint", help="its folder: config.json, *.safetensors, tokenizer.json")
    parser.add_argument("--name", default="", help="of the model (default: the folder's)")
    parser.add_argument("--socket", help="the daemon's (default: $COPPICE_SOCKET, or the usual)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=1, help="processes behind the port")
    parser.add_argument("--max-positions", type=int, default=0, help="tokens of a sequence")
    parser.add_argument("--max-streams", type=int, default=256, help="of a worker (default: 256)")
    parser.add_argument("--max-n", type=int, default=16, help="continuations of a prompt")
    parser.add_argument("--max-body-bytes", type=int, default=8 << 20, help="of a request")
    parser.add_argument("--max-pin-s", type=float, default=3600, help="a header may ask for")
    parser.add_argument("--api-key-file", help="keys, one a line")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning"))
    return parser


def _config(args: argparse.Namespace) -> Config:
    return Config(**{key: getattr(args, key) for key in Config.__dataclass_fields__})


def _logging(level: str) -> dict[str, object]:
    config = dict(uvicorn.config.LOGGING_CONFIG)
    own = {"handlers": ["default"], "level": level.upper(), "propagate": False}
    config["loggers"] = {**config["loggers"], "coppice.serve": own}
    return config


def _serve(args: argparse.Namespace) -> None:
    config = uvicorn.Config(
        "coppice.serve.app:create",
        factory=True,
        host=args.host,
        port=args.port,
        workers=args.workers,
        loop="auto" if args.workers == 1 else "asyncio",  # which takes connections by accept
        log_level=args.log_level,
        log_config=_logging(args.log_level),
        access_log=args.log_level == "debug",
        timeout_graceful_shutdown=_DRAIN_S,
    )
    if args.workers == 1:
        uvicorn.Server(config).run()
    else:
        Multiprocess(config, sockets=[Listener.of(config.bind_socket())]).run()


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    config = _config(args)
    try:
        coppice.weight_files(Checkpoint(config.checkpoint).path)
        config.api_keys()
    except (OSError, ValueError) as error:
        print(f"coppice.serve: {error}", file=sys.stderr)
        return 1
    config.publish()
    if args.workers == 1:
        _serve(args)
        return 0
    with tempfile.TemporaryDirectory(prefix="coppice-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        _serve(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
