"""The parameters of a kernel object are in the units of the table's inputs."""

import jax
import numpy as np
import pytest

from natgrad import gp
from natgrad.data import Batch
from natgrad.gp import exact, kernels, likelihoods
from natgrad.gp.kernels._base import Sum
from natgrad.sklearn import GPRegressor, load
from natgrad.sklearn._kernels import (
    initial_kernels,
    is_convertible,
    lengthscales,
    rescaled,
)
from natgrad.sklearn._targets import CONSTANT


pytestmark = pytest.mark.filterwarnings("ignore:the ELBO still")

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (150, 2)) * [1.0, 30.0] + [5.0, -70.0]
Y = np.sin(2 * X[:, 0]) + 0.02 * X[:, 1] + 0.2 * RNG.standard_normal(150)
SHORT = {"max_iter": 4, "n_inducing": 16, "verbose": 0}


class Cosine(kernels.AbstractKernel):
    """Of a class of the user's own, with units that natgrad does not know."""

    log_length: jax.Array

    def __call__(self, x, z):
        return jax.numpy.cos((x[:, :1] - z[:, 0]) / jax.numpy.exp(self.log_length))


class Wide(kernels.AbstractStationary):
    """Of the user's own, and of the distance alone."""

    def of_squared_distance(self, squared):
        return self.variance / (1 + squared)


def composite(unit):
    """A kernel of all kinds, for inputs in units of 1/unit."""
    one = kernels.Matern32(0.7 * unit, 2.0) * kernels.Periodic(1.1, 0.5, 3.0 * unit)
    other = kernels.OnInputs(kernels.RBF(20.0 * unit), [1])
    more = kernels.Linear([0.3 / unit**2, 0.1 / unit**2])
    return one + other + more + kernels.Polynomial(2, 5.0 * unit) + Wide(4.0 * unit)


def mean_and_std(model, x):
    return np.stack(model.predict(x, return_std=True))


@pytest.mark.parametrize("make", [lambda unit: kernels.RBF(0.7 * unit), composite])
def test_a_lengthscale_in_other_units_is_the_same_kernel(make, tmp_path):
    one = GPRegressor("gaussian", kernel=make(1.0), **SHORT).fit(X, Y)
    other = GPRegressor("gaussian", kernel=make(1e3), **SHORT).fit(1e3 * X, Y)
    np.testing.assert_allclose(
        mean_and_std(one, X), mean_and_std(other, 1e3 * X), rtol=1e-6
    )
    # What a file keeps of the object is in these units too.
    one.save(tmp_path / "model.natgrad")
    kept = load(tmp_path / "model.natgrad", custom={"Wide": Wide}).kernel
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        scaled = jax.numpy.asarray(one._scaled(X))
        expected = one.model_.kernel(scaled, scaled)
        centred = jax.numpy.asarray(X - one.x_mean_)
        np.testing.assert_allclose(kept(centred, centred), expected, rtol=1e-6)


def test_it_means_what_it_does_to_the_model():
    x, kernel = X[:, 1:], kernels.Matern52(15.0, 1.5)
    y = (Y - Y.mean()) / Y.std()
    estimator = GPRegressor(likelihoods.Gaussian(0.1), kernel=kernel, verbose=0)
    estimator.fit(x, y)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        start = exact.Hyperparameters(
            kernels.Matern52(15.0, 1.5), likelihoods.Gaussian(0.1), gp.means.Zero()
        )
        rows = Batch(x, y)
        fitted = exact.fit([start], exact.inducing_inputs(x), rows, progress=False)
        lengthscale = np.asarray(fitted.params.kernel.lengthscale)
    np.testing.assert_allclose(estimator.lengthscales_, lengthscale, rtol=1e-3)
    np.testing.assert_allclose(estimator.elbo_, fitted.history[-1].objective, rtol=1e-6)


