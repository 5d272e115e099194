"""Hostile but legal tables through all ways to fit: none may crash, or be too certain.

    python experiments/hostile_fits.py            # 627 fits
    python experiments/hostile_fits.py --long     # with four seeds
    python experiments/hostile_fits.py --every 10 # every tenth

Every kind of inputs meets every kind of targets. A fit may be refused with an
InputError or a ValueError that says why. It fails if it raises anything else, if a
number that it predicts is not finite, or if it gives held-out rows more than 0.5 nats
per row less than a Student-t distribution fitted to the targets (for classes, less
than their frequencies) and no warning was given. The result is in
`experiments/results/hostile_fits.md`.
"""

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.stats import t as student_t

from natgrad import gp
from natgrad.sklearn import GPClassifier, GPOrdinal, GPRegressor


RESULTS = Path(__file__).parent / "results" / "hostile_fits.md"
ROWS, TEST, WIDTH = 40, 40, 3
"""Few shapes, so that most fits use what another has compiled."""

SLACK = 0.5
"""Nats per row that a fit may be below the plain distribution of its targets."""

DOF = 4.0


class Table(NamedTuple):
    """Rows to learn from, and others of the same kind."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


class Case(NamedTuple):
    entry: str
    inputs: str
    targets: str
    seed: int


class Outcome(NamedTuple):
    """How a fit ended, and its log density per row less that of the plain one."""

    case: Case
    verdict: str
    gain: float
    said: str


# Inputs: each makes the first ROWS rows to learn from, and the others to test on


Rng = np.random.Generator
Make = Callable[[Rng], np.ndarray]


def normal(rng: Rng, columns: int = WIDTH) -> np.ndarray:
    return rng.standard_normal((ROWS + TEST, columns))


def repeated(rng: Rng, noise: float) -> np.ndarray:
    x = normal(rng)
    x[:ROWS] = x[: ROWS // 4].repeat(4, axis=0)
    return x + noise * normal(rng)


def with_column(rng: Rng, value: float) -> np.ndarray:
    return np.column_stack([normal(rng, WIDTH - 1), np.full(ROWS + TEST, value)])


def with_outlier(rng: Rng) -> np.ndarray:
    x = normal(rng)
    x[3, 0] = 1e6
    return x


INPUTS: dict[str, Make] = {
    "plain": normal,
    "1 row": normal,
    "2 rows": normal,
    "3 rows": normal,
    "duplicates": lambda rng: repeated(rng, 0.0),
    "near duplicates": lambda rng: repeated(rng, 1e-9),
    "constant column": lambda rng: with_column(rng, 0.1),
    "constant 1e12": lambda rng: with_column(rng, 1e12),
    "size 1e12": lambda rng: 1e12 * normal(rng),
    "size 1e-12": lambda rng: 1e-12 * normal(rng),
    "mixed sizes": lambda rng: normal(rng) * [1e-12, 1.0, 1e12],
    "far from 0": lambda rng: normal(rng) + 1e6,
    "rank 1": lambda rng: normal(rng, 1) * [1.0, -2.0, 3.0],
    "50 columns": lambda rng: normal(rng, 50),
    "an outlier": with_outlier,
    "heavy tails": lambda rng: rng.standard_cauchy((ROWS + TEST, WIDTH)),
    "32 bits": lambda rng: normal(rng).astype(np.float32),
    "whole": lambda rng: rng.integers(0, 4, (ROWS + TEST, WIDTH)),
    "bools": lambda rng: normal(rng) > 0,
}
ROWS_OF = {"1 row": 1, "2 rows": 2, "3 rows": 3}


# Targets, from a function of the inputs and its noise


def curve(x: np.ndarray, rng: Rng) -> np.ndarray:
    """A smooth function of the ranks of two columns, with noise."""
    ranks = x.argsort(0).argsort(0)[:, :2] / len(x) - 0.5
    return np.sin(6 * ranks[:, 0]) + 2 * ranks[:, 1] + 0.3 * rng.standard_normal(len(x))


def outlying(y: np.ndarray) -> np.ndarray:
    y = y.copy()
    y[min(5, len(y) - 1)] = 1e6
    return y


Of = Callable[[np.ndarray, Rng], np.ndarray]
NUMBERS: dict[str, Of] = {
    "plain": lambda y, rng: y,
    "an outlier": lambda y, rng: outlying(y),
    "size 1e12": lambda y, rng: 1e12 * y,
    "size 1e-12": lambda y, rng: 1e-12 * y,
    "far from 0": lambda y, rng: y + 1e6,
    "all equal": lambda y, rng: np.full(len(y), 3.3),
    "two values": lambda y, rng: np.where(y > 0, 5.0, -1.0),
    "whole": lambda y, rng: np.round(2 * y).astype(int),
    "heavy tails": lambda y, rng: y + 0.3 * rng.standard_cauchy(len(y)),
    "skewed": lambda y, rng: np.exp(3 * y),
    "noise alone": lambda y, rng: rng.standard_normal(len(y)),
    "32 bits": lambda y, rng: y.astype(np.float32),
}


def graded(y: np.ndarray, levels: int) -> np.ndarray:
    return np.digitize(y, np.quantile(y, np.linspace(0, 1, levels + 1)[1:-1]))


def rare(y: np.ndarray) -> np.ndarray:
    """One row of the second class among those to learn from."""
    labels = np.zeros(len(y), int)
    labels[0], labels[-1] = 1, 1
    return labels


CLASSES: dict[str, Of] = {
    "two": lambda y, rng: graded(y, 2),
    "bools": lambda y, rng: y > np.median(y),
    "1 row of a class": lambda y, rng: rare(y),
    "three, 1 row of one": lambda y, rng: np.where(rare(y), 2, graded(y, 2)),
    "noise alone": lambda y, rng: rng.integers(0, 2, len(y)),
}
LEVELS: dict[str, Of] = {
    "3": lambda y, rng: graded(y, 3),
    "10": lambda y, rng: graded(y, 10),
    "30": lambda y, rng: graded(y, 30),
    "1 row of a level": lambda y, rng: np.where(rare(y), 2, graded(y, 2)),
}
TARGETS = {
    "gp.fit": NUMBERS,
    "GPRegressor": NUMBERS,
    "GPClassifier": CLASSES,
    "GPOrdinal": LEVELS,
}


def table_of(case: Case) -> Table:
    rng = np.random.default_rng(case.seed)
    x = INPUTS[case.inputs](rng)
    y = TARGETS[case.entry][case.targets](curve(x, rng), rng)
    rows = ROWS_OF.get(case.inputs, ROWS)
    x, y, test_x, test_y = x[:rows], y[:rows], x[ROWS:], y[ROWS:]
    if case.entry in ("GPClassifier", "GPOrdinal"):
        known = np.isin(test_y, y)  # no class has a probability that no row had
        test_x, test_y = test_x[known], test_y[known]
    elif case.targets == "an outlier":
        kept = test_y < 1e5
        test_x, test_y = test_x[kept], test_y[kept]
    return Table(x, y, test_x, test_y)


# Fits


def by_gp_fit(table: Table) -> np.ndarray:
    with jax.enable_x64(True):
        x, test_x = (np.asarray(x, float) for x in (table.x, table.test_x))
        model = gp.initialize(x, gp.likelihoods.Gaussian())
        fitted = gp.fit(model, (x, np.asarray(table.y, float)), progress=False)
        predictor = gp.predictor(fitted.params)
        means = predictor.predict(test_x)
        density = predictor.log_density(test_x, np.asarray(table.test_y, float))
    return np.stack([*means, density])


def by_estimator(make: Callable[..., Any], table: Table) -> np.ndarray:
    fitted = make(verbose=False).fit(table.x, table.y)
    density = fitted.log_density(table.test_x, table.test_y)
    if hasattr(fitted, "predict_proba"):
        return np.column_stack([fitted.predict_proba(table.test_x), density]).T
    return np.stack([*fitted.predict(table.test_x, return_std=True), density])


ENTRIES: dict[str, Callable[[Table], np.ndarray]] = {
    "gp.fit": by_gp_fit,
    "GPRegressor": lambda table: by_estimator(GPRegressor, table),
    "GPClassifier": lambda table: by_estimator(GPClassifier, table),
    "GPOrdinal": lambda table: by_estimator(GPOrdinal, table),
}


def plain(case: Case, table: Table) -> float:
    """The mean log density of the test rows if nothing is learned but y's spread."""
    if case.entry in ("GPClassifier", "GPOrdinal"):
        shares = [np.mean(table.y == label) for label in table.test_y]
        return float(np.mean(np.log(shares)))
    if len(np.unique(table.y)) == 1:
        return -np.inf  # one value has no spread
    y = np.asarray(table.y, float)
    centre, scale = np.median(y), y.std()
    fit = student_t.fit((y - centre) / scale, fix_df=DOF)
    scaled = (np.asarray(table.test_y, float) - centre) / scale
    return float(np.mean(student_t.logpdf(scaled, *fit)) - np.log(scale))


