"""The command `coppice`, also as `python -m coppice`."""

from __future__ import annotations

import argparse
import sys
from typing import Sequence

from . import generate


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="coppice", description="Models that the daemon computes.", allow_abbrev=False
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    generate.add_to(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        status: int = args.run(args)
        return status
    except (OSError, ValueError) as error:
        print(f"coppice: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"coppice: {error}; pip install 'coppice[llm]'", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
