"""Models that keep learning: what they know of rows that are gone."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad import _container as container, gp
from natgrad.data import Batch
from natgrad.errors import (
    CorruptFileError,
    IncompatibleFileError,
    InputError,
    InputWarning,
)
from natgrad.gp import _files as files, likelihoods
from natgrad.gp._following import expected, kept_rows, old_sites, residual, transfer
from natgrad.gp._online import _faded
from natgrad.gp._sites import project, sites_at, to_sites, together
from natgrad.gp._sparse import marginals
from natgrad.gp.inducing import pivoted
from natgrad.gp.kernels import RBF, Matern52
from natgrad.gp.means import Constant
from tests.variants import variants


RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (240, 1))
F = np.sin(2 * X[:, 0])
Z = np.linspace(-2, 2, 16)[:, None]
TARGETS = {
    "Gaussian": (likelihoods.Gaussian(0.04), F + 0.2 * RNG.standard_normal(240)),
    "Bernoulli": (likelihoods.Bernoulli(), (RNG.normal(size=240) < F).astype(float)),
    "Poisson": (likelihoods.Poisson(), RNG.poisson(np.exp(F)).astype(float)),
}


def model_of(likelihood, z=Z, kernel=None, **options):
    return gp.SparseGP(kernel or Matern52(0.7), likelihood, z, **options)


def old_of(model):
    return old_sites(model, to_sites(model))


def seen(model, old):
    """Old sites as a model's own, what is added to their expectation, and the loss."""
    return transfer(model, old, model.project(old.x))


