"""The small model that reads English, whose tokens are bytes: with a tokenizer, and without."""

import json
from pathlib import Path

MODEL = Path(__file__).resolve().parents[4] / "tests" / "model"
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def prompt():
    return (MODEL / "fixture" / "trained" / "prompt.bin").read_bytes().decode()


def greedy():
    """What follows the prompt."""
    return (MODEL / "fixture" / "trained" / "greedy.bin").read_bytes().decode()


def link(folder, names):
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).symlink_to(MODEL / name)
    return folder


def without_tokenizer(folder):
    return link(folder, FILES[:2])


def write(folder, **generation):
    link(folder, FILES)
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder
