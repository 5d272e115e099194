"""The page on other libraries runs with them, and their containers train alike."""

import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad.families import diagonal
from tests.points import assert_close
from tests.variants import variants


PAGE = Path(__file__).parents[1] / "docs" / "howto" / "other_libraries.md"
START, *SECTIONS = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.M)
SECTIONS = {section.split("\n", 1)[0]: section for section in SECTIONS}
PACKAGES = {"Plain dicts": "jax", "Equinox": "equinox", "Flax NNX": "flax"}


def code(section: str) -> str:
    return "\n".join(re.findall(r"^```py(?:thon)?\n(.*?)^```", section, re.S | re.M))


@pytest.fixture(autouse=True)
def as_users_have_it():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture
def page() -> dict:
    names: dict = {"__name__": "page"}
    exec(code(START), names)
    return names


def test_every_section_is_tested():
    assert list(SECTIONS) == [*PACKAGES, "Next"]


@pytest.mark.parametrize("title", variants(PACKAGES, ["Plain dicts", "Equinox"]))
def test_a_section_of_the_page_trains_its_model(title, page, capsys):
    pytest.importorskip(PACKAGES[title])
    exec(code(SECTIONS[title]), page)
    printed = capsys.readouterr().out
    first, last = map(float, re.findall(r"ELBO is (-?[\d.]+)", printed))
    assert last < 0 < first
    q = page["params" if title == "Plain dicts" else "network"]
    q = q["outer"] if title == "Plain dicts" else q.outer
    q = q if title != "Flax NNX" else q.get_value()
    assert isinstance(q, diagonal.Moments)
    assert q.kl(page["prior"]) > 1


def in_dict(weights, bias, q):
    params = {"inner": weights, "bias": bias, "outer": q, "log_noise": jnp.zeros(())}
    hidden = lambda p, x: jnp.tanh(x @ p["inner"] + p["bias"])
    return params, hidden, lambda p: (p["outer"], p["log_noise"])


class Network(eqx.Module):
    inner: eqx.nn.Linear
    outer: diagonal.Moments
    log_noise: jax.Array


def in_equinox(weights, bias, q):
    inner = eqx.nn.Linear(1, 20, key=jax.random.key(0))
    inner = eqx.tree_at(lambda m: (m.weight, m.bias), inner, (weights.T, bias))
    hidden = lambda p, x: jnp.tanh(jax.vmap(p.inner)(x))
    network = Network(inner, q, jnp.zeros(()))
    return network, hidden, lambda p: (p.outer, p.log_noise)


def in_flax(weights, bias, q):
    nnx = pytest.importorskip("flax.nnx")

    class Network(nnx.Module):
        def __init__(self):
            self.inner = nnx.Linear(1, 20, param_dtype=float, rngs=nnx.Rngs(0))
            self.inner.kernel[...], self.inner.bias[...] = weights, bias
            self.outer, self.log_noise = nnx.Param(q), nnx.Param(jnp.zeros(()))

    graph, params = nnx.split(Network(), nnx.Param)
    hidden = lambda p, x: jnp.tanh(nnx.merge(graph, p).inner(x))

    def parts(params):
        network = nnx.merge(graph, params)
        return network.outer.get_value(), network.log_noise[...]

    return params, hidden, parts


@pytest.mark.parametrize("other", variants([in_equinox, in_flax], [in_equinox]))
def test_one_model_trains_alike_in_any_container(other, page):
    rng = np.random.default_rng(0)
    weights, bias = (
        jnp.asarray(rng.normal(size=(1, 20))),
        jnp.asarray(rng.normal(size=20)),
    )
    ends = []
    for container in (in_dict, other):
        params, hidden, parts = container(weights, bias, page["prior"])
        loss = lambda p, hidden=hidden, parts=parts: page["minus_elbo"](
            hidden(p, page["x"]), *parts(p)
        )
        ends.append(parts(page["train"](loss, params, steps=20)))
    assert_close(*ends, rtol=1e-9)
    assert ends[0][0].kl(page["prior"]) > 1
