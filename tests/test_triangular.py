"""Products and factors are what they say, in blocks or not, and so are their slopes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad.linalg import _triangular as triangular
from tests.variants import variants


@pytest.fixture(params=variants([(7,), (3, 7), (300,), (600,)], [(3, 7), (300,)]))
def matrices(request):
    """Two lower triangular matrices, two sets of columns and a symmetric matrix."""
    *batch, size = request.param
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal((*batch, *shape)) / np.sqrt(shape[-1])
    symmetric = draw(size, size)
    return (
        np.tril(draw(size, size)) + np.eye(size),
        np.tril(draw(size, size)),
        draw(size, 5),
        draw(size, 5),
        symmetric + np.swapaxes(symmetric, -1, -2),
    )


def test_products_skip_only_zeros(matrices):
    a, b, x, y, s = matrices
    at = np.swapaxes(a, -1, -2)
    yt = np.swapaxes(y, -1, -2)
    close = lambda ours, theirs: np.testing.assert_allclose(ours, theirs, atol=1e-12)
    arrays = [jnp.asarray(m) for m in matrices]
    ja, jb, jx, jy, js = arrays
    close(triangular.lower_product(ja, jb), a @ b)
    close(jnp.tril(triangular.lower_of_product(ja, jb)), np.tril(at @ b))
    close(triangular.lower_apply(ja, jx), a @ x)
    close(triangular.upper_apply(ja, jx), at @ x)
    close(jnp.tril(triangular.lower_of_outer(jx, jy)), np.tril(x @ yt))
    close(triangular.congruent(ja, js), at @ s @ a)
    close(triangular.quadratic_form(js, jx), (x * (s @ x)).sum(-2))
    close(triangular.mirrored(jnp.tril(js)), s)


def test_inverses_of_factors_undo_them(matrices):
    a = matrices[0]
    cov = a @ np.swapaxes(a, -1, -2) + np.eye(a.shape[-1])
    eye = np.broadcast_to(np.eye(a.shape[-1]), cov.shape)
    lower = np.asarray(triangular.inverse_cholesky(jnp.asarray(cov)))
    np.testing.assert_allclose(lower @ np.linalg.cholesky(cov), eye, atol=1e-11)
    assert (np.triu(lower, 1) == 0).all()
    upper = np.asarray(triangular.inverse_upper(jnp.asarray(cov)))
    np.testing.assert_allclose(
        np.swapaxes(upper, -1, -2) @ upper, np.linalg.inv(cov), atol=1e-11
    )
    assert (np.tril(upper, -1) == 0).all()
    # Half a factor is none: what cannot be factorized is NaN on the diagonal.
    bad = jnp.asarray(cov - 1e3 * eye)
    diagonal = jnp.diagonal(triangular.inverse_cholesky(bad), axis1=-2, axis2=-1)
    assert not np.isfinite(np.asarray(diagonal)).all()


@pytest.mark.parametrize("is_shared", [False, True])
def test_slopes_are_those_of_autodiff(matrices, is_shared):
    a, _, x, _, s = (jnp.asarray(m) for m in matrices)
    if is_shared and x.ndim == 3:
        x = x[0]
    spread = lambda a, x: jnp.tril(a).mT @ x
    form = lambda s, x: (jnp.broadcast_to(x, (s @ x).shape) * (s @ x)).sum(-2)
    for ours, theirs, matrix in (
        (lambda a, x: triangular.upper_apply(jnp.tril(a), x), spread, a),
        (triangular.quadratic_form, form, s),
    ):
        weight = jnp.cos(theirs(matrix, x))
        slopes = [
            jax.grad(lambda m, x, f=f, w=weight: (w * f(m, x)).sum(), (0, 1))(matrix, x)
            for f in (ours, theirs)
        ]
        for mine, other in zip(*slopes, strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-11)
