"""Every family in every coordinate system: the points at which laws are tested."""

import ast
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from natgrad import linalg, positive
from natgrad.families import (
    beta,
    categorical,
    diagonal,
    dirichlet,
    gamma,
    gaussian,
    wishart,
)


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
# What the page on extending natgrad adds, as it stands there: imports and classes.
EXTENSIONS = blocks(
    "development/extending.md", (ast.Import, ast.ImportFrom, ast.ClassDef)
)


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


def families() -> dict[str, dict]:
    """For each family, one distribution in all its coordinates."""
    number = positive.Plain
    zeros, zero = jnp.zeros(3), jnp.zeros(())
    base = {
        "gaussian": gaussian.Moments(vector(3), linalg.Full(covariance(3))),
        "diagonal": diagonal.Moments(vector(3), number(jnp.asarray([0.5, 1.0, 3.0]))),
        "gamma": gamma.ShapeRate(number(jnp.asarray(2.3)), number(jnp.asarray(0.4))),
        "beta": beta.Concentrations(number(jnp.asarray(2.3)), number(jnp.asarray(0.6))),
        "dirichlet": dirichlet.Concentrations(number(jnp.asarray([0.5, 1.7, 3.0]))),
        "categorical": categorical.Logits(vector(4)),
        "wishart": wishart.ScaleDof(
            linalg.Full(covariance(3)), number(jnp.asarray(2.2))
        ),
        "tilted": EXTENSIONS["Tilted"](jnp.asarray(1.3)),
    }
    templates: dict[str, dict] = {name: {} for name in base}
    for name, storage in storages(3).items():
        templates["gaussian"] |= {
            f"Moments({name})": gaussian.Moments(zeros, storage),
            f"Canonical({name})": gaussian.Canonical(zeros, storage),
        }
        if name in USERS:
            continue
        templates["wishart"] |= {
            f"ScaleDof({name})": wishart.ScaleDof(storage, positive.Log(zero)),
            f"RateDof({name})": wishart.RateDof(storage, number(jnp.ones(()))),
        }
    for name, storage in numbers((3,)).items():
        templates["diagonal"] |= {
            f"Moments({name})": diagonal.Moments(zeros, storage),
            f"Canonical({name})": diagonal.Canonical(zeros, storage),
        }
        templates["dirichlet"] |= {
            f"Concentration({name})": dirichlet.Concentrations(storage),
        }
    for name, storage in numbers().items():
        templates["gamma"] |= {
            f"ShapeRate({name})": gamma.ShapeRate(storage, storage),
        }
        templates["beta"] |= {
            f"Concentrations({name})": beta.Concentrations(storage, storage),
        }
    for name, storage in (("Plain", number(jnp.ones(()))), ("Log", positive.Log(zero))):
        templates["gamma"][f"MeanShape({name})"] = gamma.MeanShape(storage, storage)
        templates["beta"][f"MeanTotal({name})"] = beta.MeanTotal(zero, storage)
        templates["dirichlet"][f"MeanTotal({name})"] = dirichlet.MeanTotal(
            jnp.zeros(2), storage
        )
    templates["gamma"]["MeanSpread"] = USERS["MeanSpread"](jnp.ones(()), zero)
    templates["categorical"] = {
        "Logits": categorical.Logits(jnp.zeros(4)),
        "Probabilities": categorical.Probabilities(jnp.full(3, 0.25)),
    }
    templates["tilted"]["Tilted"] = base["tilted"]
    turned = jnp.asarray([1.0, -1.0, 1.0])  # a column of a root may be of either sign
    templates["gaussian"]["Moments(Sqrt, turned)"] = gaussian.Moments(
        zeros, linalg.Sqrt(jnp.diag(turned))
    )
    templates["wishart"]["ScaleDof(Sqrt, turned)"] = wishart.ScaleDof(
        linalg.Sqrt(jnp.diag(turned)), positive.Log(zero)
    )
    # One program, not one for each operation; lists, as it would sort a dictionary.
    found = jax.jit(
        lambda: [
            [each.at_natural(base[family].natural()) for each in coordinates.values()]
            for family, coordinates in templates.items()
        ]
    )()
    return {
        family: dict(zip(templates[family], members, strict=True))
        for family, members in zip(templates, found, strict=True)
    }


FAMILIES = families()
POINTS = {
    f"{family}.{name}": q
    for family, coordinates in FAMILIES.items()
    for name, q in coordinates.items()
}


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
