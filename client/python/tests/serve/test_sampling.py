"""What the 64 likeliest decide is what all logits would have decided."""

import math
import random
from collections import Counter
from typing import NamedTuple

import pytest

from coppice.generation.sampling import Sampling, choose, choose_of_all, logprob_of

np = pytest.importorskip("numpy")


class Row(NamedTuple):
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    lse: float


def row_of(logits, n_top=64):
    lse = float(np.log(np.sum(np.exp(logits.astype(np.float64)))))
    order = np.argsort(-logits, kind="stable")[:n_top]
    ids = tuple(map(int, order))
    return Row(ids, tuple(float(logits[i]) - lse for i in ids), float(np.float32(lse)))


def draws(seed, n):
    rng = random.Random(seed)
    return [rng.random() for _ in range(n)]


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 1.3])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.5])
@pytest.mark.parametrize("top_k", [0, 1, 20, 64, 100])
@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_likeliest_decide_as_all_logits(temperature, top_p, top_k, spread):
    logits = np.random.default_rng(7).normal(0, spread, 400).astype(np.float32)
    row = row_of(logits)
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k)
    for u in draws(11, 200):
        token = choose(row, sampling, u, len(logits))
        assert token in (None, choose_of_all(logits, sampling, u))


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_a_peaked_row_rarely_takes_all_logits(temperature):
    logits = np.random.default_rng(3).normal(0, 2.5, 5000).astype(np.float32)
    logits[:8] += 9
    row = row_of(logits)
    sampling = Sampling(temperature=temperature, top_p=0.9)
    undecided = [u for u in draws(5, 1000) if choose(row, sampling, u, 5000) is None]
    assert len(undecided) < 10


@pytest.mark.parametrize("top_p, top_k", [(1.0, 0), (0.6, 0), (0.97, 0), (0.9999, 0), (0.9, 3000)])
def test_of_a_large_vocabulary_as_if_all_were_sorted(top_p, top_k):
    logits = np.random.default_rng(8).normal(0, 1, 20000).astype(np.float32)
    sampling = Sampling(top_p=top_p, top_k=top_k)
    order = np.argsort(-logits, kind="stable")[: top_k or None]
    sums = np.cumsum(np.exp(logits[order].astype(np.float64)))
    kept = set(order[: np.searchsorted(sums, top_p * sums[-1]) + 1])
    found = {choose_of_all(logits, sampling, u) for u in [*draws(3, 300), 0.0, 1 - 1e-12]}
    assert found <= kept and order[0] in found
    assert len(found) > 200


def test_top_k_of_the_likeliest_never_takes_all_logits():
    row = row_of(np.zeros(1000, np.float32))
    sampling = Sampling(temperature=5.0, top_k=64, top_p=0.99)
    assert not sampling.needs_all
    assert None not in {choose(row, sampling, u, 1000) for u in draws(1, 500)}


def test_a_vocabulary_of_64_never_takes_all_logits():
    logits = np.random.default_rng(1).normal(0, 1, 64).astype(np.float32)
    row = row_of(logits)
    for u in draws(2, 500):
        assert choose(row, Sampling(), u, 64) == choose_of_all(logits, Sampling(), u)


def test_draws_have_the_models_probabilities():
    logits = np.array([2.0, 1.0, 0.0, -1.0], np.float32)
    row = row_of(logits)
    found = Counter(choose(row, Sampling(temperature=0.5), u, 4) for u in draws(9, 20000))
    weights = np.exp(logits / 0.5)
    for token, weight in enumerate(weights / weights.sum()):
        # four deviations of a count
        most = 4 * math.sqrt(20000 * weight * (1 - weight)) + 1
        assert abs(found[token] - 20000 * weight) < most


def test_greedy_takes_the_likeliest():
    row = row_of(np.array([0.0, 3.0, 3.0], np.float32), 1)
    assert choose(row, Sampling(temperature=0), 0.99, 3) == 1
    assert Sampling(temperature=0).n_top == 1


def test_where_it_is_coldest_it_is_greedy():
    assert Sampling(temperature=5e-324).greedy and not Sampling(temperature=1e-4).greedy


def test_a_seed_gives_the_same_draws_and_each_continuation_its_own():
    sampling = Sampling(seed=5)
    assert sampling.random(0).random() == sampling.random(0).random()
    assert sampling.random(0).random() != sampling.random(1).random()


def test_logprobs_are_the_models():
    row = row_of(np.array([1.0, 0.0], np.float32))
    told = logprob_of(row, 1, 2)
    assert told.token == 1
    assert math.isclose(math.exp(told.logprob), 1 / (1 + math.e), rel_tol=1e-6)
    assert [token for token, _ in told.top] == [0, 1]
    assert logprob_of(row, 7, 0, logit=row.lse).logprob == 0


@pytest.mark.parametrize(
    "field, value",
    [("temperature", -1), ("top_p", 0), ("top_p", 1.5), ("top_k", -1), ("n", 0), ("n", 1000),
     ("max_tokens", 0), ("logprobs", 65), ("stop", ("",)), ("temperature", math.nan),
     ("n", "2"), ("n", 1.5), ("temperature", "1"), ("temperature", None), ("seed", "a"),
     ("stop", "text"), ("stop", (5,))],
)
def test_nonsense_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=f"{field} has to be .*, not "):
        Sampling(**{field: value})
