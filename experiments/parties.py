"""How many rounds several parties need, and whether a forged site does harm.

    python experiments/parties.py

The first table has the nats per row by which the ELBO of parties that keep their rows
is below that of all rows at once. Parties have sorted rows, each a part of the range of
the first input. They fit at once or in turn. In the second table, sites of one party
are changed at random and combined with the others: `combine` raises an error with the
name of the party, or makes a proper posterior. Anything else is a failure. Both go to
results/parties.md.
"""

import argparse
import collections
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natgrad import gp
from natgrad.data import Batch
from natgrad.errors import InputError
from natgrad.gp import likelihoods


jax.config.update("jax_enable_x64", True)

OUT = Path(__file__).parent / "results" / "parties.md"
ROWS, SHOWN = 240, (1, 2, 3, 5, 10)
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (ROWS, 2))
X = X[X[:, 0].argsort()]
F = 1.5 * np.sin(2 * X[:, 0]) + X[:, 1]
TARGETS: dict[str, tuple[Any, np.ndarray]] = {
    "Gaussian": (likelihoods.Gaussian(0.01), F + 0.1 * RNG.normal(size=ROWS)),
    "Bernoulli": (likelihoods.Bernoulli(), 1.0 * (RNG.normal(size=ROWS) < F)),
    "Poisson": (likelihoods.Poisson(), 1.0 * RNG.poisson(np.exp(F + 1))),
    "StudentT": (likelihoods.StudentT(0.1), F + 0.1 * RNG.standard_t(2, size=ROWS)),
    "HeteroskedasticGaussian": (
        likelihoods.HeteroskedasticGaussian(),
        F + 0.3 * np.abs(X[:, 1]) * RNG.normal(size=ROWS),
    ),
    "Softmax(3)": (likelihoods.Softmax(3), 1.0 * np.digitize(F, [-0.7, 0.7])),
}
bound = jax.jit(gp.elbo)
marginals = jax.jit(gp.SparseGP.marginals)


def start(name: str) -> gp.SparseGP:
    z = np.random.default_rng(1).uniform(-2, 2, (20, 2))
    return gp.SparseGP(gp.kernels.Matern52([1.0, 1.0]), TARGETS[name][0], z)


def gaps(name: str, number: int, is_in_turn: bool) -> list[float]:
    """Nats per row below all rows at once, after each round."""
    y = TARGETS[name][1]
    rows = Batch(jnp.asarray(X), jnp.asarray(y))
    model = start(name)
    best = gp.combine(model, {"all": gp.fit_site(model, (X, y))}).model
    parts = dict(enumerate(np.array_split(np.arange(ROWS), number)))
    sites: dict[str, gp.PartySite] = {}
    found = []
    for _ in range(max(SHOWN)):
        new = {}
        for place, part in parts.items():
            party = str(place)
            new[party] = gp.fit_site(model, (X[part], y[part]), sites.get(party))
            if is_in_turn:
                model, sites = gp.combine(model, sites | new, sites)
                new = {}
        if not is_in_turn:
            model, sites = gp.combine(model, new, sites)
        found.append(float(bound(best, rows) - bound(model, rows)) / ROWS)
    return found


def _entry(array: np.ndarray, value: float, generator: np.random.Generator) -> Any:
    changed = array.copy()
    changed.flat[generator.integers(array.size)] = value
    return changed


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


Forgery = Callable[[gp.PartySite, np.random.Generator], gp.PartySite]
FORGERIES: dict[str, Forgery] = {
    "one number is not finite": lambda site, g: site._replace(
        linear=_entry(site.linear, g.choice([np.nan, np.inf, -np.inf]), g)
    ),
    "one number of the matrix": lambda site, g: site._replace(
        precision=_entry(site.precision, 10 ** g.uniform(-3, 12), g)
    ),
    "vector times 10^u": lambda site, g: site._replace(
        linear=site.linear * 10 ** g.uniform(-3, 18)
    ),
    "matrix times 10^u": lambda site, g: site._replace(
        precision=site.precision * 10 ** g.uniform(-3, 18)
    ),
    "matrix times -10^u": lambda site, g: site._replace(
        precision=-site.precision * 10 ** g.uniform(-6, 3)
    ),
    "noise on the matrix, symmetric": lambda site, g: site._replace(
        precision=site.precision
        + _symmetric(g.normal(size=site.precision.shape)) * 10 ** g.uniform(-3, 9)
    ),
    "number of rows": lambda site, g: site._replace(num_rows=int(g.integers(-9, 9))),
    "hash": lambda site, g: site._replace(model=f"{g.integers(2**60):064x}"),
}


def forged(number: int) -> dict[str, collections.Counter[str]]:
    """What became of forged sites of each kind."""
    model, y = start("Gaussian"), TARGETS["Gaussian"][1]
    parts = np.array_split(np.arange(ROWS), 4)
    found = {
        f"party {i}": gp.fit_site(model, (X[p], y[p])) for i, p in enumerate(parts)
    }
    model, sites = gp.combine(model, found)
    results = {}
    for name, forge in FORGERIES.items():
        generator, counts = np.random.default_rng(2), collections.Counter[str]()
        for _ in range(number):
            bad = sites | {"party 2": forge(sites["party 2"], generator)}
            try:
                other = gp.combine(model, bad, sites).model
                means, variances = marginals(other, jnp.asarray(X[::10]))
                is_proper = jnp.isfinite(means).all() & (variances >= 0).all()
                is_proper &= other.posterior.is_inside().all()
                counts["combined" if is_proper else "FAILED"] += 1
            except InputError as error:
                counts["refused" if "party 2" in str(error) else "FAILED"] += 1
        results[name] = counts
    return results


def main(number: int) -> int:
    lines = ["`python experiments/parties.py`", "", "## Rounds", ""]
    lines += [f"| likelihood | parties | mode | {' | '.join(map(str, SHOWN))} |"]
    lines += ["|---|---|---|" + "---|" * len(SHOWN)]
    for name in TARGETS:
        for parties in (4, 16):
            for mode in ("at once", "in turn"):
                each = gaps(name, parties, mode == "in turn")
                cells = " | ".join(f"{each[i - 1]:.1e}" for i in SHOWN)
                lines.append(f"| {name} | {parties} | {mode} | {cells} |")
                print(lines[-1], flush=True)
    kinds = ("refused", "combined", "FAILED")
    lines += ["", "## Forged sites", "", f"| changed | {' | '.join(kinds)} |"]
    lines += ["|---|---|---|---|"]
    results = forged(number)
    for name, counts in results.items():
        cells = " | ".join(str(counts[kind]) for kind in kinds)
        lines.append(f"| {name} | {cells} |")
    OUT.write_text("\n".join(lines) + "\n")
    print("\n".join(lines[-len(results) :]))
    return sum(counts["FAILED"] for counts in results.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forged", type=int, default=200, help="sites of each kind")
    sys.exit(main(parser.parse_args().forged) > 0)
