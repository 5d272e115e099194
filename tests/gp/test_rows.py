"""Gaussian processes that keep their rows: limits, brute force, refits, invariances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from natgrad import gp
from natgrad.data import Batch
from natgrad.errors import InputError
from natgrad.gp import likelihoods, rows
from natgrad.gp._given import GivenNear, solved_widened
from natgrad.gp._left_out import Hyperparameters, Table
from natgrad.gp._sites import Sites
from natgrad.gp.kernels import Linear, Matern12, Matern52
from natgrad.gp.means import Constant


SITES = {
    "bernoulli": likelihoods.Bernoulli(),
    "poisson": likelihoods.Poisson(),
    "negative-binomial": likelihoods.NegativeBinomial(),
    "gamma": likelihoods.Gamma(),
    "ordinal": likelihoods.Ordinal([-0.5, 0.5]),
    "student-t": likelihoods.StudentT(0.3),
}


@pytest.fixture
def table():
    random = np.random.default_rng(0)
    x = random.standard_normal((150, 3))
    y = np.sin(2 * x[:, 0]) + 0.3 * x[:, 1] + 0.1 * random.standard_normal(150)
    return x, y


def hyper_of(likelihood):
    kernel = Matern52([1.0, 2.0, 3.0]) + Matern12([2.0, 2.0, 3.0], 0.3) + Linear(0.1)
    return Hyperparameters(kernel, likelihood, Constant(0.2))


def batch_of(x, y, keep=slice(None)):
    return Table(x[keep], y[keep], np.ones(len(y[keep])))


def targets(name, f, random):
    counts = random.poisson(np.exp(f))
    return {
        "bernoulli": (f + random.standard_normal(len(f)) > 0) * 1.0,
        "poisson": counts * 1.0,
        "negative-binomial": counts * 1.0,
        "gamma": random.gamma(2.0, np.exp(f) / 2) + 1e-3,
        "ordinal": np.digitize(f, [-0.5, 0.5]) * 1.0,
        "student-t": f + 0.3 * random.standard_t(3, len(f)),
    }[name]


# Limits


def test_all_rows_are_as_many_neighbors(table):
    x, y = table
    hyper, batch, new = (
        hyper_of(likelihoods.Gaussian(0.01)),
        batch_of(x, y),
        x[:9] + 0.1,
    )
    whole = rows.condition(hyper, batch)
    near = rows.condition(hyper, batch, all_rows=0, neighbors=150)
    for a, b in zip(whole.latent(new), near.latent(new), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)
    some = np.arange(20)
    for a, b in zip(whole.left_out(some), near.left_out(some), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)


def test_inducing_inputs_change_nothing_where_all_rows_are_one_leaf(table):
    x, y = table[0][:60], table[1][:60]
    hyper, batch, new = (
        hyper_of(likelihoods.Gaussian(0.01)),
        batch_of(x, y),
        x[:9] + 0.1,
    )
    whole = rows.condition(hyper, batch)
    both = rows.condition(hyper, batch, inducing=x[:16], all_rows=0, neighbors=60)
    for a, b in zip(whole.latent(new), both.latent(new), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def dense_of_leaves(given, keep):
    """f at each row from those that are kept, if own parts are independent of other
    leaves': by one dense matrix."""
    x, kernel = given.table.x, given.hyper.kernel
    z = given.latents[0].inputs
    x, z = jnp.asarray(x), jnp.asarray(z)
    cov, cross, prior = map(np.asarray, (kernel(x, x), kernel(z, x), kernel(z, z)))
    shared = cross.T @ np.linalg.solve(prior, cross)
    places = given.latents[0].leaves
    leaf = np.zeros(len(x), int)
    for number, block in enumerate(places):
        leaf[block[block >= 0]] = number
    full = np.where(leaf[:, None] == leaf, cov, shared)
    total = full[np.ix_(keep, keep)] + np.diag(1 / given.sites.precision[keep])
    target = (given.sites.linear / given.sites.precision)[keep]
    solved = np.linalg.solve(total, full[keep])
    return solved.T @ target, np.diag(full) - (full[keep] * solved).sum(0)


