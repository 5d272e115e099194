"""Natural steps for `numpyro.infer.SVI`, which hands an optimizer its loss."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import optax
from jax import lax
from jaxtyping import Array, Float, PyTree
from numpyro.optim import _NumPyroOptim
from numpyro.primitives import Messenger

from natgrad._guarded import WEIGHT, guarded_ngd
from natgrad._optim import split
from natgrad.errors import InputError
from natgrad.families._base import is_distribution
from natgrad.numpyro._estimate import Named, sampler, slopes_of


DRAWS, DRAWS_OF_SOME = 8, 2
"""Draws of the latent numbers in each step on all rows, and on some of them: the choice
of rows is then the larger noise."""

RATE = 0.01
"""Adam's learning rate for the parameters of the model."""

BACK, BACK_TESTED = 1.0, 0.2
"""What a step that turns back on the last one adds to the count of such steps. A long
step, which was tested on the loss of all rows, adds less: there may be a way to go."""

FORWARD = 0.5
"""The cosine between two steps above which the count falls, and steps grow again."""

WINDOW = 8
"""Steps over which the distance to the optimum is averaged."""

Params = dict[str, Any]
Loss = Callable[[Params], tuple[Any, Any]]


class StepState(NamedTuple):
    """The state of `optimizer` after a step.

    `guarded` is that of `natgrad.split`. `change` is the last step in θ, `length` its
    squared length in the Fisher metric, and `steps` how many steps turned back on the
    one before: the step size falls with it. `excess` estimates how many nats each of
    the last steps was above the optimum.
    """

    guarded: Any
    change: Any
    length: Float[Array, ""]
    steps: Float[Array, ""]
    excess: Float[Array, " W"]


class Plates(Messenger):
    """Looks at the plates of a loss, whether any draws some of its rows."""

    is_subsampled = False

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate":
            size, drawn = msg["args"]
            self.is_subsampled |= size != drawn


class NaturalSteps(_NumPyroOptim):
    """The optimizer that `optimizer` returns."""

    def __init__(self, draws: int | None, learning_rate: float, seed: int):
        noisy = guarded_ngd(is_noisy=True)
        self._draws, self._seed = draws, seed
        self._tx = split(noisy, optax.adam(learning_rate))
        super().__init__(lambda: (self._init, self._refuse, lambda state: state[0]))

    def _init(self, params: Params) -> tuple[Params, StepState]:
        posteriors = _posteriors(params)
        if not posteriors:
            raise InputError(
                "the guide has no distribution of natgrad among its parameters; use "
                "natgrad.numpyro.AutoNatural, or another optimizer"
            )
        still = jax.tree.map(jnp.zeros_like, jax.eval_shape(_natural, posteriors))
        zero = jnp.zeros((), float)
        window = jnp.full(WINDOW, jnp.inf, float)
        state = StepState(self._tx.init(params), still, zero, zero, window)
        return params, state

    def _refuse(self, *_: object, **__: object) -> Any:
        raise InputError(
            "natural steps need the loss, not its gradient; call eval_and_update, as "
            "SVI does"
        )

    def eval_and_update(
        self, fn: Loss, state: Any, forward_mode_differentiation: bool = False
    ) -> tuple[tuple[Any, Any], Any]:
        """Takes a step on the loss `fn`, which `SVI` calls for you."""
        count, (params, before) = state
        key = jax.random.fold_in(jax.random.key(self._seed), count)
        size = WEIGHT / (WEIGHT + before.steps)
        plates = Plates()
        with plates:
            aux = fn(params)[1]
        draws = self._draws or (DRAWS_OF_SOME if plates.is_subsampled else DRAWS)
        value_fn, value, grad = _estimates(fn, params, key, draws, size)
        # The size of a step falls with the steps that turn back, and not with all.
        ours = before.guarded.distributions
        ours = ours._replace(steps=jnp.round(before.steps).astype(int))
        guarded = before.guarded._replace(distributions=ours)
        updates, guarded = self._tx.update(
            grad, guarded, params, value=value, grad=grad, value_fn=value_fn
        )
        moved: Any = optax.apply_updates(params, updates)
        after = _after(before, guarded, params, moved, grad, plates.is_subsampled)
        return (value, aux), (count + 1, (moved, after))

    def eval_and_stable_update(
        self, fn: Loss, state: Any, forward_mode_differentiation: bool = False
    ) -> tuple[tuple[Any, Any], Any]:
        """The same: a step that is not finite is refused anyway."""
        return self.eval_and_update(fn, state, forward_mode_differentiation)


def optimizer(
    draws: int | None = None, learning_rate: float = RATE, seed: int = 0
) -> NaturalSteps:
    """Natural-gradient steps for `SVI`, with no step size to set.

    Use it with a guide such as `AutoNatural`. Each step draws the latent numbers
    `draws` times and evaluates the gradient and the Hessian of the log density there;
    by default 8 times, or twice if a plate has a `subsample_size`. The step size is
    chosen as `natgrad.guarded_ngd` does. It falls once the steps turn back on each
    other, so the draws and rows of many steps average out. Adam moves the
    parameters of the model, at `learning_rate`. `Trace_ELBO()` with one particle is
    enough, and `seed` fixes the draws.

    Raises:
        InputError: If `draws` is not positive, or the guide has no distribution of
            natgrad.

    >>> import numpyro
    >>> from numpyro import distributions as dist
    >>> def model(y):
    ...     rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    ...     numpyro.sample("y", dist.Poisson(rate), obs=y)
    >>> guide = natgrad.numpyro.AutoNatural(model)
    >>> steps = natgrad.numpyro.optimizer()
    >>> svi = numpyro.infer.SVI(model, guide, steps, numpyro.infer.Trace_ELBO())
    >>> counts = jnp.array([3, 5, 4])
    >>> result = svi.run(jax.random.key(0), 20, counts, progress_bar=False)
    >>> print(f"{guide.median(result.params)['rate']:.1f}")  # exact: 3.4
    3.4
    """
    if draws is not None and draws < 1:
        raise InputError(f"draws is {draws}; it should be positive")
    return NaturalSteps(draws, learning_rate, seed)


