"""Parties that keep their rows learn what one that has all of them would."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad import _container as container
from natgrad.data import Batch
from natgrad.errors import IncompatibleFileError, InputError, InputWarning
from natgrad.families.gaussian import Canonical, Moments
from natgrad.gp import (
    SparseGP,
    _parties as parties,
    combine,
    elbo,
    fit_site,
    kernels,
    likelihoods,
    load_site,
    save_site,
    update,
)
from natgrad.linalg import Full, Log, Sqrt
from tests.test_container import REFUSED


RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (48, 1))
F = 1.5 * np.sin(2 * X[:, 0])
Z = np.linspace(-2, 2, 8)[:, None]
TARGETS = {
    "gaussian": (likelihoods.Gaussian(0.01), F + 0.1 * RNG.normal(size=48)),
    "bernoulli": (likelihoods.Bernoulli(), (RNG.normal(size=48) < F) * 1.0),
    "poisson": (likelihoods.Poisson(), RNG.poisson(np.exp(F + 1)) * 1.0),
    # Not log-concave, and in two latent functions.
    "noise": (likelihoods.HeteroskedasticGaussian(), F + 0.3 * RNG.normal(size=48)),
    "outliers": (likelihoods.StudentT(0.05), F + 0.1 * RNG.standard_t(1, size=48)),
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """One shape for all numbers of rows, so that few programs are compiled."""
    monkeypatch.setattr(parties, "PIECE", 16)


def start(name, **options):
    return SparseGP(kernels.Matern52(1.0, 1.0), TARGETS[name][0], Z, **options)


def shares(number, is_sorted=False):
    """The rows of each party, by its name; sorted, each has a part of the range."""
    order = np.argsort(X[:, 0]) if is_sorted else np.arange(48)
    return {f"p{i}": part for i, part in enumerate(np.array_split(order, number))}


def at_once(model, y, rows, rounds, sites=None):
    """All parties fit the same model, and then their sites are combined."""
    sites = sites or {}
    for _ in range(rounds):
        new = {
            name: fit_site(model, (X[part], y[part]), sites.get(name))
            for name, part in rows.items()
        }
        model, sites = combine(model, new, sites)
    return model, sites


def in_turn(model, y, rows, rounds, sites=None):
    """Each party fits the model that the one before it has left."""
    sites = sites or {}
    for _ in range(rounds):
        for name, part in rows.items():
            new = fit_site(model, (X[part], y[part]), sites.get(name))
            model, sites = combine(model, sites | {name: new}, sites)
    return model, sites


def assert_same(one, other, atol=1e-8):
    for part in ("location", "covariance"):
        a, b = (getattr(model.posterior, part)() for model in (one, other))
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


@functools.cache
def at_best(name):
    """The model after all rows at once, and its bound."""
    model = update(start(name), (X, TARGETS[name][1]))
    return model, bound(name, model)


@functools.cache
def jitted_bound():
    return jax.jit(elbo)


def bound(name, model):
    return float(jitted_bound()(model, Batch(jnp.asarray(X), TARGETS[name][1])))


@pytest.mark.parametrize("number", [1, 4, 16])
@pytest.mark.parametrize("mode", [at_once, in_turn])
def test_with_gaussian_noise_one_round_is_all_rows_at_once(number, mode):
    y, model = TARGETS["gaussian"][1], start("gaussian")
    together, sites = mode(model, y, shares(number), 1)
    assert_same(together, at_best("gaussian")[0])
    assert sum(site.num_rows for site in sites.values()) == 48
    backwards = dict(reversed(shares(number).items()))
    assert_same(mode(model, y, backwards, 1)[0], together)
    assert_same(mode(together, y, shares(number), 1)[0], together)


@pytest.mark.parametrize(("number", "is_sorted"), [(4, False), (16, True)])
@pytest.mark.parametrize("mode", [at_once, in_turn])
@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
def test_else_ten_rounds_reach_the_bound_of_all_rows(name, mode, number, is_sorted):
    best = at_best(name)[1]
    rows, y = shares(number, is_sorted), TARGETS[name][1]
    first, sites = mode(start(name), y, rows, 1)
    assert best - bound(name, first) > 1e-4  # one round is not enough
    last, _ = mode(first, y, rows, 9, sites)
    assert abs(best - bound(name, last)) / 48 < 1e-7


@pytest.mark.parametrize("name", ["noise", "outliers"])
def test_sites_that_are_not_log_concave_make_a_posterior(name):
    rows, y = shares(16), TARGETS[name][1]
    model, sites = start(name), {}
    for _ in range(10):
        model, sites = at_once(model, y, rows, 1, sites)
        assert model.posterior.is_inside().all()
    assert min(np.linalg.eigvalsh(site.precision).min() for site in sites.values()) < 0
    best = at_best(name)[1]
    assert abs(best - bound(name, model)) / 48 < 1e-3


def test_sites_that_make_no_posterior_go_a_part_of_the_way():
    y, model = TARGETS["outliers"][1], start("outliers")
    site = fit_site(model, (X[:3], y[:3]))
    wild = site._replace(precision=site.precision - 0.4 * np.eye(8))
    sites = {name: wild for name in "abc"}
    together, taken = combine(model, sites)
    assert together.posterior.is_inside().all()
    np.testing.assert_allclose(taken["a"].precision, wild.precision / 2)
    np.testing.assert_allclose(taken["a"].linear, wild.linear / 2)
    precision = np.eye(8) + sum(each.precision for each in taken.values())
    found = np.linalg.inv(together.posterior.covariance())
    np.testing.assert_allclose(found, precision, atol=1e-9)


@pytest.mark.parametrize(
    ("is_whitened", "side", "storage"),
    [(False, Moments, Log), (True, Canonical, Full)],
)
def test_sites_are_the_same_in_all_coordinates_of_q(is_whitened, side, storage):
    y, prior = TARGETS["bernoulli"][1], start("bernoulli", is_whitened=is_whitened)
    root = {Full: np.eye(8), Sqrt: np.eye(8), Log: np.zeros((8, 8))}[storage]
    q = side(jnp.zeros(8), storage(jnp.asarray(root)))
    q = q.at_natural(prior.posterior.natural())
    model = dataclasses.replace(prior, posterior=q)
    found, sites = at_once(model, y, shares(4), 2)
    plain, others = at_once(start("bernoulli"), y, shares(4), 2)
    assert type(found.posterior) is side
    for name, site in sites.items():
        for a, b in zip(site[:2], others[name][:2], strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    at = jnp.asarray(X)
    for a, b in zip(found.marginals(at), plain.marginals(at), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_a_party_that_drops_out_is_left_out_with_all_its_rows():
    y, model, rows = TARGETS["gaussian"][1], start("gaussian"), shares(4)
    together, sites = at_once(model, y, rows, 1)
    left = {name: sites[name] for name in ("p0", "p1", "p3")}
    kept = np.concatenate([rows[name] for name in left])
    without = update(model, (X[kept], y[kept]))
    assert_same(combine(together, left, sites).model, without)
    assert_same(combine(together, left).model, without)
    assert_same(combine(together, {}).model, model, atol=1e-12)


def test_rows_count_by_their_weights():
    y, model = TARGETS["gaussian"][1], start("gaussian")
    weight = np.repeat([1.0, 2.0], 8)
    twice = np.concatenate([np.arange(16), np.arange(8, 16)])
    one = fit_site(model, (X[:16], y[:16], weight))
    other = fit_site(model, (X[twice], y[twice]))
    np.testing.assert_allclose(one.precision, other.precision, rtol=0, atol=1e-8)


def test_several_outputs_have_columns_and_kernels_of_their_own():
    y = np.stack([TARGETS["gaussian"][1], -TARGETS["gaussian"][1]], 1)
    y[5:9, 1] = np.nan
    noise, mixing = likelihoods.Gaussian(0.1), [[1.0, 0.3], [-1.0, 0.3]]
    likelihood = likelihoods.LinearCoregionalization(noise, mixing)
    kernel = kernels.Separate([kernels.Matern52(1.0), kernels.RBF(0.5)])
    model = SparseGP(kernel, likelihood, Z)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        both, _ = at_once(model, y, shares(4), 8)
        assert_same(both, update(model, (X, y)), atol=1e-4)


def test_rows_far_from_the_inducing_inputs_are_warned_of():
    y, model = TARGETS["gaussian"][1], start("gaussian")
    with pytest.warns(InputWarning, match="see little of these 16 rows: they leave 1"):
        fit_site(model, (X[:16] + 20, y[:16]))


def test_single_precision_is_enough():
    y = np.float32(TARGETS["gaussian"][1])
    kernel = kernels.Matern52(np.float32(1), np.float32(1))
    likelihood = likelihoods.Gaussian(np.float32(0.1))
    model = SparseGP(kernel, likelihood, np.float32(Z))
    both, sites = at_once(model, y, shares(4), 1)
    assert sites["p0"].precision.dtype == np.float32
    assert_same(both, update(model, (np.float32(X), y)), atol=1e-3)


@functools.cache
def honest():
    y, model, rows = TARGETS["gaussian"][1], start("gaussian"), shares(4)
    return (model, *at_once(model, y, rows, 1))


def spoiled(part, place, value):
    def spoil(site):
        array = getattr(site, part).copy()
        array[place] = value
        return site._replace(**{part: array})

    return spoil


NONSENSE = {
    "not finite": spoiled("linear", 0, np.nan),
    "has numbers that are not finite": spoiled("precision", (0, 0), np.inf),
    "not symmetric": spoiled("precision", (0, 1), 1e4),
    "leaves no posterior": lambda s: s._replace(precision=-2 * s.precision),
    "takes more than the prior": lambda s: s._replace(precision=-1e4 * np.eye(8)),
    "cannot tell more than": lambda s: s._replace(precision=s.precision * 1e14),
    "standard deviations of the prior": lambda s: s._replace(linear=s.linear * 1e9),
    "shape": lambda s: s._replace(linear=s.linear[:-1]),
    "of float32": lambda s: s._replace(linear=np.float32(s.linear)),
    "of another model": lambda s: s._replace(model="0" * 64),
    "whole number": lambda s: s._replace(num_rows=-1),
    "should be a PartySite": tuple,
}


@pytest.mark.parametrize("message", NONSENSE)
def test_nonsense_is_noticed_by_the_name_of_its_party(message):
    _, model, sites = honest()
    before = jax.tree.map(np.array, model)
    bad = sites | {"p2": NONSENSE[message](sites["p2"])}
    with pytest.raises(InputError, match=message) as caught:
        combine(model, bad, sites)
    assert "p2" in str(caught.value)
    jax.tree.map(np.testing.assert_array_equal, model, before)
    assert_same(combine(model, sites, sites).model, model)
    if message not in ("leaves no posterior", "takes more than the prior"):
        with pytest.raises(InputError, match=message):
            combine(model, sites, bad)


def test_a_party_is_asked_for_its_own_site():
    model, together, sites = honest()
    y = TARGETS["gaussian"][1]
    # A model that lacks the site does not matter to rows of Gaussian noise.
    same = fit_site(model, (X[:12], y[:12]), sites["p0"])
    np.testing.assert_allclose(same.linear, sites["p0"].linear, atol=1e-5)
    other = dataclasses.replace(together, likelihood=likelihoods.Gaussian(0.02))
    with pytest.raises(InputError, match="the site is a site of another model"):
        fit_site(other, (X[:3], y[:3]), sites["p0"])
    with pytest.raises(InputError, match="the inputs of data have shape"):
        fit_site(model, (X[:3].repeat(2, 1), y[:3]))
    wide = sites["p0"]._replace(precision=sites["p0"].precision - 200 * np.eye(8))
    with pytest.raises(InputError, match="leave out `before`"):
        combine(together, sites, {"p0": wide})


def test_a_site_is_loaded_as_it_was_saved(tmp_path):
    _, _, sites = honest()
    save_site(sites["p0"], tmp_path / "a")
    found = load_site(tmp_path / "a")
    jax.tree.map(np.testing.assert_array_equal, found, sites["p0"])
    save_site(found, tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with jax.enable_x64(False), pytest.raises(IncompatibleFileError, match="32 bits"):
        load_site(tmp_path / "a")
    for bad in (NONSENSE["not finite"], NONSENSE["shape"]):
        with pytest.raises(InputError):
            save_site(bad(sites["p0"]), tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_every_flipped_bit_of_a_site_is_noticed(tmp_path):
    path = tmp_path / "site"
    save_site(honest()[2]["p0"], path)
    good = path.read_bytes()
    for bit in np.random.default_rng(1).choice(8 * len(good), 500, replace=False):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with pytest.raises(REFUSED, match="site"):
            load_site(path)


HOSTILE = {
    "another schema": ({"schema": "natgrad.gp.SparseGP"}, {}),
    "a newer version": ({"version": 2}, {}),
    "a version that is true": ({"version": True}, {}),
    "more than there is": ({"hook": "os.system"}, {}),
    "rows of text": ({"num_rows": "50"}, {}),
    "rows that are true": ({"num_rows": True}, {}),
    "too many rows": ({"num_rows": 2**60}, {}),
    "a hash of a hash": ({"model": ["0" * 64]}, {}),
    "a hash of letters": ({"model": "z" * 64}, {}),
    "an array too many": ({}, {"rows": X}),
    "a precision on a line": ({}, {"precision": np.ones(64)}),
    "a precision of 7": ({}, {"precision": np.eye(7)}),
    "whole numbers": ({}, {"linear": np.arange(8)}),
    "halves": ({}, {"linear": np.ones(8, "f2"), "precision": np.eye(8, dtype="f2")}),
    "mixed": ({}, {"linear": np.ones(8, "f4")}),
    "no axis": ({}, {"linear": np.ones(()), "precision": np.ones(())}),
    "no numbers": ({}, {"linear": np.ones(0), "precision": np.ones((0, 0))}),
    "infinite": ({}, {"linear": np.full(8, np.inf)}),
    "not symmetric": ({}, {"precision": np.tri(8)}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_of_a_site_is_refused(name, tmp_path):
    path = tmp_path / "site"
    save_site(honest()[2]["p0"], path)
    document, arrays = container.read(path)
    changed, others = HOSTILE[name]
    container.write(path, document | changed, arrays | others)
    with pytest.raises(REFUSED, match="site"):
        load_site(path)
