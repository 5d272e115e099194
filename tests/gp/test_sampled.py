"""Hyperparameters from a sample of the rows, and q from all of them in one pass."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from natgrad import gp, mirror_descent
from natgrad.data._batches import Batch
from natgrad.gp import _sampled as sampled, exact, kernels, likelihoods, means
from natgrad.gp._few_rows import LEAST, misfit_of_sample
from natgrad.gp._sparse import prior_inverse


def hyperparameters(noise=0.05):
    smooth = kernels.Matern52(np.array([0.7, 1.5]), 1.3)
    rough = kernels.Matern12(np.array([0.3, 0.8]), 0.2)
    likelihood = likelihoods.Gaussian(noise)
    return exact.Hyperparameters(smooth + rough, likelihood, means.Constant(0.3))


def table(rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (rows, 2))
    steps = 0.5 * np.sign(np.sin(9 * x[:, 0]))
    y = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + steps + 0.1 * rng.standard_normal(rows)
    return Batch(x, y, rng.uniform(0.5, 2.0, rows))


def part(batch, some):
    return jax.tree.map(lambda column: column[some], batch)


def sums_of(of, z, batch):
    model = exact.at_prior(of, z)
    return exact.unit_sites(model, batch, prior_inverse(model))


def solved(of, z, batch):
    return exact.solved(of, z, sums_of(of, z, batch))


def is_same(found, expected, tolerance=1e-6):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=1e-8)


@pytest.mark.parametrize("block", [7, 64, 2048])
def test_blocks_of_any_size_end_where_one_natural_step_of_size_one_does(
    block, monkeypatch
):
    monkeypatch.setattr(exact, "BLOCK", block)
    batch, of = table(150), hyperparameters()
    z = batch.x[:20]
    model = solved(of, z, batch)
    prior = gp.SparseGP(of.kernel, of.likelihood, z, mean=of.mean)
    rule = gp.alternating(
        mirror_descent(1.0), optax.set_to_zero(), float(batch.weight.sum())
    )
    options = {"batch_size": 150, "rule": rule, "steps": 1, "progress": False}
    stepped = gp.fit(prior, batch, **options).params
    at = jnp.asarray(table(9, seed=1).x)
    is_same(model.marginals(at), stepped.marginals(at))


def test_sums_of_parts_add_up_and_a_weight_counts_rows():
    batch, of = table(90), hyperparameters()
    z = batch.x[:15]
    of_all = sums_of(of, z, batch)
    parts = [sums_of(of, z, part(batch, some)) for some in (slice(40), slice(40, None))]
    is_same(map(jnp.add, *parts), of_all, 1e-10)
    twice = sums_of(of, z, batch._replace(weight=np.full(90, 2.0)))
    both = Batch(np.tile(batch.x, (2, 1)), np.tile(batch.y, 2))
    is_same(twice, sums_of(of, z, both), 1e-10)


def test_the_score_is_the_log_density_that_the_model_predicts():
    batch, other, of = table(150), table(40, seed=1), hyperparameters()
    z = batch.x[:30]
    model = solved(of, z, batch)
    unit, there = sampled._one_pass(of, z, batch, other)
    density = gp.predictor(model).log_density(other.x, other.y)
    expected = np.average(density, weights=other.weight)
    found = sampled._score(of, z, unit, there, other)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_inducing_inputs_may_be_whole_numbers_and_kernels_singular_at_zero():
    batch, of = table(70), hyperparameters()
    whole = np.array([[0, 0], [1, 0], [0, 1], [-1, -1]])
    sums = [sums_of(of, z, batch) for z in (whole, whole.astype(float))]
    is_same(*sums)

    class Direction(kernels.AbstractKernel):
        def __call__(self, x, z):
            unit = lambda rows: rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
            return jnp.exp(unit(x) @ unit(z).T)

    other = of._replace(kernel=Direction())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exact, "BLOCK", 64)
        found = sums_of(other, batch.x[:5], batch)
    is_same(found, sums_of(other, batch.x[:5], batch), 1e-8)


@pytest.mark.parametrize("start", [1e-3, 0.1, 0.4, 5.0])
def test_the_noise_that_predicts_best_is_found(start):
    score = lambda noise: float(-(np.log(noise / 0.3) ** 2))
    noise, best = sampled._best(score, start)
    assert abs(np.log2(noise / 0.3)) <= 0.5 and best == score(noise)


def test_it_stops_with_the_best_it_has_seen():
    seen = []
    score = lambda noise: seen.append(noise) or float(noise)
    noise, best = sampled._best(score, 1e-5)
    assert noise == best == max(seen) and len(seen) <= sampled.TRIED + 1


def test_a_score_that_is_not_finite_is_left():
    score = lambda noise: float(-noise) if noise > 0.2 else float("nan")
    noise, best = sampled._best(score, 0.1)
    assert 0.2 < noise < 0.41 and best == -noise


def fitted_by(of, sample, z, rows, held_out, **options):
    """Hyperparameters by a sample, and then q."""
    options["progress"] = False
    learned = exact.learn([of], sample, misfit_of_sample, **options)
    return sampled.fit(learned, z, rows, held_out, progress=False)


@pytest.mark.nightly
def test_a_sample_learns_and_all_rows_count():
    rows, held_out, new = table(600), table(100, seed=1), table(400, seed=2)
    sample = part(rows, slice(200))
    z, of = rows.x[:300], hyperparameters()
    fitted = fitted_by(of, sample, z, rows, held_out, steps=40)
    alone = exact.fit([of], sample.x, sample, steps=40, progress=False)
    density = lambda model: gp.predictor(model).log_density(new.x, new.y).mean()
    assert density(fitted.params) > density(alone.params) + 0.1
    last, before = fitted.history.records[-1], fitted.history.records[-2]
    assert last.step == before.step and last.objective == before.objective
    # q is that of all rows, also of those that were held out.
    found = fitted.params
    learned = exact.Hyperparameters(found.kernel, found.likelihood, found.mean)
    both = jax.tree.map(lambda *parts: np.concatenate(parts), rows, held_out)
    whole = exact.posterior(learned, z, both)
    at = jnp.asarray(new.x)
    is_same(found.marginals(at), whole.marginals(at))
    np.testing.assert_allclose(last.score, density(fitted.params), atol=0.15)


def test_a_sample_without_noise_ends_with_some():
    """Rows that are not in it contradict it, and must not be impossible."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (500, 2))
    x = np.concatenate([x, x])  # each row of the sample comes back with another target
    rows = Batch(x, np.sin(x[:, 0]) + 0.3 * rng.standard_normal(1000))
    sample = part(rows, slice(80))
    rough = kernels.Matern12(np.array([0.05, 0.05]), 0.5)
    of = exact.Hyperparameters(
        kernels.Matern52(np.array([1.0, 1.0]), 1.0) + rough,
        likelihoods.Gaussian(1e-3),
        means.Zero(),
    )
    held_out = part(rows, slice(900, None))
    rest = part(rows, slice(900))
    fitted = fitted_by(of, sample, x[:200], rest, held_out)
    assert fitted.history.records[-1].score > -1.0


