"""Every family in every coordinate system: the points at which laws are tested."""

import ast
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from natgrad import families, linalg, positive


def blocks(page: str, only: tuple[type, ...] = (ast.stmt,)) -> dict:
    """The names that the Python blocks of a page define, by some kinds of statement."""
    path = Path(__file__).parents[1] / "docs" / page
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
        tree = ast.parse(block)
        tree.body = [each for each in tree.body if isinstance(each, only)]
        exec(compile(tree, str(path), "exec"), names)
    return names


USERS = blocks("howto/coordinates.md")
# What the pages on extending natgrad add, as it stands there: imports and classes.
KINDS = (ast.Import, ast.ImportFrom, ast.ClassDef)
EXTENSIONS = blocks("howto/extending.md", KINDS) | blocks("howto/families.md", KINDS)


def covariance(size: int, seed: int = 0) -> jax.Array:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((size, size))
    return jnp.asarray(root @ root.T + 0.5 * np.eye(size))


def vector(size: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(size))


def storages(size: int) -> dict:
    identity, zeros = jnp.eye(size), jnp.zeros((size, size))
    return {
        "Full": linalg.Full(identity),
        "Sqrt": linalg.Sqrt(identity),
        "Log": linalg.Log(zeros),
        "LDL": USERS["LDL"](zeros, jnp.zeros(size)),
        "LogDiagonal": USERS["LogDiagonal"](zeros, jnp.zeros(size)),
    }


def numbers(shape: tuple[int, ...] = ()) -> dict:
    return {
        "Plain": positive.Plain(jnp.ones(shape)),
        "Log": positive.Log(jnp.zeros(shape)),
        "Softplus": positive.Softplus(jnp.ones(shape)),
    }


def label(q) -> str:
    """A coordinate system's name: its class, and how its first number is stored."""
    storages = linalg.AbstractPositiveDefinite | positive.AbstractPositive
    stored = [type(x).__name__ for x in vars(q).values() if isinstance(x, storages)]
    return type(q).__name__ + (f"({stored[0]})" if stored else "")


def all_families() -> dict[str, list]:
    """For each family a distribution, and templates of its other coordinates."""
    number = lambda *x: positive.Plain(jnp.asarray(x[0] if len(x) == 1 else x))
    full, zeros, zero = linalg.Full(covariance(3)), jnp.zeros(3), jnp.zeros(())
    plain, log = number(1.0), positive.Log(zero)
    matrices, vectors = storages(3).values(), numbers((3,)).values()
    scalars = numbers().values()
    return {
        "gaussian": [
            families.gaussian.Moments(vector(3), full),
            *(families.gaussian.Moments(zeros, s) for s in matrices),
            *(families.gaussian.Canonical(zeros, s) for s in matrices),
        ],
        "diagonal": [
            families.diagonal.Moments(vector(3), number(0.5, 1.0, 3.0)),
            *(families.diagonal.Moments(zeros, s) for s in vectors),
            *(families.diagonal.Canonical(zeros, s) for s in vectors),
        ],
        "gamma": [
            families.gamma.ShapeRate(number(2.3), number(0.4)),
            *(families.gamma.ShapeRate(s, s) for s in scalars),
            *(families.gamma.MeanShape(s, s) for s in (plain, log)),
            USERS["MeanSpread"](jnp.ones(()), zero),
            EXTENSIONS["LogShapeRate"](zero, zero),
        ],
        "beta": [
            families.beta.Concentrations(number(2.3), number(0.6)),
            *(families.beta.Concentrations(s, s) for s in scalars),
            *(families.beta.MeanTotal(zero, s) for s in (plain, log)),
        ],
        "dirichlet": [
            families.dirichlet.Concentrations(number(0.5, 1.7, 3.0)),
            *(families.dirichlet.Concentrations(s) for s in vectors),
            *(families.dirichlet.MeanTotal(jnp.zeros(2), s) for s in (plain, log)),
        ],
        "categorical": [
            families.categorical.Logits(vector(4)),
            families.categorical.Probabilities(jnp.full(3, 0.25)),
        ],
        "wishart": [
            families.wishart.ScaleDof(full, number(2.2)),
            *(families.wishart.ScaleDof(s, log) for s in matrices),
            *(families.wishart.RateDof(s, plain) for s in matrices),
        ],
        "inverse_gamma": [
            families.inverse_gamma.ShapeScale(number(2.3), number(0.4)),
            families.inverse_gamma.ShapeScale(log, log),
            families.inverse_gamma.ModeShape(plain, plain),
        ],
        "normal_inverse_wishart": [
            families.normal_inverse_wishart.MeanPrecision(vector(3), strength, w)
            for strength, w in (
                (number(1.7), families.wishart.RateDof(full, number(6.2))),
                (log, families.wishart.ScaleDof(linalg.Sqrt(jnp.eye(3)), log)),
            )
        ],
        "tilted": [EXTENSIONS["Tilted"](jnp.asarray(1.3))],
    }


def in_all_coordinates(qs: dict[str, list]) -> dict[str, dict]:
    """The first distribution of each family in the coordinates of all, by name."""
    # One program, not one for each operation; lists, as it would sort a dictionary.
    moved = jax.jit(
        lambda: [[q.at_natural(of[0].natural()) for q in of] for of in qs.values()]
    )()
    return {
        family: {label(q): q for q in members}
        for family, members in zip(qs, moved, strict=True)
    }


FAMILIES = in_all_coordinates(all_families())
# A column of a root may be of either sign.
TURNED = linalg.Sqrt(jnp.diag(jnp.asarray([1.0, -1.0, 1.0])))
for _family, _turned in {
    "gaussian": families.gaussian.Moments(jnp.zeros(3), TURNED),
    "wishart": families.wishart.ScaleDof(TURNED, positive.Log(jnp.zeros(()))),
}.items():
    _theta = next(iter(FAMILIES[_family].values())).natural()
    FAMILIES[_family][f"{label(_turned)[:-1]}, turned)"] = _turned.at_natural(_theta)
POINTS = {
    f"{family}.{name}": q
    for family, coordinates in FAMILIES.items()
    for name, q in coordinates.items()
}

# Of each mechanism one: a Gaussian in each of its storages and on both sides, the maps
# of each other family, and what a page adds.
GATE = [
    "gaussian.Moments(Full)",
    "gaussian.Moments(Sqrt)",
    "gaussian.Moments(Log)",
    "gaussian.Moments(Sqrt, turned)",
    "gaussian.Canonical(Sqrt)",
    "diagonal.Moments(Log)",
    "gamma.MeanSpread",
    "beta.MeanTotal(Log)",
    "dirichlet.Concentrations(Plain)",
    "categorical.Logits",
    "categorical.Probabilities",
    "wishart.ScaleDof(Sqrt)",
    "inverse_gamma.ModeShape(Plain)",
    "normal_inverse_wishart.MeanPrecision(Plain)",
    "tilted.Tilted",
]


def flat(tree) -> jax.Array:
    """All numbers of a tree, as one vector."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def entries(tree) -> np.ndarray:
    """The same outside of JAX, where nothing is compiled."""
    leaves = jax.tree.leaves(tree)
    return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in leaves])


def assert_close(actual, expected, rtol: float = 1e-10, atol: float = 0.0) -> None:
    """Agreement relative to the largest entry."""
    actual, expected = entries(actual), entries(expected)
    scale = np.abs(expected).max()
    np.testing.assert_array_less(
        np.abs(actual - expected), rtol * scale + atol + np.finfo(float).tiny
    )
