"""Laws of the paper's experiments: how runs are kept, made, resumed and drawn."""

import os
import sys
import threading
import types
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas
import pytest

import paper
from natgrad import gp
from natgrad.data import Arrays, Batch
from natgrad.errors import InputError, NatgradError
from paper import curves, fig1, fig2, fig7, stochastic
from paper.problems import Problem, problem
from paper.stochastic import Run
from paper.store import Store, key, replacing


RUN = Run("fig3", "energy", "Gaussian", 0, "Adam", 40, rate=0.01, rows=64, checks=6)

needs_data = pytest.mark.skipif(
    "NATGRAD_DATA" not in os.environ, reason="NATGRAD_DATA is not set"
)


@pytest.fixture(autouse=True)
def strict():
    """As a user has JAX: a step of Adam promotes inside Optax."""
    with jax.numpy_dtype_promotion("standard"):
        yield


# What is kept


def test_a_run_that_was_put_is_there_and_no_other(tmp_path):
    store = Store(tmp_path / "some" / "fig.parquet")
    store.put(RUN.config(), {"iteration": [0, 1], "bound": [-2.0, -1.0]}, took=0.5)
    for kept in (store, Store(store.path)):
        assert kept.has(RUN.config()) and not kept.has(RUN.but(split=1).config())
        assert kept.missing([RUN.config(), {"what": "else"}]) == [{"what": "else"}]
        rows = kept.of([RUN.config()])
        assert list(rows.bound) == [-2.0, -1.0] and set(rows.method) == {"Adam"}
        assert "jax" in rows.versions[0]


def test_any_change_makes_it_another_run():
    config = RUN.config()
    changed = [config | {name: "another"} for name in config] + [config | {"limit": 5}]
    assert len({key(other) for other in (config, *changed)}) == len(config) + 2
    assert key(dict(reversed(config.items()))) == key(config)


def test_two_processes_that_keep_runs_lose_none(tmp_path):
    first, second = Store(tmp_path / "fig.parquet"), Store(tmp_path / "fig.parquet")
    first.put({"rate": None}, {"bound": [1.0]}, took=1.0)
    second.put({"rate": 0.1}, {"bound": [2.0]}, took=1.0)
    assert sorted(Store(first.path).table.bound) == [1.0, 2.0]
    first.put({"rate": 0.1}, {"bound": [1.5]}, took=1.0)  # made twice, kept once
    assert sorted(Store(first.path).table.bound) == [1.0, 1.5]


def test_a_file_that_is_replaced_meanwhile_is_read_as_one_or_the_other(tmp_path):
    store, both = Store(tmp_path / "fig.parquet"), []
    for run, rows in enumerate((3, 3000)):
        store.put({"number": run}, {"bound": list(np.arange(rows) / 7)}, took=1.0)
        both.append(store.path.read_bytes())
    ends = threading.Event()

    def replace():
        while not ends.is_set():
            for each in both:
                with replacing(store.path) as draft:
                    draft.write_bytes(each)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        found = {len(Store(store.path).table) for _ in range(200)}
    finally:
        ends.set()
        writer.join()
    assert found == {3, 3003}


def half_written(self, path, **_):
    Path(path).write_bytes(b"PAR1 and no more")
    raise OSError(28, "No space left on device")


def not_replaced(self, path):
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize(
    ("owner", "name", "fails"),
    [(pandas.DataFrame, "to_parquet", half_written), (Path, "replace", not_replaced)],
)
def test_a_run_that_cannot_be_kept_leaves_the_others(
    tmp_path, monkeypatch, owner, name, fails
):
    store = Store(tmp_path / "fig.parquet")
    store.put(RUN.config(), {"bound": [1.0]}, took=1.0)
    before = store.path.read_bytes()
    other = RUN.but(split=1).config()
    with monkeypatch.context() as broken:
        broken.setattr(owner, name, fails)
        with pytest.raises(NatgradError, match="fig.parquet could not be written"):
            store.put(other, {"bound": [2.0]}, took=1.0)
    assert store.path.read_bytes() == before and not store.has(other)
    assert list(tmp_path.iterdir()) == [store.path]
    store.put(other, {"bound": [2.0]}, took=1.0)
    assert len(Store(store.path).table) == 2


