"""Laws of training a sparse GP."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas
import pytest

import natgrad
from natgrad import gp
from natgrad.data import Batch
from natgrad.errors import InputError
from natgrad.gp._fit import default_rule
from natgrad.gp.inducing import spacing
from natgrad.train._rules import for_data


N = 60
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (N, 2))
Y = np.sin(2 * X).sum(1) + 0.2 * RNG.standard_normal(N)
OPTIONS = {"steps": 40, "batch_size": 20, "progress": False}


@pytest.fixture(autouse=True)
def promoting():
    with jax.numpy_dtype_promotion("standard"):  # Adam promotes inside Optax
        yield


def start(scale=1.0):
    kernel = gp.kernels.Matern52([scale, scale], 1.0)
    return gp.SparseGP(kernel, gp.likelihoods.Gaussian(0.3), scale * X[:8])


def test_a_run_does_not_depend_on_the_unit_of_the_inputs():
    ours = gp.fit(start(), (X, Y), **OPTIONS).params
    theirs = gp.fit(start(1000.0), (1000 * X, Y), **OPTIONS).params
    # Rounding grows over 40 steps at the full rate.
    np.testing.assert_allclose(1000 * ours.inducing, theirs.inducing, rtol=1e-4)
    np.testing.assert_allclose(
        ours.kernel.log_variance, theirs.kernel.log_variance, rtol=1e-4
    )


def test_a_rule_learns_how_many_rows_there_are_from_fit():
    natural, adam = natgrad.mirror_descent(0.1), optax.adam(0.01)
    free, told = gp.alternating(natural, adam), gp.alternating(natural, adam, N)
    one, other = (gp.fit(start(), (X, Y), rule=r, **OPTIONS) for r in (free, told))
    assert one.history[-1].objective == other.history[-1].objective
    jax.tree.map(np.testing.assert_array_equal, one.params, other.params)
    assert free.sized is not None and free.sized(N, 0.5) is free.sized(N, 0.5)
    # A weight counts rows, and their sum is the number of rows.
    weight = RNG.uniform(0.5, 2.0, N)
    options = OPTIONS | {"batch_size": N}
    whole = gp.fit(start(), (X, Y, weight), rule=free, **options)
    told = gp.alternating(natural, adam, float(weight.sum()))
    same = gp.fit(start(), (X, Y, weight), rule=told, **options)
    assert whole.history[-1].objective == same.history[-1].objective


def test_a_rule_is_sized_by_the_loop_and_keeps_its_settings():
    rule = gp.alternating(natgrad.ngd(0.1), optax.adam(0.01))
    made = for_data(rule._replace(is_brief=True), 60.0, 0.5)
    assert (
        made.is_brief and made.sized is None and made.step is rule.sized(60.0, 0.5).step
    )
    assert for_data(rule, None, None) is rule
    # The weights of the estimators' batches add up to those of all rows already.
    assert default_rule(None, 0.5).sized is None


def test_frames_weights_and_held_out_rows_are_taken():
    frame = pandas.DataFrame(X, columns=["a", "b"])
    plain = gp.fit(start(), (X, Y), **OPTIONS)
    same = gp.fit(start(), (frame, pandas.Series(Y), np.ones(N)), **OPTIONS)
    assert plain.history[-1].objective == pytest.approx(same.history[-1].objective)
    weight = np.arange(10.0)
    held_out = (X[:10], Y[:10], weight)
    fitted = gp.fit(start(), (X[10:], Y[10:]), held_out=held_out, **OPTIONS)
    density = gp.predictor(fitted.params).log_density(X[:10], Y[:10])
    best = max(fitted.history.column("score"))
    expected = np.average(density, weights=weight)
    np.testing.assert_allclose(best, expected, rtol=1e-5)


def test_the_bound_that_is_shown_is_that_of_the_model():
    fitted = gp.fit(start(), (X, Y), **{**OPTIONS, "batch_size": N})
    bound = gp.elbo(fitted.params, Batch(X, Y)) / N
    np.testing.assert_allclose(fitted.history[-1].objective, bound, atol=1e-3)


def test_other_rules_are_the_ones_of_the_paper():
    model = start()
    only_q = gp.alternating(natgrad.guarded_ngd(20 / N), optax.set_to_zero(), N)
    moved = gp.fit(model, (X, Y), rule=only_q, **OPTIONS).params
    np.testing.assert_array_equal(moved.inducing, model.inducing)
    assert not np.array_equal(moved.posterior.mean, model.posterior.mean)
    loss = lambda model, batch: -gp.elbo(model, batch, N)
    everything = natgrad.train.in_turn(loss, optax.adam(0.01))
    fitted = gp.fit(model, (X, Y), rule=everything, **OPTIONS)
    assert fitted.history[-1].objective > fitted.history[0].objective


def test_spacing_is_the_distance_to_the_nearest_other_row():
    z = jnp.array([[0.0, 0.0], [3.0, 4.0], [3.0, 4.5], [3.0, 4.5]])
    half = np.sqrt(0.5)  # as a mean over two columns
    middle = np.median([5 * half, 0.5 * half, 0, 0])
    expected = np.maximum([5 * half, 0.5 * half, 0, 0], 0.01 * middle)
    np.testing.assert_allclose(spacing(z), expected, rtol=1e-12)
    np.testing.assert_array_equal(spacing(z[:1]), 1)


HOLE = X.copy()
HOLE[3, 1] = np.nan

BAD = {
    "it should be a pair": {"x": X},
    "they should be rows of 2": (X[:, :1], Y),
    "one for each of the 60 rows": (X, np.stack([Y, Y], 1)),
    "1 values that are not finite, the first in row 3, column 1": (HOLE, Y),
    "they should be numbers": (X.astype(str), Y),
    "finite targets": (X, np.where(np.arange(N) == 5, np.nan, Y)),
    "not negative": (X, Y, -np.ones(N)),
    "needs the total number of rows": [(X, Y)],
    "in a tuple": [X, Y],
    "which column is the target": pandas.DataFrame(X),
    "labels 0, 1, 2": (X, np.where(Y > 0, "yes", "no")),
}


@pytest.mark.parametrize("message", BAD)
def test_what_cannot_be_trained_on_is_refused_and_why(message):
    with pytest.raises(InputError, match=message):
        gp.fit(start(), BAD[message], **OPTIONS)


def test_a_model_to_begin_with_is_made_from_rows():
    model = gp.initialize(X, gp.likelihoods.Bernoulli(), 5)
    assert model.inducing.shape == (5, 2)
    np.testing.assert_allclose(model.kernel.lengthscale, np.sqrt(2))
    assert gp.initialize(X[:3], gp.likelihoods.Bernoulli()).inducing.shape == (3, 2)
