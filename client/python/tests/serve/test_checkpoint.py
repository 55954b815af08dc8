"""A checkpoint that is broken: the server says which file that is, and does not start."""

import json

import pytest

import checkpoint
from test_bad_input import refused

DEEP = "[" * 100000
BROKEN = [
    ("tokenizer.json", "{", "tokenizer.json cannot be used"),
    ("tokenizer.json", '{"model": 5}', "tokenizer.json cannot be used"),
    ("tokenizer_config.json", "{", "tokenizer_config.json is no JSON"),
    ("tokenizer_config.json", '{"a": ' + DEEP, "nested too deep"),
    ("tokenizer_config.json", '{"chat_template": "{% if %}"}', "tokenizer_config.json cannot be"),
    ("tokenizer_config.json", '{"chat_template": [5]}', "tokenizer_config.json cannot be used"),
    ("chat_template.jinja", "a\n{% for %}", "chat_template.jinja cannot be used: the chat templ"),
    ("generation_config.json", '{"temperature": "hot"}', "generation_config.json cannot be used"),
    ("generation_config.json", "[]", "generation_config.json has to hold an object"),
    ("config.json", {"max_position_embeddings": []}, "config.json cannot be used"),
]


@pytest.mark.parametrize("options", [(), ("--workers=2",)])
@pytest.mark.parametrize("name, text, sentence", BROKEN)
def test_a_broken_file_is_named(tmp_path, name, text, sentence, options):
    folder = checkpoint.write(tmp_path / "broken")
    file = folder / name
    if isinstance(text, dict):
        text = json.dumps({**json.loads(file.read_text()), **text})
    file.unlink(missing_ok=True)
    file.write_text(text)
    status, words = refused(folder, "--port=0", *options)
    assert status == 1 and sentence in words and str(folder) in words
    assert words.startswith("coppice.serve: ") and words.count("\n") == 1