def test_a_damaged_file_is_named(tmp_path):
    store = Store(tmp_path / "fig5.parquet")
    store.put(RUN.config(), {"bound": [1.0]}, took=1.0)
    whole = store.path.read_bytes()
    pandas.DataFrame({"x": [1]}).to_parquet(other := tmp_path / "other.parquet")
    for damaged in (whole[: len(whole) // 2], b"", other.read_bytes()):
        store.path.write_bytes(damaged)
        with pytest.raises(InputError, match="fig5.parquet (cannot be read|is not a)"):
            Store(store.path)


# What is made


class Fake(types.SimpleNamespace):
    """An experiment of three runs, the last of which depends on the first two."""

    def __init__(self):
        super().__init__(made=[], fails_at=None)

    def configs(self, is_quick, store):
        first = [
            {"data": "motorcycle", "split": split, "steps": 10 if is_quick else 1000}
            for split in range(2)
        ]
        yield from first
        if not store.missing(first):
            found = store.of(first).sort_values("bound")
            yield first[0] | {"split": int(found.split.iloc[-1]), "steps": 7}

    def run(self, config):
        if config["split"] == self.fails_at:
            raise KeyboardInterrupt
        self.made.append(config)
        return {"iteration": [0, 1], "bound": [0.0, float(config["split"])]}

    def draw(self, table, folder):
        (folder / "fake.png").write_text(f"{len(table)} rows")
        return [folder / "fake.png"]


@pytest.fixture
def fake(monkeypatch):
    experiment = Fake()
    claims = types.SimpleNamespace(table=lambda folder, is_quick: "claimed\n")
    modules = {"fig1": experiment, "claims": claims}
    monkeypatch.setattr(paper, "FIGURES", ("fig1",))
    monkeypatch.setattr(paper, "module", modules.__getitem__)
    return experiment


def names(paths):
    return sorted(path.name for path in paths)


def test_only_what_is_missing_is_made(fake, tmp_path):
    fake.fails_at = 1
    with pytest.raises(KeyboardInterrupt):
        paper.reproduce("fig1", tmp_path)
    assert [config["split"] for config in fake.made] == [0]
    fake.fails_at = None
    written = paper.reproduce("all", tmp_path)
    assert [config["split"] for config in fake.made] == [0, 1, 1]
    assert fake.made[-1]["steps"] == 7
    assert names(written) == ["claims.md", "fake.png", "fig1.parquet"]
    assert names(tmp_path.iterdir()) == names(written)
    assert (tmp_path / "fake.png").read_text() == "6 rows"
    assert paper.reproduce("all", tmp_path) == written and len(fake.made) == 3


def test_quick_forms_leave_others_alone(fake, tmp_path):
    paper.reproduce("all", tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    written = paper.reproduce("all", tmp_path, is_quick=True)
    files = ["claims-quick.md", "fake-quick.png", "fig1-quick.parquet"]
    assert names(written) == files and len(fake.made) == 6
    assert before == {path: path.read_bytes() for path in before}


def test_what_is_not_there_is_said_before_the_first_run(tmp_path, monkeypatch):
    monkeypatch.setenv("NATGRAD_DATA", str(tmp_path))
    out = tmp_path / "out"
    with pytest.raises(InputError, match="natgrad datasets energy --fetch.*naval"):
        paper.reproduce("all", out)
    with pytest.raises(InputError, match="no experiment 'fig8'; choose one of fig1"):
        paper.reproduce("fig8", out)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r'need pandas: .* "natgrad\[cli\]" pandas'):
        paper.reproduce("fig1", out)
    assert not out.exists()


# What a run is


@pytest.fixture(scope="module")
def small():
    """A problem of 300 rows, seen in chunks of 128 with a rest."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (330, 2))
    y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.3 * rng.normal(size=330)
    model = gp.SparseGP(
        gp.kernels.Matern52(1.0, 2.0), gp.likelihoods.StudentT(1.0, 3.0), x[:9]
    )
    batch = lambda rows: Batch(jnp.asarray(x[rows]), jnp.asarray(y[rows]))
    return Problem(model, batch(slice(300)), batch(slice(300, None)))


def traced(small, told):
    rule = stochastic.rule_of(told, len(small.data.y))
    return stochastic.trace(small, rule, told)


def by_hand(small, told, optimizer, is_moved):
    """A loop of Optax over the same batches."""
    total = len(small.data.y)
    moved, fixed = eqx.partition(small.model, is_moved(small.model))
    state = optimizer.init(moved)
    batches = Arrays(small.data, told.rows, told.split)

    @jax.jit
    def step(moved, state, batch):
        loss = lambda moved: -gp.elbo(eqx.combine(moved, fixed), batch, total)
        updates, state = optimizer.update(jax.grad(loss)(moved), state, moved)
        return optax.apply_updates(moved, updates), state

    for number in range(told.steps):
        batch = jax.tree.map(lambda column: column[0], batches.take(number, 1))
        moved, state = step(moved, state, batch)
    return eqx.combine(moved, fixed)


def bound(model, small):
    return float(gp.elbo(model, small.data)) / len(small.data.y)


@pytest.mark.nightly
def test_a_trace_begins_at_the_start_and_its_time_does_not_fall(small):
    first, again = traced(small, RUN), traced(small, RUN)
    assert first["iteration"] == [0, 1, 2, 4, 9, 19, 40]
    assert (np.diff(first["seconds"]) >= 0).all() and first["seconds"][0] == 0
    assert first["not_finite"] == [0] * 7
    np.testing.assert_allclose(first["bound"][0], bound(small.model, small), rtol=1e-12)
    assert first["bound"] == again["bound"] and first["test"] == again["test"]
    assert first["bound"] != traced(small, RUN.but(split=1))["bound"]


def test_the_bound_in_chunks_is_that_of_all_rows(small, monkeypatch):
    moved = jax.tree.map(lambda leaf: leaf + 0.1, small.model.posterior)
    model = eqx.tree_at(lambda model: model.posterior, small.model, moved)
    assert model.prior_kl() > 0.1
    expected = float(gp.elbo(model, small.data))
    for size in (128, 100, 4096):
        monkeypatch.setattr(stochastic, "CHUNK", size)
        found = stochastic._bound(model, *stochastic._chunks(small.data))
        np.testing.assert_allclose(float(found), expected, rtol=1e-10)


def test_the_method_natgrad_is_what_fit_does(small):
    told = RUN.but(method="natgrad", rate=None, split=3)
    fitted = gp.fit(
        *(small.model, (small.data.x, small.data.y)),
        **{"batch_size": told.rows, "seed": told.split, "steps": told.steps},
        progress=False,
    )
    found = traced(small, told)["bound"][-1]
    np.testing.assert_allclose(found, bound(fitted.params, small), rtol=1e-8)


@pytest.mark.parametrize("is_joint", [True, False])
@pytest.mark.parametrize("method", ["Adam", "GD"])
def test_an_ordinary_method_is_its_rule_of_optax(small, method, is_joint):
    rate = {"Adam": 0.01, "GD": 1e-4}[method]
    told = RUN.but(method=method, rate=rate, is_joint=is_joint)
    optimizer = {"Adam": optax.adam, "GD": optax.sgd}[method](rate)

    def is_moved(model):
        everything = jax.tree.map(lambda _: True, model)
        nothing = jax.tree.map(lambda _: False, model)
        at = lambda model: model.posterior
        return everything if is_joint else eqx.tree_at(at, nothing, at(everything))

    expected = bound(by_hand(small, told, optimizer, is_moved), small)
    found = traced(small, told)["bound"]
    assert found[-1] > found[0]
    np.testing.assert_allclose(found[-1], expected, rtol=1e-10)


def test_the_largest_rate_that_is_stable_is_chosen():
    def run(rate, *bounds, method="Adam", not_finite=0):
        rows = {"bound": bounds, "iteration": range(len(bounds))}
        told = {"data": "energy", "method": method, "rate": rate, "run": f"{rate}"}
        return pandas.DataFrame(rows).assign(**told, not_finite=not_finite)

    runs = [
        run(1.0, -3.0, -1.0, not_finite=1),
        run(0.1, -3.0, -4.0),
        run(0.05, -3.0, -1.0, -2.0),
        run(0.01, -3.0, -9.0, -2.9),
        run(0.001, -3.0, -1.0),
        run(10.0, -3.0, float("nan")),
        run(1.0, -3.0, -3.5, method="GD"),
    ]
    assert curves.stable_rates(pandas.concat(runs)) == {("energy", "Adam"): 0.01}


# What is found


@pytest.mark.nightly
def test_the_natural_path_is_the_same_in_all_coordinates_and_no_other_is(tmp_path):
    paths: dict[str, list[np.ndarray]] = {"natural": [], "ordinary": []}
    for config in fig1.configs(False, Store(tmp_path / "fig1.parquet")):
        found = fig1.run(config)
        path = np.array([found["path_mean"], found["path_deviation"]])
        paths[config["direction"]].append(path)
    (first, *natural), ordinary = paths["natural"], paths["ordinary"]
    assert len(natural) == 5
    for path in natural:
        np.testing.assert_allclose(path, first, atol=1e-6)
    for place, path in enumerate(ordinary):
        assert np.abs(path - first).max() > 0.1
        assert all(np.abs(path - other).max() > 0.01 for other in ordinary[:place])
    np.testing.assert_allclose(first[:, -1], fig1.optimum(), atol=1e-6)


@needs_data
def test_one_natural_step_of_size_one_solves_the_conjugate_set():
    config = {"data": "energy", "likelihood": "Gaussian", "split": 0, "iterations": 2}
    found = fig2.run(config | {"parameterization": "natural", "method": "NGD"})
    # Titsias (2009): the bound at the best q of a Gaussian likelihood.
    model, data, _ = problem("energy", "Gaussian", 0)
    kernel, z = model.kernel, model.inducing
    cov = np.asarray(kernel(z, z)) + 1e-10 * 2.0 * np.eye(len(z))
    cross = np.linalg.solve(np.linalg.cholesky(cov), np.asarray(kernel(z, data.x)))
    explained = cross.T @ cross
    y, rest = np.asarray(data.y), 2.0 * len(data.y) - np.trace(explained)
    total = explained + np.eye(len(y))
    misfit = y @ np.linalg.solve(total, y) + np.linalg.slogdet(2 * np.pi * total)[1]
    best = -(misfit + rest) / 2
    np.testing.assert_allclose(found["bound"][1], best, atol=1e-6)
    np.testing.assert_allclose(found["step_size"][1], 1, rtol=1e-4)
    assert found["bound"][0] < best - 100


@needs_data
def test_a_quick_form_on_few_rows_says_so(tmp_path):
    store = Store(tmp_path / "fig7.parquet")
    full, quick = (list(fig7.configs(kind, store)) for kind in (False, True))
    assert {config["limit"] for config in quick} == {fig7.LIMIT}
    assert not any("limit" in config for config in full)
    model, data, test = problem("naval", "Gaussian", 0, limit=150)
    assert len(data.y) == len(test.y) == 150 and len(model.inducing) == 100
