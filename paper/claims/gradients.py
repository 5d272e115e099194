"""Claims on gradients: figure 1, and what is text without a figure."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natgrad.families import gaussian
from natgrad.linalg import Full
from paper import fig1
from paper.claims.base import Claim, Found, Tables, each, found, spread
from paper.text import ravel


def unlike(_: Tables) -> Found:
    with jax.enable_x64(True):
        normal = lambda v: gaussian.Moments(jnp.zeros(1), Full(jnp.array([[v]])))
        near = float(normal(0.1).kl(normal(0.2)))
        far = float(normal(1000.1).kl(normal(1000.2)))
    text = f"KL {near:.2g} and {far:.1e}; variances 0.1 apart in both, precisions "
    text += f"{1 / 0.1 - 1 / 0.2:.2g} and {1 / 1000.1 - 1 / 1000.2:.0e}"
    return found(text, near > 1e6 * far)


def _arrows(tables: Tables) -> dict[str, dict[str, tuple[float, float]]]:
    """By coordinates and direction: the cosine to the optimum, and the length by it."""
    text: dict[str, dict[str, tuple[float, float]]] = {}
    keys = ["parameterization", "direction"]
    with jax.enable_x64(True):
        end = fig1.optimum()
        for (name, direction), run in tables["fig1"].groupby(keys):
            first = run.sort_values("time").iloc[0]
            begin = first[["first", "second"]].to_numpy(float)
            arrow = first[["arrow_first", "arrow_second"]].to_numpy(float)
            way = np.asarray(ravel(fig1.at(name, *end))) - begin
            cosine = arrow @ way / np.linalg.norm(arrow) / np.linalg.norm(way)
            length = np.linalg.norm(arrow) / np.linalg.norm(way)
            text.setdefault(name, {})[direction] = (float(cosine), float(length))
    return text


def direction_of_arrows(tables: Tables) -> Found:
    arrows = _arrows(tables)
    cosines = {
        kind: [a[kind][0] for a in arrows.values()] for kind in ("natural", "ordinary")
    }
    text = f"cosine of the angle to the optimum in {len(arrows)} parameterizations: "
    text += f"natural {spread(cosines['natural'])}, "
    text += f"ordinary {spread(cosines['ordinary'])}"
    return found(text, np.all(np.array(cosines["natural"]) > cosines["ordinary"]))


def scale_of_arrows(tables: Tables) -> Found:
    arrows = _arrows(tables)
    lengths = {
        kind: np.array([a[kind][1] for a in arrows.values()])
        for kind in ("natural", "ordinary")
    }
    text = f"length by the distance to the optimum in {len(arrows)} parameterizations: "
    text += f"natural {spread(lengths['natural'])}, "
    text += f"ordinary {spread(lengths['ordinary'])}"
    off = {kind: np.abs(np.log(values)) for kind, values in lengths.items()}
    return found(text, np.all(off["natural"] < off["ordinary"]))


def paths(tables: Tables) -> Found:
    apart = {}
    for direction, runs in tables["fig1"].groupby("direction"):
        columns = ["path_mean", "path_deviation"]
        ways = [
            run.sort_values("time")[columns].to_numpy()
            for _, run in runs.groupby("parameterization")
        ]
        apart[direction] = float(np.abs(np.stack(ways) - ways[0]).max())
    text = f"natural paths at most {apart['natural']:.0e} apart, "
    text += f"ordinary ones {apart['ordinary']:.2g}"
    return found(text, apart["natural"] < 1e-6 < apart["ordinary"])


def _text(tables: Tables, what: str) -> Any:
    table = tables["text"]
    return table[table.what == what]


def fisher(tables: Tables) -> Found:
    errors = _text(tables, "fisher").value
    text = f"one vjp and one jvp against F⁻¹∇L in {len(errors)} parameterizations: "
    return found(f"{text}largest difference {errors.max():.0e}", errors.max() < 1e-10)


def forward(tables: Tables) -> Found:
    errors = _text(tables, "forward").value
    text = f"largest difference in {len(errors)} parameterizations {errors.max():.0e}"
    return found(text, errors.max() < 1e-12)


def cost(tables: Tables) -> Found:
    table = _text(tables, "cost")
    ratios = dict(zip(table.parameterization, table.value, strict=True))
    return found(f"M = 100, 256 rows: {each(ratios)}", max(ratios.values()) < 1.6)


def growth(tables: Tables) -> Found:
    power, largest = {}, {}
    for what in ("direction", "inverse"):
        table = _text(tables, what).sort_values("size")
        (low, early), (high, late) = np.log(table[["size", "value"]].to_numpy())[
            [0, -1]
        ]
        power[what], largest[what] = (late - early) / (high - low), table["size"].max()
    text = f"time grows as M^{power['direction']:.1f} to M = {largest['direction']}; "
    text += f"solving with a given Fisher matrix as M^{power['inverse']:.1f} to M = "
    is_so = power["direction"] < 3.3 and power["inverse"] > power["direction"] + 2
    return found(f"{text}{largest['inverse']}", is_so)


CLAIMS = [
    Claim(
        "§1",
        "N(0, 0.1) and N(0, 0.2) differ, N(0, 1000.1) and N(0, 1000.2) are alike, yet "
        "in mean and variance they are equally far apart",
        "the divergence of the first pair is a million times that of the second",
        (),
        unlike,
        is_quick=True,
    ),
    Claim(
        "Fig. 1",
        "the natural gradient points in a better direction than the ordinary one",
        "its cosine to the optimum is larger in every parameterization",
        ("fig1",),
        direction_of_arrows,
        is_quick=True,
    ),
    Claim(
        "Fig. 1",
        "the natural gradient is correctly scaled",
        "a step of size 1 has a "
        "length nearer to the distance, in every parameterization",
        ("fig1",),
        scale_of_arrows,
        is_quick=True,
    ),
    Claim(
        "Fig. 1",
        "the path of small natural steps is independent of parameterization",
        "paths in all parameterizations agree to 1e-6, and ordinary ones do not",
        ("fig1",),
        paths,
        is_quick=True,
    ),
    Claim(
        "§3",
        "the natural gradient is (∂ξ/∂θ)(∂L/∂η)ᵀ in any parameterization",
        "equal to 1e-10",
        ("text",),
        fisher,
        is_quick=True,
    ),
    Claim(
        "Suppl.",
        "forward mode is reverse mode twice",
        "equal to 1e-12",
        ("text",),
        forward,
        is_quick=True,
    ),
    Claim(
        "§3",
        "it increases the computation relative to the ordinary gradient by a factor of "
        "about 1.5",
        "at most 1.6 in every parameterization",
        ("text",),
        cost,
    ),
    Claim(
        "§3",
        "the extra computation is O(M³); direct inversion of the Fisher information "
        "would be O((M + M²)³)",
        "exponents at most 3.3, and 2 more",
        ("text",),
        growth,
    ),
]