def test_targets_on_a_plane_leave_as_little_noise_as_sums_can_hold():
    rows, held_out, new = (
        Batch(each.x, each.x @ np.ones(each.x.shape[1]))
        for each in (table(600), table(100, seed=1), table(400, seed=2))
    )
    sample, z = part(rows, slice(200)), rows.x[:300]
    fitted = fitted_by(hyperparameters(), sample, z, rows, held_out, steps=60)
    noise = float(fitted.params.likelihood.variance) ** 0.5
    assert noise >= 0.99 * LEAST * np.std(held_out.y)
    mean, _ = gp.predictor(fitted.params).predict(new.x)
    np.testing.assert_allclose(mean, new.y, atol=0.02 * np.std(new.y))


@pytest.mark.nightly
def test_rows_that_were_held_out_make_no_place_certain():
    """A held-out row between two inducing inputs does not tell both their values."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.permutation(600)[:400])[:, None] / 100
    y = np.cumsum(rng.standard_normal(600))[(100 * x[:, 0]).round().astype(int)] / 10
    is_held_out = rng.permutation(400) < 40
    rows, held_out = (Batch(x[some], y[some]) for some in (~is_held_out, is_held_out))
    z = exact.inducing_inputs(rows.x)
    of = exact.Hyperparameters(
        kernels.Matern12(3.0, 1.0), likelihoods.Gaussian(1e-4), means.Zero()
    )
    fitted = fitted_by(of, rows, z, rows, held_out, steps=1)
    found = fitted.params
    learned = exact.Hyperparameters(found.kernel, found.likelihood, found.mean)
    wanted = exact.posterior(learned, x, Batch(x, y))
    at = jnp.asarray(np.setdiff1d(z, x)[:, None])
    (_, var), (_, least) = found.marginals(at), wanted.marginals(at)
    assert len(at) > 10 and (var > 0.9 * least).all()
