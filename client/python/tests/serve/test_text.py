"""Text from tokens: nothing is given that a stop text or a character takes back."""

import random

import pytest

from coppice.generation.text import Pieces, Stops
from coppice.generation.tokenizer import Anchored, StreamDecoder


def run(stops, pieces):
    finder, given = Stops(stops), []
    for piece in pieces:
        text, over = finder.feed(piece)
        given.append(text)
        if over:
            return given, True
    return [*given, finder.rest()], False


def test_without_stops_all_is_given_at_once():
    assert run([], ["a", "b"]) == (["a", "b", ""], False)


def test_a_stop_over_token_borders():
    assert run(["STOP"], ["abcS", "TO", "Pxyz"]) == (["abc", "", ""], True)


def test_what_began_as_a_stop_and_is_none():
    assert run(["STOP"], ["aST", "ART", "S"]) == (["a", "START", "", "S"], False)


def test_the_first_of_several_stops():
    assert run(["cd", "b"], ["abcd"]) == (["a"], True)


def test_any_cut_gives_the_same_text():
    rng = random.Random(4)
    for _ in range(500):
        text = "".join(rng.choice("ab") for _ in range(20))
        stops = ["".join(rng.choice("ab") for _ in range(rng.randint(1, 4))) for _ in range(2)]
        ends = [at for at in map(text.find, stops) if at >= 0]
        cuts = sorted(rng.sample(range(1, 20), 5))
        pieces = [text[i:j] for i, j in zip([0, *cuts], [*cuts, 20])]
        given, over = run(stops, pieces)
        assert over == bool(ends)
        assert "".join(given) == text[: min(ends, default=20)]


def sentencepiece():
    """A tokenizer as SentencePiece makes them: spaces are letters, the first of a text is none."""
    tokenizers = pytest.importorskip("tokenizers")
    decoders, pre = tokenizers.decoders, tokenizers.pre_tokenizers
    letters = ["<unk>", "\u2581", "a", "b", "\u2581a", "\u2581b"]
    vocab = {letter: i for i, letter in enumerate(letters)}
    vocab |= {f"<0x{byte:02X}>": len(letters) + byte for byte in range(256)}
    merges = [("\u2581", "a"), ("\u2581", "b")]
    model = tokenizers.models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def test_a_continuation_keeps_its_first_space():
    tokenizer = sentencepiece()
    ids = tokenizer.encode("a b\u00e9 a").ids
    assert tokenizer.decode(ids[1:2]) == "b"  # as if it began a text
    decoder = StreamDecoder(tokenizer)
    assert [decoder.feed(token) for token in ids[1:]] == [" b", "", "\u00e9", " a"]
    assert decoder.feed(ids[2]) == "" and decoder.rest() == "\ufffd"


def test_a_token_keeps_its_space():
    tokenizer = sentencepiece()
    anchored = Anchored(tokenizer)
    ids = tokenizer.encode("a b").ids
    assert [anchored.decode([token]) for token in (*ids, 2)] == [" a", " b", "a"]


def test_what_reads_otherwise_by_a_later_token():
    decoder = StreamDecoder(sentencepiece())

    class Refuses:
        def step(self, tokenizer, token):
            raise Exception("Invalid prefix encountered")

    assert decoder.feed(4) == " a"
    decoder._stream = Refuses()
    assert [decoder.feed(token) for token in (5, 2)] == [" b", "a"]


def test_bytes_that_are_no_character_come_at_the_end():
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate(alphabet)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    ids = tokenizer.encode("a\u00e9").ids
    pieces = Pieces(StreamDecoder(tokenizer), [])
    assert [pieces.feed(token)[0] for token in ids] == ["a", "", "\u00e9"]
    assert pieces.feed(ids[1]) == ("", False)
    assert pieces.rest() == "\ufffd"