def test_a_shared_lengthscale_stays_shared_if_all_scales_are_equal():
    kernel = kernels.RBF(2.0)
    (same,) = initial_kernels(kernel, np.array([4.0, CONSTANT, 4.0]))
    np.testing.assert_allclose(same.lengthscale, 0.5, rtol=1e-6)
    assert same.lengthscale.shape == ()
    (own,) = initial_kernels(kernel, np.array([4.0, CONSTANT, 0.5]))
    np.testing.assert_allclose(own.lengthscale, [0.5, 2.0, 4.0], rtol=1e-6)
    back = rescaled(own, np.array([4.0, CONSTANT, 0.5]), is_inverse=True)
    np.testing.assert_allclose(back.lengthscale, 2.0, rtol=1e-6)


def test_a_kernel_that_cannot_be_converted_sees_the_inputs_as_they_are():
    kernel = Cosine(jax.numpy.log(0.4))
    assert not is_convertible(kernel) and not is_convertible(kernels.RBF() + kernel)
    x = np.column_stack([X, np.full(len(X), 7.0)])
    model = GPRegressor("gaussian", kernel=kernel, **SHORT).fit(x, Y)
    np.testing.assert_array_equal(model._scaled(x)[:, :2], X)
    np.testing.assert_array_equal(model._scaled(x)[:, 2], 0.0)
    assert model.x_scale_[2] == CONSTANT


def test_a_kernel_for_another_number_of_inputs_is_refused_by_its_lengthscale():
    with pytest.raises(ValueError, match="lengthscale has shape .3., but x has 2"):
        GPRegressor("gaussian", kernel=kernels.RBF([1.0, 2.0, 3.0]), **SHORT).fit(X, Y)


def test_verbose_is_as_in_scikit_learn(capfd):
    lines = {}
    for verbose in (0, False, True, 2):
        GPRegressor("gaussian", max_iter=3, verbose=verbose).fit(X, Y)
        lines[verbose, type(verbose)] = capfd.readouterr().err.splitlines()
    assert lines[0, int] == lines[False, bool] == []
    assert 0 < len(lines[True, bool]) < len(lines[2, int])
    assert sum(line.startswith("step ") for line in lines[2, int]) >= 3


def test_lengthscales_of_a_sum_are_those_of_its_parts_by_variance():
    part = lambda lengthscale, variance: kernels.Matern52(lengthscale, variance)
    same = part([0.5, 2.0], 1.0) + part([0.5, 2.0], 3.0) + part([0.5, 2.0], 0.2)
    np.testing.assert_allclose(lengthscales(same), [0.5, 2.0], rtol=1e-6)
    # The slope of a function along an input has variance Σ v/ℓ², up to a factor.
    mixed = part([0.5, 2.0], 1.0) + part([1.0, 8.0], 4.0)
    slopes = np.array([1 / 0.5**2 + 4 / 1.0**2, 1 / 2.0**2 + 4 / 8.0**2])
    np.testing.assert_allclose(lengthscales(mixed), np.sqrt(5 / slopes), rtol=1e-6)
    own = Cosine(jax.numpy.log(0.4))
    object.__setattr__(own, "lengthscale", 0.4)  # and no variance
    for other in (kernels.Linear(), kernels.Periodic(), part(1.0, 1.0) + own):
        assert lengthscales(other) is None


def test_auto_tries_a_rough_part_where_rows_can_tell_it(tmp_path):
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, (300, 2))
    rough = 0.6 * np.sign(np.sin(8 * x[:, 0]))
    y = np.sin(x[:, 1]) + rough + 0.05 * rng.standard_normal(300)
    model = GPRegressor("gaussian", verbose=0).fit(x, y)
    smooth = GPRegressor("gaussian", kernel="matern52", verbose=0).fit(x, y)
    assert isinstance(model.model_.kernel, Sum)
    assert isinstance(smooth.model_.kernel, kernels.Matern52)
    assert model.elbo_ > smooth.elbo_ + 0.05
    assert "Matern52 + Matern12" in str(model)
    assert np.argmin(model.lengthscales_) == 0
    model.save(tmp_path / "model.natgrad")
    loaded = load(tmp_path / "model.natgrad")
    assert loaded.kernel == "auto"
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))
    few = GPRegressor("gaussian", verbose=0, max_iter=3).fit(x[:200], y[:200])
    assert isinstance(few.model_.kernel, kernels.Matern52)