def test_rows_left_out_of_leaves_agree_with_a_dense_matrix_without_them(table):
    x, y = table
    given = rows.condition(
        hyper_of(likelihoods.Gaussian(0.04)),
        batch_of(x, y),
        inducing=x[:20],
        all_rows=0,
    )
    groups = np.arange(150) // 3
    mean, var = given.latents[0].all_left_out()
    for row in (0, 70, 149):
        keep = np.flatnonzero(np.arange(150) != row)
        known = dense_of_leaves(given, keep)
        np.testing.assert_allclose([mean[row], var[row]], [a[row] for a in known], 1e-6)
    mean, var = given.latents[0].all_left_out(groups)
    leaves = given.latents[0].leaves
    if np.isin(leaves, [0, 1, 2]).any(1).sum() == 1:  # or a leaf cuts the group
        keep = np.flatnonzero(groups != 0)
        known = dense_of_leaves(given, keep)
        np.testing.assert_allclose(mean[:3], known[0][:3], 1e-6)


# Left-out rows


def test_rows_left_out_are_refitted_without(table):
    x, y = table
    hyper = hyper_of(likelihoods.Gaussian(0.01))
    groups = np.arange(150) // 10
    alone = rows.condition(hyper, batch_of(x, y))
    grouped = rows.condition(hyper, batch_of(x, y), groups=groups)
    for given, gone in ((alone, [7]), (grouped, np.arange(10))):
        keep = np.setdiff1d(np.arange(150), gone)
        again = rows.condition(hyper, batch_of(x, y, keep)).latent(x[gone])
        for a, b in zip(given.left_out(np.asarray(gone)), again, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-8)


@pytest.mark.parametrize(
    "name",
    [
        "bernoulli",
        *(pytest.param(name, marks=pytest.mark.nightly) for name in list(SITES)[1:]),
    ],
)
def test_left_out_sites_agree_with_sites_refitted(name, table):
    x, f = table[0][:80], table[1][:80]
    y = targets(name, f, np.random.default_rng(1))
    hyper = hyper_of(SITES[name])
    given = rows.condition(hyper, batch_of(x, y))
    for row in (3, 40):
        keep = np.flatnonzero(np.arange(80) != row)
        again = rows.condition(hyper, batch_of(x, y, keep)).latent(x[[row]])
        both = given.left_out(np.array([row])), again
        density = [
            float(
                hyper.likelihood.log_predictive(
                    *(jnp.asarray(a[0]) for a in each), jnp.asarray(y[row])
                )
            )
            for each in both
        ]
        assert abs(density[0] - density[1]) < 0.02


# Sites


def test_sites_of_a_conjugate_likelihood_take_one_step(table):
    x, y = table
    hyper, batch = hyper_of(likelihoods.Gaussian(0.1)), batch_of(x, y)
    solved = rows.condition(hyper, batch)
    nothing = Sites(np.zeros(150), np.full(150, 1e-6))
    found = rows.settled(rows.with_sites(solved, nothing), steps=1)
    np.testing.assert_allclose(found.sites.linear, solved.sites.linear, rtol=1e-9)
    np.testing.assert_allclose(found.sites.precision, solved.sites.precision, rtol=1e-9)


@pytest.mark.parametrize(
    "name",
    [
        "poisson",
        *(
            pytest.param(name, marks=pytest.mark.nightly)
            for name in list(SITES)
            if name != "poisson"
        ),
    ],
)
def test_elbo_of_all_rows_is_that_of_inducing_inputs_at_all(name, table):
    x, f = table[0][:60], table[1][:60]
    y = targets(name, f, np.random.default_rng(1))
    hyper, batch = hyper_of(SITES[name]), batch_of(x, y)
    given = rows.condition(hyper, batch)
    sparse = gp.SparseGP(hyper.kernel, hyper.likelihood, x, mean=hyper.mean)
    solved = gp.update(sparse, (x, y))
    bound = float(gp.elbo(solved, Batch(x, y)))
    # A site of a Student-t may be of negative precision; here it is none.
    digits = 2e-4 if name == "student-t" else 1e-5
    assert rows.elbo(given) == pytest.approx(bound, rel=digits)


# Invariances


def fitted(x, y, **options):
    if "likelihood" not in options:
        options["warps"] = ("identity",)
    with jax.numpy_dtype_promotion("standard"):  # in Adam
        return rows.fit(x, y, steps=20, **options)


