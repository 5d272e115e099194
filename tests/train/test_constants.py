"""What is not a number among the parameters is kept, and the rest is trained."""

import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import natgrad
from natgrad import gp
from natgrad.errors import InputError, InputWarning
from natgrad.families import diagonal
from natgrad.gp import kernels, likelihoods
from natgrad.positive import Log
from tests.variants import variants


RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (60, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.standard_normal(60)
ROWS = natgrad.data.Batch(jnp.asarray(X), jnp.asarray(Y))


def deep_kernel() -> type:
    """The class that docs/howto/kernels.md shows."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "kernels.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "class Deep(" in block]
    names: dict = {}
    exec(compile(block, str(page), "exec"), names)
    return names["Deep"]


Deep = deep_kernel()


def network(out: int | str = 2) -> eqx.nn.MLP:
    return eqx.nn.MLP(2, out, 4, 1, activation=jnp.tanh, key=jax.random.key(0))


def deep_model() -> gp.SparseGP:
    kernel = Deep(network(), kernels.RBF(1.0))
    return gp.SparseGP(kernel, likelihoods.Gaussian(0.3), X[:10])


def weights(model) -> list:
    return jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))


def elbo_of(model) -> float:
    return float(jax.jit(lambda: gp.elbo(model, ROWS))())


@pytest.mark.filterwarnings("ignore:there are 60 distinct rows")
@pytest.mark.parametrize("batch_size", variants([None, 30], [None]))
def test_a_kernel_with_a_network_in_it_is_trained(batch_size):
    model = deep_model()
    held_out = None if batch_size is None else (X[:5], Y[:5])
    options = {"held_out": held_out, "batch_size": batch_size, "progress": False}
    with jax.numpy_dtype_promotion("standard"):  # Adam counts in 32 bits
        fitted, _ = gp.fit(model, (X, Y), steps=8, **options)
    assert elbo_of(fitted) > elbo_of(model)
    assert fitted.kernel.network.activation is model.kernel.network.activation
    before, after = (each.kernel.network.layers[0].weight for each in (model, fitted))
    assert not np.allclose(before, after)


def test_a_network_next_to_a_distribution_is_trained():
    q = diagonal.Moments(jnp.zeros(1), Log(jnp.zeros(1)))
    params = {"q": q, "network": network("scalar")}
    seen = []

    def loss(params, batch):
        mean = jax.vmap(params["network"])(batch.x) + params["q"].mean
        error = (batch.y - mean) ** 2 + params["q"].variances()
        return 60 * 10 * error.mean() / 2 + params["q"].kl(q)

    told = lambda record, params: seen.append(params["network"].activation)
    optimizer = natgrad.split(natgrad.mirror_descent(0.5), optax.sgd(1e-4))
    options = {"optimizer": optimizer, "callbacks": [told], "progress": False}
    fitted, history = natgrad.fit(loss, params, (X, Y), steps=6, log_every=3, **options)
    assert history[-1].objective > -float(loss(params, ROWS)) / 60
    assert fitted["network"].activation is jnp.tanh
    assert set(seen) == {jnp.tanh}


def test_a_model_with_a_function_in_it_is_not_saved_and_the_error_names_it(tmp_path):
    with pytest.raises(InputError, match=r"network\.activation is the function tanh"):
        gp.save(deep_model(), tmp_path / "model.natgrad")


def test_whole_numbers_are_kept_with_a_warning():
    q = diagonal.Moments(jnp.zeros(1), Log(jnp.zeros(1)))
    loss = lambda params, batch: params["q"].kl(q) + params["scale"] * batch.sum()
    with pytest.warns(InputWarning, match="scale.*not trained"):
        fitted, _ = natgrad.fit(
            loss, {"q": q, "scale": 2}, np.ones(4), steps=1, progress=False
        )
    assert fitted["scale"] == 2


def test_the_optimisers_take_what_equinox_leaves_of_a_tree():
    params = {"q": diagonal.Moments(jnp.ones(1), Log(jnp.zeros(1))), "f": jnp.tanh}
    trained, rest = eqx.partition(params, eqx.is_inexact_array)
    target = diagonal.Moments(jnp.zeros(1), Log(jnp.zeros(1)))
    loss = lambda trained: eqx.combine(trained, rest)["q"].kl(target)
    optimizers = (
        natgrad.ngd(0.1),
        natgrad.mirror_descent(0.1),
        natgrad.guarded_ngd(),
        natgrad.split(natgrad.guarded_ngd(), optax.sgd(0.1)),
    )

    def changes(trained):
        value, grads = jax.value_and_grad(loss)(trained)
        seen = {"value": value, "value_fn": loss}
        for tx in map(optax.with_extra_args_support, optimizers):
            updates, _ = tx.update(grads, tx.init(trained), trained, **seen)
            yield loss(optax.apply_updates(trained, updates)) - value

    assert all(change < 0 for change in jax.jit(lambda t: list(changes(t)))(trained))
