"""coppice generate: continues a text on the command line."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from .llm import LLM, Output

_SAMPLING: tuple[tuple[str, type, str], ...] = (
    ("max-tokens", int, "tokens that come at most (default: 256)"),
    ("temperature", float, "0: always the likeliest (default: the model's, or 1)"),
    ("top-p", float, "draw from the likeliest tokens that together have this probability"),
    ("top-k", int, "draw from so many likeliest tokens"),
    ("seed", int, "the same one gives the same text"),
    ("n", int, "continuations of each prompt (default: 1)"),
    ("logprobs", int, "with --json: of each token, and of so many likeliest"),
)


def add_to(commands: Any) -> None:
    about = "Continues a text. Weights and KV are the daemon's."
    usage = "coppice generate [OPTION...] FOLDER [PROMPT...]"
    parser = commands.add_parser(
        "generate", help="continue a text", description=about, usage=usage, allow_abbrev=False
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "checkpoint",
        metavar="FOLDER",
        help="of a checkpoint: config.json, *.safetensors, tokenizer.json",
    )
    parser.add_argument(
        "prompt", metavar="PROMPT", nargs="*", help="one or more; none, or -: read from stdin"
    )
    parser.add_argument(
        "--socket", metavar="PATH", help="the daemon's (default: $COPPICE_SOCKET, or the usual)"
    )
    parser.add_argument(
        "--max-positions",
        metavar="N",
        type=int,
        default=0,
        help="tokens of a sequence at most (default: as many as the model was made for)",
    )
    parser.add_argument("--chat", action="store_true", help="prompts are messages of a user")
    parser.add_argument(
        "--system", metavar="TEXT", help="with --chat: what the model is told before"
    )
    parser.add_argument("--ids", action="store_true", help="prompts are tokens, by commas")
    parser.add_argument(
        "--stop", metavar="TEXT", action="append", help="it ends what comes; may be repeated"
    )
    parser.add_argument("--ignore-eos", action="store_true", help="go on to --max-tokens")
    parser.add_argument("--json", action="store_true", help="an object a prompt, a line each")
    parser.add_argument("--no-progress", action="store_true", help="no bars on a terminal")
    for name, kind, what in _SAMPLING:
        metavar = "N" if kind is int else "X"
        parser.add_argument(f"--{name}", type=kind, metavar=metavar, help=what)


def run(args: argparse.Namespace) -> int:
    if args.system is not None and not args.chat:
        raise ValueError("--system goes with --chat: give both, or neither")
    texts = [_text(text) for text in args.prompt or ["-"]]
    options = {name.replace("-", "_"): getattr(args, name.replace("-", "_"))
               for name, _, _ in _SAMPLING}
    options |= {"stop": args.stop, "ignore_eos": args.ignore_eos}
    if options["max_tokens"] is None:
        options["max_tokens"] = 256
    progress = False if args.no_progress else None
    with LLM(
        args.checkpoint, socket=args.socket, max_positions=args.max_positions, progress=progress
    ) as llm:
        prompts = [_prompt(llm, args, text) for text in texts]
        if len(prompts) == 1 and not args.json and (options["n"] or 1) == 1:
            _print_as_it_comes(llm, prompts[0], options)
        else:
            _print_all(llm, llm.generate(prompts, **options), args.json)
    return 0


def _text(prompt: str) -> str:
    if prompt != "-":
        return prompt
    if sys.stdin is None:
        raise ValueError("there is no prompt: give one behind FOLDER, or a text on stdin")
    return sys.stdin.read()


def _prompt(llm: LLM, args: argparse.Namespace, text: str) -> str | list[int]:
    if args.ids:
        return [_token(word) for word in text.replace(",", " ").split()]
    if not llm.tokenizer.has_text:
        raise ValueError(f"{args.checkpoint} has no tokenizer.json: give its tokens, with --ids")
    if not args.chat:
        return text
    system = [{"role": "system", "content": args.system}] if args.system else []
    return llm.tokenizer.chat([*system, {"role": "user", "content": text}], None)


def _token(word: str) -> int:
    try:
        return int(word)
    except ValueError as error:
        raise ValueError(f"--ids takes tokens such as 73,110, not {word!r}") from error


def _numbers(tokens: list[int]) -> str:
    return " ".join(map(str, tokens))


def _print_as_it_comes(llm: LLM, prompt: str | list[int], options: dict[str, Any]) -> None:
    for piece in llm.stream(prompt, **options):
        news = piece.text if llm.tokenizer.has_text else _numbers(piece.tokens) + " "
        print(news, end="", flush=True)
    print()


def _print_all(llm: LLM, outputs: list[Output], as_json: bool) -> None:
    for output in outputs:
        if as_json:
            print(json.dumps(asdict(output)))
            continue
        for continuation in output.continuations:
            has_text = llm.tokenizer.has_text
            print(continuation.text if has_text else _numbers(continuation.tokens))