def test_order_units_weights_and_copies_change_nothing(table):
    x, y = table
    new, first = x[:5] + 0.1, fitted(x, y)
    order = np.random.default_rng(1).permutation(150)
    twice = np.concatenate([x, x]), np.concatenate([y, y])
    others = {
        "order": (fitted(x[order], y[order]), 1),
        "weights": (fitted(x, y, weight=np.full(150, 3.0)), 1),
        "copies": (fitted(*twice), 1),
        "units": (fitted(4 * x, y), 4),
    }
    for name, (other, unit) in others.items():
        for a, b in zip(first.predict(new), other.predict(unit * new), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, err_msg=name)


def test_groups_are_left_out_together_and_may_have_any_names(table):
    x, y = table
    names = np.array([f"week {row // 10:02}" for row in range(150)])
    grouped = fitted(x, y, groups=names)
    again = fitted(x, y, groups=np.arange(150) // 10)
    np.testing.assert_array_equal(grouped.predict(x[:3])[0], again.predict(x[:3])[0])
    own = grouped.groups == grouped.groups[0]
    alone = rows.condition(grouped.hyper, grouped.table.take(np.flatnonzero(~own)))
    near = grouped.left_out(np.flatnonzero(own))[0]
    np.testing.assert_allclose(near, alone.latent(grouped.table.x[own])[0], atol=1e-8)
    assert np.isfinite(grouped.score)


def test_a_row_given_twice_is_one_of_weight_two(table):
    x, y = table
    twice = fitted(np.concatenate([x, x[:1]]), np.append(y, y[0]))
    weight = np.ones(150)
    weight[0] = 2
    once = fitted(x, y, weight=weight)
    np.testing.assert_allclose(*(each.predict(x[:3])[0] for each in (twice, once)))


@pytest.mark.parametrize("all_rows", [rows.ALL, 0])
def test_rows_that_are_appended_are_as_if_fitted_at_once(table, all_rows):
    """Whatever a weight of 1 is, and with copies of rows that are there already."""
    x, y = table
    options = {"all_rows": all_rows, "num_inducing": 16, "neighbors": 20}
    first = fitted(x[:120], y[:120], weight=np.full(120, 3.0), **options)
    both = first.append(x[110:], y[110:], weight=np.full(40, 3.0))
    z = first.units.warp.to(y)
    weight = np.where((np.arange(150) >= 110) & (np.arange(150) < 120), 2.0, 1.0)
    rest = {"neighbors": 20, "all_rows": all_rows, "units": first.units}
    if not all_rows:
        rest["inducing"] = first.latents[0].inputs
    again = rows.condition(both.hyper, (first.units.inputs(x), z, weight), **rest)
    assert len(both.table.x) == 150
    for a, b in zip(both.latent(x[:5]), again.latent(x[:5]), strict=True):
        np.testing.assert_allclose(a, b, rtol=0.05 if all_rows == 0 else 1e-8)
    with pytest.raises(InputError, match="the columns"):
        both.append(x, y, columns={"offset": y})


def test_a_warp_refuses_targets_that_it_has_not(table):
    x, y = table[0], np.exp(table[1])
    with jax.numpy_dtype_promotion("standard"):
        found = rows.fit(x, y, warps=("log",), steps=20)
        for wrong in (("log",), ("sqrt",), ()):
            with pytest.raises(InputError, match="warps is"):
                rows.fit(x, y - 3, warps=wrong)
    assert found.log_density(x[:1], [-1.0])[0] == -np.inf
    assert found.cdf(x[:1], [-1.0])[0] == 0
    with pytest.raises(InputError, match="the warp log needs larger targets"):
        found.append(x[:2], [1.0, -1.0])


@pytest.mark.parametrize("likelihood", [likelihoods.StudentT(50.0), None])
def test_targets_of_a_location_may_have_any_unit(likelihood, table):
    x, y = table
    small = None if likelihood is None else likelihood.in_units(1024.0)
    once = fitted(x, y, likelihood=small) if small else fitted(x, y)
    many = fitted(x, 1024 * y, likelihood=likelihood) if small else fitted(x, 1024 * y)
    for power, a, b in zip(
        (1, 2), once.predict(x[:5]), many.predict(x[:5]), strict=True
    ):
        np.testing.assert_allclose(1024.0**power * a, b, rtol=1e-6)
    np.testing.assert_allclose(once.score - np.log(1024), many.score, rtol=1e-6)


def test_large_counts_begin_at_their_mean(table):
    x, y = table
    counts = np.random.default_rng(0).poisson(2000 * np.exp(y / 4)) * 1.0
    mean, _ = fitted(x, counts, likelihood=likelihoods.Poisson()).predict(x)
    np.testing.assert_allclose(mean.mean(), counts.mean(), rtol=0.02)


def test_rows_of_no_weight_leave_with_their_groups(table):
    x, y = table
    groups, weight = np.arange(150) // 10, np.ones(150)
    weight[:20] = 0
    some = fitted(x[20:], y[20:], groups=groups[20:])
    found = fitted(x, y, groups=groups, weight=weight)
    np.testing.assert_array_equal(found.predict(x[:3])[0], some.predict(x[:3])[0])
    for wrong, rule in ((groups[1:], "one name"), (groups > 9, "there are 2 groups")):
        with pytest.raises(InputError, match=rule):
            fitted(x, y, groups=wrong)


def test_sites_do_not_depend_on_groups(table):
    x, y = table[0], (table[1] > 0) * 1.0
    hyper = hyper_of(likelihoods.Bernoulli())
    options = {"inducing": x[:16], "all_rows": 0}
    alone = rows.condition(hyper, (x, y), **options)
    grouped = rows.condition(hyper, (x, y), groups=np.arange(150) // 10, **options)
    np.testing.assert_array_equal(alone.sites.precision, grouped.sites.precision)


@pytest.mark.parametrize("steps", [1, 12])
def test_any_number_of_steps_may_be_taken(steps, table):
    with jax.numpy_dtype_promotion("standard"):
        found = rows.fit(*table, warps=("identity",), steps=steps)
    assert np.isfinite(found.score)


# What must not break


def test_a_constant_target_and_a_constant_input(table):
    x = np.concatenate([table[0], np.full((150, 1), 5.0)], 1)
    mean, var = fitted(x, np.full(150, 7.0)).predict(x[:3])
    np.testing.assert_allclose(mean, 7, atol=0.01)
    assert np.isfinite(var).all()


def test_a_function_without_noise(table):
    x, _ = table
    y = np.sin(x[:, 0]) + x[:, 1]
    found = fitted(x, y)
    assert np.isfinite(found.log_density(x[:9] + 0.01, y[:9])).all()


def test_few_distinct_inputs():
    random = np.random.default_rng(0)
    x = random.integers(0, 5, (400, 2)) * 1.0
    y = x[:, 0] + random.standard_normal(400)
    found = fitted(x, y, all_rows=0, num_inducing=20)
    mean, var = found.predict(x[:20])
    np.testing.assert_allclose(mean, x[:20, 0], atol=0.6)
    assert (var > 0.3).all()


def test_a_likelihood_made_in_32_bits_is_widened_and_a_fit_in_32_refused(table):
    x, y = table
    with jax.enable_x64(False):
        likelihood = likelihoods.StudentT(0.3)
        with pytest.raises(InputError, match="needs 64 bits"):
            fitted(x, y)
    found = fitted(x, y, likelihood=likelihood)
    assert found.hyper.likelihood.log_scale.dtype == np.float64


def test_compact_predicts_as_widened_sites_say(table):
    x, y = table
    hyper = hyper_of(likelihoods.Gaussian(0.04))
    given = rows.condition(hyper, batch_of(x, y), inducing=x[:20], all_rows=0)
    (model, cost), new = given.compact(), jnp.asarray(x[:7] + 0.1)
    x = jnp.asarray(x)
    prior, cross = (np.asarray(hyper.kernel(x[:20], a)) for a in (x[:20], x))
    shared = cross.T @ np.linalg.solve(prior, cross)
    rest = np.asarray(hyper.kernel.diag(x)) - np.diag(shared)
    at_new = np.asarray(hyper.kernel(x[:20], new)).T @ np.linalg.solve(prior, cross)
    mean = 0.2 + at_new @ np.linalg.solve(shared + np.diag(rest + 0.04), y - 0.2)
    np.testing.assert_allclose(model.marginals(new)[0], mean, atol=1e-6)
    # Left-out rows lose what the sparse model says less of each, refitted without it.
    keep = np.arange(1, 150)
    inner = (shared + np.diag(rest + 0.04))[np.ix_(keep, keep)]
    solved = np.linalg.solve(inner, shared[keep, 0])
    left_out = 0.2 + solved @ (y - 0.2)[keep], shared[0, 0] - solved @ shared[keep, 0]
    _, found = solved_widened(
        hyper.kernel, given.table.x, given.sites, given.table.x[:20]
    )
    np.testing.assert_allclose(found[0][0] + 0.2, left_out[0], atol=1e-6)
    np.testing.assert_allclose(found[1][0], left_out[1] + rest[0], atol=1e-6)
    assert cost > 0


def test_a_compact_model_is_saved_and_predicts(table, tmp_path):
    x, y = table
    given = fitted(x, y, all_rows=0, num_inducing=20)
    model, cost = given.compact()
    gp.save(model, tmp_path / "model.natgrad")
    again = gp.predictor(gp.load(tmp_path / "model.natgrad"))
    new = given.units.inputs(x[:5])
    moments = again.predict(new)
    for a, b in zip(moments, gp.predictor(model).predict(new), strict=True):
        np.testing.assert_array_equal(a, b)
    middle = again.quantiles(new, [0.5])[:, 0]
    np.testing.assert_allclose(middle, moments[0], atol=1e-9)
    assert np.isfinite(cost)


def test_draws_have_the_moments_of_predictions(table):
    x, y = table
    given = rows.condition(hyper_of(likelihoods.Gaussian(0.04)), batch_of(x, y))
    draws = given.sample_latent(jax.random.key(0), x[:3] + 0.5, 4000)
    mean, var = given.latent(x[:3] + 0.5)
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.05)
    np.testing.assert_allclose(draws.var(0), var, rtol=0.1)
    near = rows.condition(given.hyper, given.table, all_rows=0)
    assert isinstance(near.latents[0], GivenNear)
    with pytest.raises(InputError, match="no joint distribution"):
        near.sample_latent(jax.random.key(0), x[:3])


@pytest.mark.nightly
def test_sites_agree_with_long_mcmc():
    """Means of labels' functions, by many chains of elliptical slice sampling."""
    random = np.random.default_rng(0)
    x = random.standard_normal((200, 2))
    y = (1.5 * np.sin(2 * x[:, 0]) + random.standard_normal(200) > 0) * 1.0
    hyper = Hyperparameters(Matern52([1.0, 2.0]), SITES["bernoulli"], Constant(0.0))
    mean, var, _ = rows.condition(hyper, (x, y)).latents[0].marginals()
    x = jnp.asarray(x)
    root = np.linalg.cholesky(np.asarray(hyper.kernel(x, x)) + 1e-9 * np.eye(200))
    log_prob = lambda f: special.log_ndtr((2 * y - 1) * f).sum(-1)
    f, kept = np.repeat(mean[None], 64, 0), []
    for step in range(3000):
        other = random.standard_normal(f.shape) @ root.T
        least = log_prob(f) + np.log(random.uniform(size=64))
        angle = random.uniform(0, 2 * np.pi, 64)
        low, high, left = angle - 2 * np.pi, angle.copy(), np.arange(64)
        new = f.copy()
        while len(left):
            cos, sin = np.cos(angle[left])[:, None], np.sin(angle[left])[:, None]
            new[left] = f[left] * cos + other[left] * sin
            left = left[log_prob(new[left]) <= least[left]]
            low[left] = np.where(angle[left] < 0, angle[left], low[left])
            high[left] = np.where(angle[left] < 0, high[left], angle[left])
            angle[left] = random.uniform(low[left], high[left])
        f = new
        if step >= 300:
            kept.append(f)
    draws = np.concatenate(kept)
    far = np.abs(mean - draws.mean(0)) / draws.std(0)
    assert far.max() < 0.05
    np.testing.assert_allclose(np.sqrt(var) / draws.std(0), 1, atol=0.05)
