"""python -m coppice.serve FOLDER: serves a checkpoint to clients of OpenAI's API."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
import tempfile
from typing import Any, Callable, Sequence

import coppice

from .._errors import sentence
from .._needs import need
from .config import Config
from .ending import UVICORN_S
from .listener import Listener
from .ready import checked

_NEEDS = ("httptools", "jinja2", "numpy", "prometheus_client", "starlette", "tokenizers", "uvicorn")
_ABOUT = """Serves a checkpoint to clients of OpenAI's API. Weights and KV are the daemon's, so
workers cost little. API keys, if any, are those of $COPPICE_API_KEY and of --api-key-file."""


def _whole(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"a number from {least} to {most}, not {text!r}")
        return int(text)

    return number


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e9:
        raise argparse.ArgumentTypeError(f"a number of seconds, not {text!r}")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m coppice.serve",
        usage="python -m coppice.serve [OPTION...] FOLDER",
        description=_ABOUT,
        allow_abbrev=False,
    )

    def add(name: str, metavar: str, what: str, default: Any = None, kind: Any = str) -> None:
        parser.add_argument(name, metavar=metavar, help=what, default=default, type=kind)

    count = _whole(1, 1 << 30)
    add("checkpoint", "FOLDER", "of a checkpoint: config.json, *.safetensors, tokenizer.json")
    add("--name", "NAME", "what clients call the model (default: the folder's)", "")
    add("--socket", "PATH", "the daemon's (default: $COPPICE_SOCKET, or the usual)")
    add("--host", "HOST", "where it listens (default: %(default)s)", "127.0.0.1")
    add("--port", "N", "and on which port (default: %(default)s)", 8000, _whole(0, 65535))
    add("--workers", "N", "processes behind the port (default: %(default)s)", 1, _whole(1, 1024))
    add("--max-positions", "N", "tokens of a sequence at most (default: the model's)", 0, count)
    add("--max-streams", "N", "texts under way in a worker (default: %(default)s)", 256, count)
    add("--max-n", "N", "continuations of a prompt (default: %(default)s)", 16, count)
    add("--max-body-bytes", "N", "of a request (default: %(default)s)", 8 << 20, count)
    add("--max-pin-s", "S", "seconds of a pin (default: %(default)s)", 3600.0, _seconds)
    add("--api-key-file", "FILE", "keys, one a line")
    levels = ("debug", "info", "warning")
    parser.add_argument("--log-level", default="info", choices=levels, help="default: info")
    return parser


def _config(args: argparse.Namespace) -> Config:
    return Config(**{key: getattr(args, key) for key in Config.__dataclass_fields__})


def _logging(level: str) -> dict[str, object]:
    import uvicorn

    config = dict(uvicorn.config.LOGGING_CONFIG)
    own = {"handlers": ["default"], "level": level.upper(), "propagate": False}
    config["loggers"] = {**config["loggers"], "coppice.serve": own}
    return config


def _bound(host: str, port: int) -> socket.socket:
    """Before anything is loaded: the port may be taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # or streams have Nagle
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return bound


def _serve(args: argparse.Namespace, bound: socket.socket) -> None:
    import uvicorn
    from uvicorn.supervisors import Multiprocess

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
        timeout_graceful_shutdown=UVICORN_S,
    )
    host = f"[{args.host}]" if ":" in args.host else args.host
    told = f"http://{host}:{bound.getsockname()[1]}/v1"
    logging.getLogger("coppice.serve").info("listening on %s; Ctrl-C ends it", told)
    if args.workers == 1:
        uvicorn.Server(config).run(sockets=[bound])
    else:
        Multiprocess(config, sockets=[Listener.of(bound)]).run()


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    config = _config(args)
    try:
        need("'coppice[serve]'", *_NEEDS)
        coppice.weight_files(checked(config.checkpoint).path)
        config.api_keys()
        bound = _bound(args.host, args.port)
    except (ImportError, OSError, ValueError) as error:
        print(f"coppice.serve: {sentence(error)}", file=sys.stderr)
        return 1
    config.publish()
    try:
        if args.workers == 1:
            _serve(args, bound)
            return 0
        with tempfile.TemporaryDirectory(prefix="coppice-metrics-") as folder:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
            _serve(args, bound)
    except KeyboardInterrupt:  # raised once more behind a shutdown that is over
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