def _posteriors(params: Params) -> Params:
    return {name: value for name, value in params.items() if is_distribution(value)}


def _natural(posteriors: Params) -> Any:
    return {name: q.natural() for name, q in posteriors.items()}


def _estimates(
    fn: Loss, params: Params, key: Array, draws: int, size: Array
) -> tuple[Callable[[Params], Any], Any, Params]:
    """The loss as a function of the parameters, its value and gradient at `params`.

    The random numbers are the same at all parameters: those of `fn` are part of it, and
    the latent numbers are put in the place of those that the guide would draw.
    """
    posteriors = _posteriors(params)
    keys = dict(zip(posteriors, jax.random.split(key, len(posteriors)), strict=True))
    draws += draws % 2  # Gaussians have pairs
    samplers = {name: sampler(keys[name], q, draws) for name, q in posteriors.items()}

    def energy(latent: Named, params: Params) -> Any:
        # As NumPyro's automatic guides name the site that they sample.
        stems = {name: name.removesuffix("_posterior") for name in latent}
        sites = {f"_{stems[name]}_latent": z for name, z in latent.items()}
        with numpyro.handlers.substitute(data=sites):
            loss = fn(params)[0]
        return loss - sum(params[name].log_prob(z).sum() for name, z in latent.items())

    here = lambda latent: energy(latent, params)
    signs = jax.random.fold_in(key, len(posteriors))
    grad, mean, fits, latent = slopes_of(here, posteriors, samplers, signs, size)

    def rest(params: Params, latent: Named) -> Any:
        """What the loss has besides the energy, and the error of the energy's mean."""
        entropy = sum(params[name].entropy().sum() for name in samplers)
        errors = [_error(params[name], latent[name], fits[name]) for name in fits]
        return sum(errors) - entropy

    def value_fn(params: Params) -> Any:
        latent = {name: draw(params[name]) for name, draw in samplers.items()}
        energies = lax.map(lambda latent: energy(latent, params), latent)
        return energies.mean() + rest(params, latent)

    fixed = {name: params[name] for name in grad}
    free = {name: value for name, value in params.items() if name not in grad}
    if not free:
        return value_fn, mean + rest(params, latent), grad
    value, others = jax.value_and_grad(lambda free: value_fn({**fixed, **free}))(free)
    return value_fn, value, {**grad, **others}


def _error(q: Any, draws: Array, fit: PyTree) -> Any:
    """⟨x, η⟩ less the mean of ⟨x, T(z)⟩: what a fit knows of the error of the mean."""
    means = jax.tree.map(lambda t: t.mean(0), q.statistics(draws))
    return _inner(fit, jax.tree.map(jnp.subtract, q.expectation(), means))


def _after(
    before: StepState,
    guarded: Any,
    params: Params,
    moved: Params,
    grad: Params,
    is_subsampled: bool,
) -> StepState:
    """The state after a step from `params` to `moved`."""
    here, there = _posteriors(params), _posteriors(moved)
    change = jax.tree.map(jnp.subtract, _natural(there), _natural(here))
    shift = {
        name: jax.tree.map(jnp.subtract, q.expectation(), here[name].expectation())
        for name, q in there.items()
    }
    # The Fisher product of two steps is ⟨Δη, Δθ⟩. While it is positive, the steps lead
    # somewhere; noise has no direction, and drawn rows are noise until they agree.
    along, length = _inner(shift, before.change), _inner(shift, change)
    cosine = along / jnp.sqrt(length * before.length + 1e-30)
    is_tested = guarded.distributions.tests > before.guarded.distributions.tests
    back = jnp.where(is_tested & (not is_subsampled), BACK_TESTED, BACK)
    least = FORWARD if is_subsampled else 0.0
    turns = jnp.where(cosine <= least, back, jnp.where(cosine > FORWARD, -1.0, 0.0))
    steps = jnp.maximum(before.steps + turns, 0)
    # A step of size γ from noise of variance v moves by γ²v and rests at γv/2.
    size = guarded.distributions.step_size
    divergence = sum(q.kl(here[name]).sum() for name, q in there.items())
    excess = jnp.where(size > 0, divergence / (2 * size), jnp.inf)
    for name in params.keys() - here.keys():
        step = jax.tree.map(jnp.subtract, moved[name], params[name])
        excess += jnp.abs(_inner(grad[name], step))
    window = jnp.concatenate([before.excess[1:], excess[None].astype(float)])
    return StepState(guarded, change, length, steps, window)


def _inner(first: PyTree, second: PyTree) -> Any:
    products = jax.tree.map(lambda a, b: (a * b).sum(), first, second)
    return sum(jax.tree.leaves(products))