@pytest.mark.parametrize("is_whitened", variants([True, False], [False]))
@pytest.mark.parametrize("name", variants(TARGETS, ["Poisson"]))
def test_sites_that_stay_are_all_that_q_knows(name, is_whitened):
    likelihood, y = TARGETS[name]
    model = gp.update(model_of(likelihood, is_whitened=is_whitened), (X, y))
    view, _, lost = seen(model, old_of(model))
    theta = model.posterior.natural()
    own = -2 * theta.second - view.precision
    prior = model_of(likelihood, is_whitened=is_whitened).posterior.natural()
    np.testing.assert_allclose(own, -2 * prior.second, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(view.linear, theta.first, rtol=1e-6, atol=1e-7)
    assert abs(lost) < 1e-6


@pytest.mark.nightly
def test_moved_sites_are_the_expectation_under_q_by_sampling():
    likelihood, y = TARGETS["Gaussian"]
    old = old_of(gp.update(model_of(likelihood), (X, y)))
    new = model_of(likelihood, Z[::3] + 0.05, RBF(0.9, 1.5), mean=Constant(0.3))
    new = gp.update(new, (X[:40], y[:40]))
    # f at the old inducing inputs under q, exactly: q(u) and p(f | u).
    rows = jax.tree.map(np.asarray, new.project(old.x))
    cov = np.asarray(new.posterior.covariance())
    mean = np.asarray(new.posterior.location()) @ rows.features + rows.mean
    own = np.asarray(new.kernel(old.x, old.x))
    rest = own - rows.features.T @ rows.features
    spread = rest + rows.features.T @ cov @ rows.features
    root = np.linalg.cholesky(spread + 1e-10 * np.eye(len(spread)))
    draws = mean + RNG.standard_normal((200_000, len(mean))) @ root.T
    linear, precision = map(np.asarray, old.sites)
    v = (draws - np.asarray(old.mean)) @ np.asarray(old.inverse).T
    log_t = v @ linear - (v @ precision * v).sum(1) / 2
    sites, constant, _ = seen(new, old)
    found = expected(new.posterior, sites) + constant
    assert abs(found - log_t.mean()) < 5 * log_t.std() / np.sqrt(len(v))


@pytest.mark.parametrize("is_whitened", variants([True, False], [False]))
def test_what_kept_rows_stray_is_the_difference_of_two_gaussians(is_whitened):
    likelihood, y = TARGETS["Gaussian"]
    before = model_of(likelihood, is_whitened=is_whitened, mean=Constant(0.3))
    old = old_of(gp.update(before, (X, y)))
    kept = kept_rows(before, old, jnp.asarray(X[:5]), jnp.ones(5))
    z = Z[::3] + 0.05
    options = {"mean": Constant(-0.4), "is_whitened": is_whitened}
    after = gp.update(model_of(likelihood, z, RBF(0.9, 1.5), **options), (X, y))

    def found(model):
        there, at_old = model.project(kept.x), model.project(old.x)
        change = residual(model, old, kept, there, at_old)
        return map(np.asarray, marginals(model.posterior, change))

    mean, var = found(before)
    assert abs(mean).max() < 1e-6
    np.testing.assert_allclose(var, before.project(kept.x).rest, atol=1e-7)
    mean, cov = after.marginals(kept.x)[0], joint(after, kept.x, old.x)
    turn = np.hstack([np.eye(5), -kept.weights.T])
    at_old = after.marginals(old.x)[0]
    gap = mean - kept.mean - kept.weights.T @ (at_old - old.mean)
    for one, other in zip(
        found(after), (gap, np.diag(turn @ cov @ turn.T)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


def joint(model, *inputs):
    """The covariance of f at some inputs under q."""
    x = jnp.concatenate(inputs)
    z, cross = model.inducing, model.kernel(model.inducing, x)
    weights = np.linalg.solve(model.kernel(z, z), cross)
    cov = model.posterior.covariance()
    if model.is_whitened:
        root = np.linalg.cholesky(model.kernel(z, z))
        cov = root @ cov @ root.T
    return model.kernel(x, x) - cross.T @ weights + weights.T @ cov @ weights


def test_growing_inducing_inputs_lose_nothing():
    likelihood, y = TARGETS["Gaussian"]
    old = old_of(gp.update(model_of(likelihood, Z[::2]), (X, y)))
    lost = lambda z: seen(model_of(likelihood, z), old)[2]
    assert abs(lost(Z[::2])) < 1e-6 and abs(lost(Z)) < 1e-5
    assert lost(Z[::4]) > 10


@pytest.mark.parametrize("name", variants(TARGETS, ["Poisson"]))
def test_rows_that_leave_and_rows_that_stay_are_all_rows(name):
    likelihood, y = TARGETS[name]
    trained = gp.update(model_of(likelihood), (X, y))
    online = gp.online(trained, (X, y), memory=100)
    assert len(online.rows.x) == 100 and online.num_data == 240
    there = trained.project(jnp.asarray(online.rows.x))
    sites = project(there.over_q, sites_at(trained, there, online.rows))
    both, whole = together(online.sites, sites), to_sites(trained)
    tolerance = {"rtol": 1e-5, "atol": 1e-5 * float(abs(whole.precision).max())}
    np.testing.assert_allclose(both.precision, whole.precision, **tolerance)


@pytest.mark.nightly
def test_rows_that_are_kept_are_a_uniform_sample():
    likelihood, y = TARGETS["Gaussian"]
    trained = gp.update(model_of(likelihood), (X, y))
    counts = np.zeros(240)
    for seed in range(40):
        online = gp.online(trained, (X[:80], y[:80]), memory=60, seed=seed)
        for part in (slice(80, 160), slice(160, 240)):
            online = gp._online._after(
                online, Batch(X[part], y[part], np.ones(80)), is_known=True
            )
        counts[np.isin(X[:, 0], online.rows.x[:, 0])] += 1
    assert counts.sum() == 40 * 60
    parts = counts.reshape(3, 80).sum(1)
    assert (abs(parts - 800) < 4 * np.sqrt(800)).all()


@pytest.fixture(scope="module")
def sorted_rows():
    order = np.argsort(X[:, 0])
    y = TARGETS["Gaussian"][1]
    return X[order], y[order]


def learned(rows, likelihood, pieces, **options):
    x, y = rows
    parts = np.array_split(np.arange(len(x)), pieces)
    first = gp.initialize(x[parts[0]], likelihood, 8)
    first = gp.fit(first, (x[parts[0]], y[parts[0]]), progress=False, steps=50).params
    online = gp.online(first, (x[parts[0]], y[parts[0]]), **options)
    for part in parts[1:]:
        online = online.update((x[part], y[part]))
    return online


@pytest.mark.nightly
def test_sorted_rows_in_pieces_are_learned_as_all_at_once(sorted_rows):
    online = learned(sorted_rows, likelihoods.Gaussian(0.1), 4, memory=64)
    x = np.linspace(-2, 2, 101)[:, None]
    y = np.sin(2 * x[:, 0])
    score = lambda model: gp.predictor(model).log_density(x, y).mean()
    start = gp.initialize(X, likelihoods.Gaussian(0.1), 16)
    whole = gp.fit(start, sorted_rows, progress=False).params
    assert score(online.model) > score(whole) - 0.05
    assert online.lost < 0.02 and online.num_data == 240
    assert len(online.model.inducing) > 8
    later = tuple(column[60:] for column in sorted_rows)
    with pytest.warns(InputWarning, match="see little"):
        frozen = gp.update(whole_first(sorted_rows), later)
    assert score(frozen) < score(whole) - 1


@pytest.mark.nightly
def test_many_pieces_do_not_shrink_the_kernel():
    rng = np.random.default_rng(0)

    def piece(place, rows=100):
        x = rng.uniform(-1, 1, (rows, 1)) + place / 5
        return x, np.sin(2 * x[:, 0]) + 0.3 * rng.standard_normal(rows)

    rows = piece(0)
    first = gp.initialize(rows[0], likelihoods.Gaussian(0.1), 10)
    first = gp.fit(first, rows, progress=False, steps=50).params
    online = gp.online(first, rows, num_inducing=10, memory=100)
    for place in range(1, 31):
        online = online.update(piece(place))
    tests = zip(*(piece(place, 20) for place in range(31)), strict=True)
    x, y = map(np.concatenate, tests)
    # The density of the function itself is −0.22; inducing inputs are few.
    assert gp.predictor(online.model).log_density(x, y).mean() > -0.35
    assert online.model.kernel.lengthscale > 1


@pytest.mark.nightly
@pytest.mark.parametrize("limit", variants([12, 40], [12]))
def test_rows_that_are_kept_have_a_say_in_where_inducing_inputs_go(limit):
    rng = np.random.default_rng(0)
    start = gp.SparseGP(
        RBF(0.5), likelihoods.Gaussian(0.1), np.linspace(0, 1, 8)[:, None]
    )
    online = gp.online(start, num_inducing=limit)
    for place in range(4):
        x = rng.uniform(2 * place, 2 * place + 2, (60, 1))
        y = np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(60)
        online = online.update((x, y))
    z = np.asarray(online.model.inducing)
    assert z.min() < 1 and z.max() > 7 and len(z) <= limit
    x = np.linspace(0.2, 7.8, 50)[:, None]
    mean = gp.predictor(online.model).predict(x)[0]
    assert np.abs(mean - np.sin(2 * x[:, 0])).mean() < 0.15


def test_a_few_far_rows_draw_inducing_inputs():
    start = gp.SparseGP(
        RBF(0.5), likelihoods.Gaussian(0.1), np.linspace(0, 1, 8)[:, None]
    )
    x = np.linspace(10, 12, 5)[:, None]
    online = gp.online(start).update((x, np.ones(5)))
    assert len(online.model.inducing) >= 8
    assert (np.asarray(online.model.inducing) > 9).sum() >= 3


def whole_first(rows):
    first = tuple(column[:60] for column in rows)
    start = gp.initialize(first[0], likelihoods.Gaussian(0.1), 8)
    return gp.fit(start, first, progress=False, steps=50).params


@pytest.mark.nightly
def test_what_is_forgotten_fades_with_its_half_life(sorted_rows):
    x, y = sorted_rows
    shift = np.where(np.arange(240) < 120, 0.0, 3.0)
    mixed = np.random.default_rng(1).permutation(120)
    order = np.concatenate([mixed, 120 + mixed])
    rows = (X[order], TARGETS["Gaussian"][1][order] + shift)
    for half_life, error in ((None, 1.0), (10.0, 0.2)):
        online = learned(rows, likelihoods.Gaussian(0.1), 4, half_life=half_life)
        mean = gp.predictor(online.model).predict(x)[0]
        found = np.abs(mean - np.sin(2 * x[:, 0]) - 3).mean()
        assert (found < error) == (half_life is not None)


def test_faded_sites_count_for_less():
    likelihood, y = TARGETS["Poisson"]
    online = gp.online(gp.update(model_of(likelihood), (X, y)))
    half = _faded(online, 0.5).sites
    np.testing.assert_array_equal(2 * half.precision, online.sites.precision)


def test_too_few_inducing_inputs_are_noticed():
    likelihood, y = TARGETS["Gaussian"]
    trained = gp.update(model_of(likelihood), (X[:200], y[:200]))
    online = gp.online(trained, (X[:200], y[:200]), num_inducing=4, memory=0)
    with pytest.warns(InputWarning, match="4 inducing inputs cannot represent all"):
        less = online.update((X[200:], y[200:]))
    assert less.lost > 0.05 and len(less.model.inducing) == 4
    less.update((X[200:], y[200:]))  # which was said already


def test_pieces_may_be_small_and_have_to_fit(sorted_rows):
    x, y = sorted_rows
    online = gp.online(whole_first(sorted_rows), num_inducing=16)
    one = online.update((x[-1:], y[-1:]))
    assert one.num_data == 1 and online.num_data == 0
    with pytest.raises(InputError, match="half_life is -1"):
        gp.online(online.model, half_life=-1.0)
    with pytest.raises(InputError, match="2 columns|rows of 1"):
        online.update((np.ones((3, 2)), np.ones(3)))


SEVERAL = {
    "shared": Matern52(0.7),
    "separate": gp.kernels.Separate([Matern52(0.7), RBF(1.0)]),
}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", variants(SEVERAL, ["separate"]))
def test_several_latent_functions_learn_too(kind, sorted_rows):
    x, y = sorted_rows
    noise = likelihoods.HeteroskedasticGaussian()
    model = gp.update(model_of(noise, kernel=SEVERAL[kind]), (x[:60], y[:60]))
    online = gp.online(model, (x[:60], y[:60]), memory=32, num_inducing=20)
    online = online.update((x[60:120], y[60:120])).update((x[120:180], y[120:180]))
    mean = gp.predictor(online.model).predict(x[:180])[0]
    assert np.abs(mean - np.sin(2 * x[:180, 0])).mean() < 0.2


def test_weights_choose_where_inducing_inputs_go():
    kernel, worth = RBF(0.3), np.where(X[:, 0] > 0, 1.0, 1e-9)
    chosen = np.asarray(pivoted(kernel, jnp.asarray(X), worth, 6).chosen)
    assert (X[chosen, 0] > 0).all() and len(set(chosen)) == 6


def test_a_state_returns_from_its_file_and_damage_is_noticed(tmp_path, sorted_rows):
    x, y = sorted_rows
    online = gp.online(whole_first(sorted_rows), (x[:60], y[:60]), memory=20)
    path = tmp_path / "state"
    files.save_online(online, path, {"a": 1})
    again, metadata = files.load_online(path)
    assert metadata == {"a": 1}
    for one, other in zip(jax.tree.leaves(online), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    document, arrays = container.read(path)
    state = document["online"]

    def with_array(name, array):
        """Another array, with the JSON made to agree."""
        other = copy.deepcopy(document)
        node = other
        for key in name.split("."):
            node = node[key]
        node |= {"dtype": array.dtype.name, "shape": list(array.shape)}
        return other, {**arrays, name: array}

    precision, linear = "online.sites.precision", "online.sites.linear"
    wrong = [
        (document, {**arrays, precision: arrays[precision][:-1]}),
        with_array(precision, arrays[precision][:-1]),
        with_array(linear, np.nan * arrays[linear]),
        with_array("online.keys", arrays["online.keys"][:-1]),
        with_array("online.rows.x", arrays["online.rows.x"][:, :0]),
        with_array("online.rows.y", np.nan * arrays["online.rows.y"]),
        ({**document, "online": state | {"lost": -1.0}}, arrays),
        ({**document, "online": state | {"count": "many"}}, arrays),
        ({**document, "online": {k: state[k] for k in state if k != "seed"}}, arrays),
        (document, {k: arrays[k] for k in arrays if k != "online.model.inducing"}),
    ]
    for changed in wrong:
        container.write(path, *changed)
        with pytest.raises(CorruptFileError, match="delete it to begin anew"):
            files.load_online(path)
    gp.save(online.model, path)
    with pytest.raises(IncompatibleFileError, match="not a state of natgrad update"):
        files.load_online(path)


def test_nothing_adds_nothing():
    model = model_of(likelihoods.Gaussian(0.1))
    nothing = jax.tree.map(jnp.zeros_like, to_sites(model))
    view, _, lost = seen(model, old_sites(model, nothing))
    assert not view.precision.any() and lost == 0
