"""No program of natgrad hands jaxlib a batch of matrices to solve or to factor.

jaxlib splits a batch of triangular solves into tasks for a thread pool and waits for
them on threads of that pool: on two cores it can wait for ever. The programs are read,
not run.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import solve_triangular

import natgrad
from natgrad import gp
from natgrad.data._batches import Batch
from natgrad.gp import likelihoods
from natgrad.linalg import _triangular as triangular
from tests.points import POINTS
from tests.variants import variants


OF_MATRICES = [
    name
    for name in POINTS
    if name.startswith(("gaussian", "wishart", "normal_inverse"))
    and "turned" not in name
]
CALL = re.compile(
    r"(?:@lapack_\w(?:trsm|potrf)_ffi|stablehlo\.(?:triangular_solve|cholesky))"
)
SHAPE = re.compile(r"tensor<((?:\d+x)*)[a-z]\w*>")


def batched_calls(function, *args) -> list[str]:
    """The solves and factorizations of a program whose operands have three axes."""
    lines = jax.jit(function).lower(*args).as_text().splitlines()
    types = (line.rsplit(" : ", 1)[-1] for line in lines if CALL.search(line))
    return [t for t in types if any(s.count("x") > 2 for s in SHAPE.findall(t))]


def stacked(tree, number: int = 2):
    """So many copies of a tree, along a new axis of every leaf."""
    return jax.tree.map(lambda x: jnp.stack([x] * number), tree)


def test_a_batch_of_plain_solves_is_seen():
    roots = jnp.stack([jnp.eye(4)] * 3)
    solve = lambda root: solve_triangular(root, root, lower=True)
    assert batched_calls(jax.vmap(solve), roots)
    assert batched_calls(jax.vmap(jnp.linalg.cholesky), roots)
    assert not batched_calls(solve, roots[0])


def uses(q, other):
    """A natural gradient of all that a distribution offers, forwards and backwards."""

    def values(q):
        draw = q.statistics(q.sample(jax.random.key(0)))
        entries = jax.tree.leaves((q.natural(), q.expectation(), draw))
        sums = sum(jnp.sum(jnp.sin(x)) for x in entries)
        return sums + jnp.sum(q.kl(other) + q.entropy() + q.log_normalizer(q.natural()))

    return natgrad.natural_gradient(q, jax.grad(values)(q))


@pytest.mark.parametrize(
    "name", variants(OF_MATRICES, ["gaussian.Moments(Sqrt)", "wishart.ScaleDof(Sqrt)"])
)
def test_families_solve_one_matrix_at_a_time(name):
    batch = stacked(POINTS[name])  # a batch of its own, in a batch of `vmap`
    assert not batched_calls(jax.vmap(uses), stacked(batch), stacked(batch))


CHARTS = ["Moments(Sqrt)", "Moments(Full)", "Canonical(Log)", "Canonical(Sqrt)"]


@pytest.mark.parametrize("chart", variants(CHARTS, ["Moments(Sqrt)"]))
def test_guarded_steps_solve_one_matrix_at_a_time(chart):
    q = POINTS[f"gaussian.{chart}"]
    tx = natgrad.guarded_ngd()

    def step(q, other):
        loss = lambda q: q.kl(other)
        value, grad = jax.value_and_grad(loss)(q)
        updates, _ = tx.update(grad, tx.init(q), q, value=value, value_fn=loss)
        return updates

    many = stacked(q)
    assert not batched_calls(jax.vmap(step), many, many)


def sparse_gp(likelihood) -> gp.SparseGP:
    z = jnp.asarray(np.random.default_rng(0).standard_normal((5, 2)))
    return gp.SparseGP(gp.kernels.Matern52(2), likelihood, z)


@pytest.mark.parametrize(
    "likelihood",
    [likelihoods.Poisson(), likelihoods.Softmax(3), likelihoods.StudentT()],
    ids=lambda each: type(each).__name__,
)
def test_sparse_models_solve_one_matrix_at_a_time(likelihood):
    model = sparse_gp(likelihood)
    rng = np.random.default_rng(1)
    batch = Batch(
        jnp.asarray(rng.standard_normal((6, 2))), jnp.asarray([0.0, 1.0, 2.0] * 2)
    )

    def step(model, x):
        loss = lambda model: -gp.elbo(model, batch._replace(x=x), 6)
        grads = jax.grad(loss)(model)
        direction = natgrad.natural_gradient(model.posterior, grads.posterior)
        return grads, direction, model.marginals(x)

    many = stacked(model), stacked(batch.x)
    assert not batched_calls(jax.vmap(step), *many)


def test_solves_are_those_of_one_matrix():
    rng = np.random.default_rng(0)
    roots = np.tril(rng.standard_normal((4, 5, 5))) + 3 * np.eye(5)
    x = rng.standard_normal((4, 5, 2))
    for ours, of in (
        (triangular.solve_lower, roots),
        (triangular.solve_lower_transposed, np.swapaxes(roots, -1, -2)),
    ):
        expected = np.linalg.solve(of, x)
        given = jnp.asarray(roots), jnp.asarray(x)
        for result in (ours(*given), jax.vmap(ours)(*given)):
            np.testing.assert_allclose(result, expected, atol=1e-12)
    np.testing.assert_allclose(
        triangular.cholesky(jnp.asarray(roots @ np.swapaxes(roots, -1, -2))),
        roots,
        atol=1e-12,
    )
