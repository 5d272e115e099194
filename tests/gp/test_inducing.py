"""Laws of the places where inducing inputs start."""

import os
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from natgrad import gp
from natgrad.errors import InputError, InputWarning
from natgrad.gp import inducing
from natgrad.gp.kernels import RBF, Linear, OnInputs, Separate


WAYS = {
    "k_means": inducing.k_means,
    "random": inducing.random,
    "greedy": lambda x, num, seed=0: inducing.greedy(x, num, RBF(2.0), seed),
}


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


def rows(num: int = 90, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(num, 2))
    return np.concatenate([x, np.full((num, 1), 7.0)], 1)  # a column that is constant


def distinct(x: np.ndarray) -> int:
    return len(np.unique(x, axis=0))


def is_among(some: np.ndarray, x: np.ndarray) -> bool:
    return set(map(tuple, some)) <= set(map(tuple, x))


def inertia(x: np.ndarray, z: np.ndarray) -> float:
    return float((cdist(x, z).min(1) ** 2).sum())


def test_the_inputs_are_distinct_and_as_many_as_asked_for(way):
    x = np.concatenate([rows(), rows(), rows()[:1].repeat(200, 0)])
    for num in (1, 20):
        z = way(x, num)
        assert z.shape == (num, 3)
        assert z.dtype == x.dtype
        assert distinct(z) == num


def test_a_seed_gives_the_same_inputs_and_another_seed_others(way):
    x = rows()
    assert (way(x, 20, seed=4) == way(x, 20, seed=4)).all()
    one, other = (set(map(tuple, way(x, 20, seed=s))) for s in (4, 5))
    assert one != other


def test_global_randomness_is_neither_used_nor_moved(way):
    np.random.seed(0)
    one = way(rows(), 20)
    there = np.random.uniform()
    other = way(rows(), 20)
    np.random.seed(0)
    assert np.random.uniform() == there
    assert (one == other).all()


