"""Runs on batches of rows: what figures 3 to 7 have in common."""

import dataclasses
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import natgrad
from natgrad import gp
from natgrad.data import Arrays, Batch
from natgrad.gp._fit import default_rule
from natgrad.train import Rule, in_turn
from natgrad.train._schedule import first_plan, planned, progress_of
from paper.problems import Problem, problem
from paper.store import Columns, Config


CHUNK = 2048


@dataclasses.dataclass(frozen=True)
class Run:
    """One curve of a figure, and all that it depends on.

    `method` is NGD, guarded, Adam, GD, or natgrad, which is what `gp.fit` does if
    nothing is set. `rate` is that of Adam or GD: of all parameters, or of those that
    the natural step does not move. `gamma_first`, `gamma_last` and `gamma_steps` are
    the paper's schedule for the natural step. It is evaluated `checks` times, evenly
    spaced in the logarithm of the iteration.
    """

    figure: str
    data: str
    likelihood: str
    split: int
    method: str
    steps: int
    rate: float | None = None
    gamma_first: float | None = None
    gamma_last: float | None = None
    gamma_steps: int | None = None
    rows: int = 256
    is_joint: bool = True
    checks: int = 40

    def config(self) -> Config:
        return dataclasses.asdict(self)

    def but(self, **changes: Any) -> "Run":
        return dataclasses.replace(self, **changes)

    def with_schedule(self, first: float, last: float, steps: int) -> "Run":
        """The same with a natural step that grows log-linearly, and then stays."""
        return self.but(
            method="NGD", gamma_first=first, gamma_last=last, gamma_steps=steps
        )


def run(config: Config) -> Columns:
    """The bound of the training rows and the density of the test rows, on the way.

    A quick form may have a `limit` of rows besides its `Run`.
    """
    spec = Run(**{name: config[name] for name in config if name != "limit"})
    made = problem(spec.data, spec.likelihood, spec.split, config.get("limit"))
    return trace(made, rule_of(spec, len(made.data.y)), spec)


def rule_of(spec: Run, total: int) -> Rule:
    """What a step of the method does."""
    if spec.method == "natgrad":
        return default_rule(total, min(1.0, spec.rows / total))
    natural = _natural(spec, total)
    if natural is None:
        optimizer = {"GD": optax.sgd, "Adam": optax.adam}[spec.method](spec.rate or 0.0)
        if spec.is_joint:
            return in_turn(
                lambda model, batch: -gp.elbo(model, batch, total), optimizer
            )
        return gp.alternating(optimizer, optax.set_to_zero(), total)
    if not spec.is_joint:
        return gp.alternating(natural, optax.set_to_zero(), total)
    return gp.alternating(natural, optax.adam(spec.rate or 0.0), total)


def _natural(spec: Run, total: int) -> optax.GradientTransformation | None:
    if spec.method == "guarded":
        return natgrad.guarded_ngd(min(1.0, spec.rows / total))
    if not spec.method.startswith("NGD"):
        return None
    assert spec.gamma_first and spec.gamma_last and spec.gamma_steps
    schedule = natgrad.log_linear(spec.gamma_first, spec.gamma_last, spec.gamma_steps)
    # A step of size γ in natural parameters, the paper's choice for NGD.
    return natgrad.mirror_descent(schedule)


def checks(spec: Run) -> list[int]:
    return sorted({round(float(at)) for at in np.geomspace(1, spec.steps, spec.checks)})


def trace(made: Problem, rule: Rule, spec: Run) -> Columns:
    """Takes the steps, and evaluates the model after some; evaluation is not timed.

    Seconds are those of the processor, so that others at work do not count, and without
    what it takes to restart after each evaluation.
    """
    model, data, test = made
    table = Arrays((data.x, data.y), spec.rows, spec.split)
    places = jnp.asarray(table.places(0, spec.steps))
    state = rule.init(model), first_plan() if rule.is_annealed else None
    seconds, wrong, begin = 0.0, 0, 0
    columns: Columns = {}

    def advance(begin: int, end: int) -> tuple[float, Any]:
        began = time.process_time()
        arrived = jax.block_until_ready(
            _advance(rule, model, state, data, places, begin, end)
        )
        return time.process_time() - began, arrived

    advance(0, 2)  # compiled, and its memory touched, before the clock runs
    to_begin = float(np.median([advance(0, 0)[0] for _ in range(5)]))
    for end in (0, *checks(spec)):
        took, (model, state, new) = advance(begin, end)
        seconds += max(0.0, took - to_begin) if end else 0.0
        begin, wrong = end, wrong + int(new)
        seen = {"iteration": end, "seconds": round(seconds, 5), "not_finite": wrong}
        seen["bound"] = float(_bound(model, *_chunks(data))) / len(data.y)
        for name, value in (seen | _on_test_rows(model, test)).items():
            columns.setdefault(name, []).append(value)
    return columns


def _on_test_rows(model: Any, test: Batch) -> dict[str, float]:
    """The mean log density, and the share of wrong classes where there are some."""
    predictor = gp.predictor(model)
    found = {"test": float(np.mean(predictor.log_density(test.x, test.y)))}
    if isinstance(model.likelihood, gp.likelihoods.RobustMax):
        classes = predictor.probabilities(test.x).argmax(1)
        found["error"] = float(np.mean(classes != np.asarray(test.y)))
    return found


@functools.partial(jax.jit, static_argnums=0)
def _advance(
    rule: Rule, model: Any, state: Any, data: Any, places: Any, begin: Any, end: Any
) -> Any:
    """Steps `begin` to `end`, and how many losses of theirs were not finite."""

    def body(i: Any, carry: Any) -> Any:
        model, (state, plan), wrong = carry
        batch = jax.tree.map(lambda column: column[places[i]], data)
        progress = progress_of(plan, i, len(places), 0.0)
        model, state, loss = rule.step(model, state, batch, progress=progress)
        plan = None if plan is None else planned(plan, i, loss, len(data.y))
        return model, (state, plan), wrong + (~jnp.isfinite(loss)).astype(int)

    return jax.lax.fori_loop(begin, end, body, (model, state, jnp.zeros((), int)))


def _chunks(data: Batch) -> tuple[Batch, Any]:
    """All rows in pieces of one shape, filled up with rows of weight 0."""
    total, size = len(data.y), min(CHUNK, len(data.y))
    short = -total % size
    fill = lambda leaf: np.concatenate([leaf, np.repeat(leaf[:1], short, axis=0)])
    cut = lambda leaf: fill(np.asarray(leaf)).reshape(-1, size, *leaf.shape[1:])
    weight = np.append(np.ones(total), np.zeros(short)).reshape(-1, size)
    return Batch(cut(data.x), cut(data.y), weight), total


@jax.jit
def _bound(model: Any, rows: Batch, total: Any) -> Any:
    """The evidence bound of all rows, a chunk at a time."""
    bounds = jax.lax.map(lambda batch: gp.elbo(model, batch), rows)
    return bounds.sum() + (len(bounds) - 1) * model.prior_kl()
