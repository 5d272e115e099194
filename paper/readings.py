"""Other readings of what the paper leaves open, for two of its claims.

Naval again, with q over the values u themselves and begun at the identity: the paper's
"directly parameterized Gaussian for q(u)" can be read so, while in the figures q is
whitened, as GPflow does it unless told otherwise. And figure 4 again with the rate of
Adam beside the natural step that Adam alone has there.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from natgrad import gp
from natgrad.families import gaussian
from natgrad.linalg import Sqrt
from paper import fig3, fig5
from paper.problems import problem
from paper.stochastic import Run, rule_of, trace
from paper.store import Columns, Config, Store


RATES = (0.01, 0.001)
BESIDE = 0.1


def configs(is_quick: bool, store: Store) -> Iterator[Config]:
    for spec in (*unwhitened(is_quick), *beside(is_quick)):
        yield spec.config()


def unwhitened(is_quick: bool) -> Iterator[Run]:
    steps, number = (10, 2) if is_quick else (fig5.STEPS, 15)
    for likelihood in fig5.LIKELIHOODS[:1] if is_quick else fig5.LIKELIHOODS:
        for rate in RATES[:1] if is_quick else RATES:
            base = Run(
                *("unwhitened", "naval", likelihood, 0, "Adam", steps),
                rate=rate,
                checks=number,
            )
            yield base
            yield base.with_schedule(*fig5.SCHEDULE)


def beside(is_quick: bool) -> Iterator[Run]:
    steps = 10 if is_quick else fig3.STEPS
    for name in list(fig3.SETS)[:1] if is_quick else fig3.SETS:
        base = Run("beside", name, fig3.SETS[name], 0, "NGD", steps, rate=BESIDE)
        yield base.with_schedule(*fig3.SCHEDULE)


def run(config: Config) -> Columns:
    spec = Run(**config)
    made = problem(spec.data, spec.likelihood, spec.split)
    if spec.figure == "unwhitened":
        whitened, size = made.model, len(made.model.inducing)
        model = gp.SparseGP(
            whitened.kernel,
            whitened.likelihood,
            whitened.inducing,
            gaussian.Moments(jnp.zeros(size), Sqrt(jnp.eye(size))),
            is_whitened=False,
        )
        made = made._replace(model=model)
    return trace(made, rule_of(spec, len(made.data.y)), spec)


def draw(table: Any, folder: Path) -> list[Path]:
    return []