def test_too_few_distinct_rows_are_all_used_with_a_word(way):
    x = np.tile(rows(37), (3, 1))
    with pytest.warns(InputWarning, match="asked for 100 inducing inputs, but") as said:
        z = way(x, 100)
    assert len(said) == 1
    assert distinct(z) == len(z) == 37
    assert is_among(z, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert distinct(way(x, 37)) == 37


def test_a_model_to_begin_with_takes_what_distinct_rows_there_are():
    few = np.repeat(np.arange(7.0), 50)[:, None]
    assert gp.initialize(few, gp.likelihoods.Gaussian()).inducing.shape == (7, 1)
    late = np.maximum(np.arange(200_000.0), 60_000)[:, None]  # sorted, its head alike
    assert gp.initialize(late, gp.likelihoods.Gaussian()).inducing.shape == (200, 1)


def test_zeros_of_both_signs_are_one_value(way):
    x = np.asarray([[0.0], [-0.0], [1.0]])
    with pytest.warns(InputWarning, match="2"):
        assert len(way(x, 3)) == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_with_their_place(way, bad):
    x = rows()
    x[5, 1] = x[7, 0] = bad
    word = f"2 values that are not finite, the first of them {bad} in row 5, column 1"
    with pytest.raises(InputError, match=word):
        way(x, 10)


def test_what_is_no_table_and_no_number_is_refused(way):
    for x in (np.ones(3), np.ones((0, 2)), np.ones((2, 0))):
        with pytest.raises(InputError, match="rows by columns"):
            way(x, 2)
    with pytest.raises(InputError, match="at least 1"):
        way(rows(), 0)


def test_integers_become_floats_and_floats_keep_their_type(way):
    x = np.random.default_rng(0).integers(0, 50, size=(40, 2))
    assert way(x, 5).dtype == np.float64
    if way is not WAYS["greedy"]:  # its kernel is in double precision here
        assert way(x.astype(np.float32), 5).dtype == np.float32


def test_large_tables_are_sampled(monkeypatch):
    monkeypatch.setattr(inducing, "SAMPLE", 50)
    x = np.concatenate([np.zeros((500, 1)), np.arange(60.0)[:, None]])
    # The sample has too few distinct rows, the table has enough.
    z = inducing.k_means(x, 45)
    assert distinct(z) == 45
    with pytest.warns(InputWarning, match="x has 60 distinct rows"):
        assert len(inducing.k_means(x, 70)) == 60


def test_k_means_stands_where_rows_are_however_far_from_the_origin():
    rng = np.random.default_rng(0)
    places = 10 * np.arange(12.0)[:, None] * np.ones((1, 3)) + 1e7
    x = np.concatenate([places + 0.01 * rng.normal(size=(12, 3)) for _ in range(30)])
    z = inducing.k_means(x, 12)
    assert cdist(z, places).min(0).max() < 0.05


def test_clusters_that_run_empty_say_nothing_and_are_filled(monkeypatch):
    # Centres that start in one place leave all but one of them empty.
    x = rows()
    monkeypatch.setattr(inducing, "_spread", lambda rows, num, rng: rows[[0] * num])
    for iterations in (50, 1):
        monkeypatch.setattr(inducing, "ITERATIONS", iterations)
        z = inducing.k_means(x, 8)
        assert distinct(z) == len(z) == 8


def test_greedy_is_the_pivoted_cholesky_decomposition():
    x, kernel = rows(60), 1.5 * RBF(1.2) + Linear(0.3)
    z = inducing.greedy(x, 15, kernel, seed=1)
    assert is_among(z, x)
    gram = np.asarray(kernel(jnp.asarray(x), jnp.asarray(x)))
    places = [int((x == row).all(1).argmax()) for row in z]
    for num in range(15):
        left, some = np.diag(gram), places[:num]
        if num:
            root = np.linalg.cholesky(gram[np.ix_(some, some)])
            left = left - (np.linalg.solve(root, gram[some]) ** 2).sum(0)
        assert left[places[num]] >= left.max() * (1 - 1e-9)


def test_greedy_stops_where_nothing_is_left_to_explain():
    x = np.random.default_rng(0).normal(size=(50, 4))
    with pytest.warns(InputWarning, match="but 4 rows of x explain the rest"):
        assert inducing.greedy(x, 10, Linear(1.0)).shape == (4, 4)
    x[:, 1] = x[:, 1].round()
    kernel = OnInputs(RBF(0.1), (1,))
    with pytest.warns(InputWarning):
        assert len(inducing.greedy(x, 50, kernel)) == distinct(x[:, 1:2])


def test_greedy_takes_many_latents_and_narrow_floats():
    x = rows(40)
    z = inducing.greedy(x, 6, Separate([RBF(1.0), RBF(1.0)]))
    assert (z == inducing.greedy(x, 6, RBF(1.0))).all()
    kernel = jax.tree.map(lambda leaf: leaf.astype(np.float32), RBF(3.0))
    z = inducing.greedy(x.astype(np.float32), 6, kernel)
    assert z.dtype == np.float32
    twice = np.tile(x[:5], (2, 1)).astype(np.float32)
    with pytest.warns(InputWarning):
        assert distinct(inducing.greedy(twice, 10, kernel)) == 5


SETS = """
    boston concrete energy wine_red wine_white power kin8nm naval protein bike elevators
    year_head banana pima
"""


def check_against_sklearn(x: np.ndarray, num: int, seeds: int, rtol: float) -> None:
    """Both find local minima that differ by percents, and so the means are compared."""
    ours = [inertia(x, inducing.k_means(x, num, seed)) for seed in range(seeds)]
    peers = (
        KMeans(num, n_init=1, max_iter=50, tol=0, random_state=seed).fit(x)
        for seed in range(seeds)
    )
    assert np.mean(ours) <= (1 + rtol) * np.mean([peer.inertia_ for peer in peers])


def test_k_means_is_as_good_as_that_of_scikit_learn():
    x = np.random.default_rng(0).standard_t(4, size=(600, 3))
    check_against_sklearn(x, 20, seeds=6, rtol=0.02)


@pytest.mark.nightly
@pytest.mark.skipif("NATGRAD_DATA" not in os.environ, reason="NATGRAD_DATA is not set")
@pytest.mark.parametrize("name", SETS.split())
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_k_means_is_as_good_as_that_of_scikit_learn_on_real_tables(name):
    import pyarrow.parquet as parquet

    path = Path(os.environ["NATGRAD_DATA"], f"{name}.parquet")
    table = parquet.read_table(path)
    columns = [c for c in table.column_names if c != "target"]
    x = np.stack([table[c].to_numpy().astype(float) for c in columns], 1)
    x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)
    x = x[np.random.default_rng(0).permutation(len(x))[:2000]]
    check_against_sklearn(x, 50, seeds=8, rtol=0.02)
