"""A checkpoint with a tokenizer: the small model that reads English, whose tokens are bytes."""

import json
from pathlib import Path

MODEL = Path(__file__).resolve().parents[4] / "tests" / "model"
TEMPLATE = (
    "{% for message in messages %}{{ message.content }}{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}"
)


def prompt():
    return (MODEL / "fixture" / "trained" / "prompt.bin").read_bytes().decode()


def greedy():
    """What follows the prompt."""
    return (MODEL / "fixture" / "trained" / "greedy.bin").read_bytes().decode()


def _letters():
    """The letter of each byte, as byte-level tokenizers write it."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(rest)) for byte in range(256)]


def _tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocab = {letter: byte for byte, letter in enumerate(_letters())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def write(folder, **generation):
    folder.mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        (folder / name).symlink_to(MODEL / name)
    _tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder
