"""The command `coppice`, also as `python -m coppice`."""

from __future__ import annotations

import argparse
import sys
from typing import Sequence

from . import generate
from ._errors import sentence

_ABOUT = "Continues texts by models whose weights and KV the daemon has."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="coppice", description=_ABOUT, allow_abbrev=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    generate.add_to(commands)
    return parser


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """Words behind an option are prompts too, as argparse takes those of one place alone; and
    whatever is behind --."""
    parser, words = _parser(), list(sys.argv[1:] if argv is None else argv)
    end = words.index("--") if "--" in words else len(words)
    args, more = parser.parse_known_args(words[:end])
    unknown = [word for word in more if word.startswith("-") and word != "-"]
    if unknown:
        parser.error(f"{unknown[0]} is no option: see coppice generate --help")
    args.prompt += more + words[end + 1 :]
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = _parsed(argv)
    try:
        status: int = args.run(args)
        return status
    except (ImportError, OSError, ValueError) as error:
        print(f"coppice: {sentence(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
