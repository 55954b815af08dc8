#!/usr/bin/env python3
"""Writes tokenizer.json and tokenizer_config.json: a byte is a token, a chat its messages.

Needs the package tokenizers. The model was trained on no chat: the template says one message behind
the other, and the tools, if there are any.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

HERE = Path(__file__).resolve().parent
TEMPLATE = (
    "{% for message in messages %}{{ message.content }}{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}"
)


def letters():
    """The letter of each byte, as byte-level tokenizers write it."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(rest)) for byte in range(256)]


def main():
    vocab = {letter: byte for byte, letter in enumerate(letters())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(HERE / "tokenizer.json"), pretty=False)
    config = json.dumps({"chat_template": TEMPLATE}, indent=1)
    (HERE / "tokenizer_config.json").write_text(config + "\n")


if __name__ == "__main__":
    main()