def outcome(case: Case) -> Outcome:
    """Fits one table, and judges what comes of it."""
    table = table_of(case)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = ENTRIES[case.entry](table)
        except ValueError as error:  # an InputError is one
            return Outcome(case, "refused", 0.0, f"{error}")
        except Exception as error:
            return Outcome(case, "crashed", 0.0, f"{type(error).__name__}: {error}")
    said = "; ".join(f"{each.category.__name__}: {each.message}" for each in caught)
    if not np.isfinite(found).all():
        return Outcome(case, "not finite", 0.0, said)
    gain = float(found[-1].mean()) - plain(case, table) if len(table.test_y) else 0.0
    if gain >= -SLACK:
        return Outcome(case, "good", gain, said)
    return Outcome(case, "warned" if said else "too certain", gain, said)


# All of them


def cases(seeds: int) -> Iterator[Case]:
    for seed in range(seeds):
        for entry, targets in TARGETS.items():
            for name in INPUTS:
                for target in targets:
                    yield Case(entry, name, target, seed)


VERDICTS = ("good", "warned", "refused", "crashed", "not finite", "too certain")
FAILURES = VERDICTS[3:]


def report(outcomes: list[Outcome], seconds: float) -> str:
    lines = [
        "# Hostile fits",
        "",
        f"{len(outcomes)} fits in {seconds:.0f} s, by "
        "`python experiments/hostile_fits.py`. *Warned*: more than "
        f"{SLACK} nats per row below the plain distribution of the targets, with a "
        "warning. *Too certain*: without one.",
        "",
        f"| entry | tried | {' | '.join(VERDICTS)} |",
        f"|---|{'---|' * (len(VERDICTS) + 1)}",
    ]
    for entry in TARGETS:
        count = Counter(each.verdict for each in outcomes if each.case.entry == entry)
        numbers = [sum(count.values()), *(count[verdict] for verdict in VERDICTS)]
        lines.append(f"| {entry} | {' | '.join(map(str, numbers))} |")
    failed = [each for each in outcomes if each.verdict in FAILURES]
    lines += ["", f"{len(failed)} failed."]
    for each in failed:
        entry, inputs, targets, seed = each.case
        lines.append(
            f"- {entry}, inputs: {inputs}, targets: {targets}, seed {seed}: "
            f"{each.verdict} ({each.gain:.2f}) {each.said[:200]}".rstrip()
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="with four seeds")
    parser.add_argument("--every", type=int, default=1, help="one of so many cases")
    parser.add_argument("--entry", choices=list(TARGETS), help="this one alone")
    arguments = parser.parse_args()
    chosen = [
        case
        for case in cases(4 if arguments.long else 1)
        if arguments.entry in (None, case.entry)
    ][:: arguments.every]
    began, outcomes = time.monotonic(), []
    for case in chosen:
        outcomes.append(outcome(case))
        print(f"{time.monotonic() - began:6.0f} s", *outcomes[-1][1:3], *case, end="")
        print("", outcomes[-1].said[:150], flush=True)
    text = report(outcomes, time.monotonic() - began)
    print(text)
    if arguments.every == 1 and arguments.entry is None:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
