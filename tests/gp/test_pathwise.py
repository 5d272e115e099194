"""Laws of functions drawn from the posterior."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad import gp
from natgrad.errors import InputError
from natgrad.families.gaussian import Moments
from natgrad.gp import SparseGP, kernels, likelihoods, means
from natgrad.gp._pathwise import Features, draw_paths, terms
from natgrad.linalg import Sqrt
from tests.gp.kernels import CASES, points
from tests.gp.test_sparse import problem, some_posterior
from tests.variants import variants


def is_drawn(kernel) -> bool:
    try:
        jax.eval_shape(lambda key: terms(kernel, key, 3, 2, float), jax.random.key(0))
    except InputError:
        return False
    return True


REFUSED = {
    name: type(case.kernel).__name__
    for name, case in CASES.items()
    if not is_drawn(case.kernel) and not name.endswith(".one")
} | {"product": "product of Linear"}
MORE = {
    "product of waves": kernels.RBF(0.8, 1.3)
    * kernels.OnInputs(kernels.Periodic(0.9, 0.7, 1.9), (1,))
    * kernels.Matern32([0.6, 1.1, 2.3]),
    "product of sums": (kernels.RBF(0.8) + 0.4) * (kernels.Constant(0.5) + 0.3),
    "line on inputs": 0.5 * kernels.OnInputs(kernels.Linear([0.3, 0.9]), (2, 0)),
    "periodic on inputs": kernels.OnInputs(kernels.Periodic([0.8, 1.2]), (2, 0)),
}
# Compilation is what costs, and the others have single lengthscales enough.
KERNELS = {
    name: kernel
    for name, (kernel, *_) in CASES.items()
    if name not in REFUSED and not name.endswith(".one")
} | MORE
EXACT = ("linear.each", "constant", "line on inputs")


@pytest.mark.parametrize("name", KERNELS)
def test_features_have_the_products_that_the_kernel_says(name):
    x, z, number = jnp.asarray(points().x), jnp.asarray(points().z), 4000
    kernel = KERNELS[name]
    parts = terms(kernel, jax.random.key(0), 3, number, x.dtype)
    phi = Features(tuple(parts), jnp.asarray([0.3, -0.2, 1.0]))
    scale = np.sqrt(np.outer(kernel.diag(x), kernel.diag(z)))
    error = np.abs(phi(x) @ phi(z).mT - kernel(x, z)) / scale
    assert error.max() < (1e-12 if name in EXACT else 5 / (2 * number) ** 0.5)


def test_sums_of_waves_are_drawn():
    drawn = [
        "matern12",
        "matern32",
        "matern52",
        "rbf",
        "rational",
        "periodic",
        "linear",
    ]
    assert {f"{name}.each" for name in drawn} | {"linear.each", "sum"} <= KERNELS.keys()


@pytest.mark.parametrize("name", REFUSED)
def test_kernels_without_waves_are_refused_by_name(name):
    kernel = kernels.RBF() + CASES[name][0]
    model = SparseGP(kernel, likelihoods.Gaussian(), points().z)
    with pytest.raises(InputError, match=f"{REFUSED[name]}.*sample_latent"):
        draw_paths(model, jax.random.key(0), 2)


def test_scales_of_a_parent_are_not_those_of_a_formula_of_ones_own():
    class Cauchy(kernels.RBF):
        def of_squared_distance(self, squared):
            return self.variance / (1 + squared)

    class Waved(Cauchy):
        def draw_scales(self, key, num, dtype):  # a mixture of RBF kernels
            return jnp.sqrt(2 * jax.random.exponential(key, (num,), dtype))

    class Same(Waved):
        pass

    draw = lambda kernel: terms(kernel, jax.random.key(0), 1, 4000, jnp.zeros(0).dtype)
    with pytest.raises(InputError, match="Cauchy.*sample_latent"):
        draw(Cauchy(1.0))
    points = jnp.array([[0.0], [0.5], [2.0]])
    for kernel in (Waved(1.0), Same(1.0)):
        (waves,) = draw(kernel)
        features = waves(points, jnp.zeros(1))
        np.testing.assert_allclose(
            features @ features.T, kernel(points, points), atol=0.05
        )


def case(name: str) -> SparseGP:
    """A model whose q is far from its prior, in two inputs."""
    x, _ = problem(30)
    z, kernel = x[:8], kernels.Matern52([0.8, 1.1], 1.3)
    likelihood, latents, mean = likelihoods.Gaussian(0.3), None, means.Constant(0.2)
    if name == "separate":
        likelihood, latents = likelihoods.HeteroskedasticGaussian(), 2
        lines = kernels.Linear(0.3) + kernels.Periodic(1.5, 0.5, 3.0)
        kernel, mean = kernels.Separate([kernel, lines]), means.Constant([0.2, -0.4])
    if name == "shared":
        likelihood, latents = likelihoods.RobustMax(3), 3
    q = some_posterior(8, 2, latents)
    return SparseGP(kernel, likelihood, z, q, mean, is_whitened=name != "not whitened")


FORMS = ["whitened", "not whitened", "shared", "separate"]


@pytest.mark.parametrize("name", variants(FORMS, ["not whitened"]))
def test_paths_have_the_moments_of_the_posterior(name):
    num, features = 2000, 256
    predictor = gp.predictor(case(name))
    x = problem(30)[0][8:14] + 0.05
    f = draw_paths(predictor, jax.random.key(1), num, features)(x)
    mean, var = predictor.latent(x)
    assert f.shape == (num, *mean.T.shape)
    # Five deviations of the draws, and of the features with the prior variance.
    tolerance = 5 * (2 / num) ** 0.5 * var.max() + 5 * 1.3 / (2 * features) ** 0.5
    np.testing.assert_allclose(f.mean(0), mean.T, atol=5 * (var.max() / num) ** 0.5)
    np.testing.assert_allclose(f.var(0), var.T, atol=tolerance)
    exact = predictor.sample_latent(jax.random.key(2), x, num)
    each = lambda f: np.reshape(f, (num, -1))
    difference = np.cov(each(f).T) - np.cov(each(exact).T)
    assert np.abs(difference).max() < 1.5 * tolerance


def test_a_path_is_one_function_in_chunks_of_any_size(monkeypatch):
    drawn = draw_paths(case("separate"), jax.random.key(1), 3, 16)
    x = np.random.default_rng(0).uniform(-3, 3, (200, 2))
    whole = drawn(x)
    assert whole.shape == (3, 2, 200)
    assert drawn(x[:0]).shape == (3, 2, 0)
    np.testing.assert_allclose(drawn(x[150:151]), whole[..., 150:151], rtol=1e-9)
    monkeypatch.setattr("natgrad.gp._prediction.ENTRIES", 64)
    np.testing.assert_allclose(drawn(x), whole, rtol=1e-9, atol=1e-12)
    at = eqx.filter_jit(lambda drawn, x: drawn.at(x))(drawn, jnp.asarray(x))
    np.testing.assert_allclose(at, whole, rtol=1e-9, atol=1e-12)
    one, step = jnp.asarray(x[:1]), jnp.full((1, 2), 1e-6)
    slope_of = lambda drawn: jax.jvp(drawn.at, (one,), (step,))[1]
    moved = drawn(one + step) - drawn(one)
    np.testing.assert_allclose(moved, eqx.filter_jit(slope_of)(drawn), rtol=1e-3)


def test_far_from_the_inducing_inputs_paths_are_draws_of_the_prior():
    num, features = 2000, 256
    drawn = draw_paths(case("whitened"), jax.random.key(3), num, features)
    f = drawn(np.asarray([[60.0, 40.0], [60.5, 40.0], [-90.0, 10.0]]))
    gram = case("whitened").kernel(
        jnp.asarray([[0.0, 0.0], [0.5, 0.0], [99.0, 0.0]]), jnp.zeros((1, 2))
    )[:, 0]
    tolerance = 5 * 1.3 * ((2 / num) ** 0.5 + (2 * features) ** -0.5)
    np.testing.assert_allclose(f.mean(0), 0.2, atol=5 * (1.3 / num) ** 0.5)
    np.testing.assert_allclose(np.cov(f.T)[0], gram, atol=tolerance)
    np.testing.assert_allclose(f.var(0), 1.3, atol=tolerance)


@pytest.mark.parametrize("is_whitened", [True, False])
def test_paths_go_through_what_q_is_sure_of(is_whitened):
    model = case("whitened" if is_whitened else "not whitened")
    sure = Moments(model.posterior.location(), Sqrt(1e-7 * jnp.eye(8)))
    model = eqx.tree_at(lambda m: m.posterior, model, sure)
    f = draw_paths(model, jax.random.key(4), 5)(model.inducing)
    mean, _ = gp.predictor(model).latent(model.inducing)
    # The kernel matrix has a jitter of 1e-10, which is noise of 1e-5.
    np.testing.assert_allclose(f, np.broadcast_to(mean, f.shape), atol=1e-4)


def test_a_model_in_float32_has_paths_in_float32():
    x = problem(30)[0].astype(np.float32)
    kernel = kernels.Matern52(0.8) + kernels.RationalQuadratic() * kernels.Periodic()
    model = SparseGP(kernel, likelihoods.Gaussian(), x[:8], some_posterior(8, 2))
    model = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), model)
    f = draw_paths(model, jax.random.key(0), 4, 64)(x)
    mean, var = gp.predictor(model).latent(x)
    assert f.dtype == np.float32
    assert (np.abs(f - mean[None]) < 6 * np.sqrt(var)[None]).all()


@pytest.mark.parametrize("wrong", ["num", "features", "x"])
def test_wrong_numbers_and_shapes_are_refused(wrong):
    model, key = case("whitened"), jax.random.key(0)
    with pytest.raises(InputError, match=f"{wrong} "):
        num, features = (0 if wrong == name else 2 for name in ("num", "features"))
        draw_paths(model, key, num, features)(np.zeros((2, 3)))
