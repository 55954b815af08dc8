"""Text from tokens: nothing is given that a stop text or a character takes back."""

import random

import pytest

from coppice.generation.text import Pieces, Stops


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


def test_bytes_that_are_no_character_come_at_the_end():
    tokenizers = pytest.importorskip("tokenizers")
    from coppice.generation.tokenizer import StreamDecoder

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
