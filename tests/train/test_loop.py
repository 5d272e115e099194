"""Laws of the loop."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from matplotlib import pyplot

import natgrad
from natgrad import annealed
from natgrad.data import Batch
from natgrad.errors import CheckpointError, FitError, InputError, Terminated
from natgrad.families import diagonal
from natgrad.positive import Log
from natgrad.train import (
    Rule,
    _checkpoint as checkpoint,
    _compiled as state,
    _loop as loop,
    _rules as rules,
    in_turn,
    run,
    stop_on_signals,
)


N, D = 40, 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D))
Y = X @ [1.0, -2.0, 0.5] + 0.3 * RNG.standard_normal(N)
DATA = Batch(X, Y)


def start():
    """Weights of a linear model with noise of unknown size."""
    q = diagonal.Moments(jnp.zeros(D), Log(jnp.zeros(D)))
    return {"q": q, "log_noise": jnp.zeros(())}


def loss(params, batch):
    """Minus the evidence bound."""
    q, log_noise = params["q"], params["log_noise"]
    mean, var = q.mean, q.var.value()
    prior = diagonal.Moments(jnp.zeros(D), Log(jnp.zeros(D)))
    error = (batch.y - batch.x @ mean) ** 2 + batch.x**2 @ var
    each = log_noise + error * jnp.exp(-2 * log_noise) / 2
    weight = jnp.ones_like(batch.y) if batch.weight is None else batch.weight
    return N * (weight @ each) / weight.sum() + q.kl(prior).sum()


@pytest.fixture(autouse=True)
def promoting():
    with jax.numpy_dtype_promotion("standard"):  # Adam promotes inside Optax
        yield


def fit(params=None, data=DATA, **options):
    options = {"batch_size": 8, "steps": 60, "progress": False, **options}
    return natgrad.fit(loss, params or start(), data, **options)


def same(ours, theirs) -> bool:
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_a_run_is_a_function_of_its_seed(monkeypatch):
    first = fit(seed=1)
    assert same(first.params, fit(seed=1).params)
    assert not same(first.params, fit(seed=2).params)
    monkeypatch.setattr(state, "CALL_STEPS", 3)
    assert same(first.params, fit(seed=1, log_every=7).params)


def test_it_is_a_fold_of_the_rule_over_the_batches():
    ordinary = annealed(optax.scale_by_adam(), rules.RATE)
    guarded = natgrad.split(natgrad.guarded_ngd(8 / N), None)
    rule = in_turn(loss, guarded, natgrad.split(None, ordinary))
    rule = rules.averaged(rule)
    source = natgrad.data.Arrays(DATA, 8, 0)
    params, memory = start(), rule.init(start())
    step = jax.jit(rule.step)
    for number in range(20):
        batch = jax.tree.map(lambda leaf: leaf[0], source.take(number, 1))
        # The rate is at its height for the first third of the steps there may be.
        progress = max(0.0, (number - 20 / 3) / (20 - 20 / 3))
        params, memory, _ = step(params, memory, batch, progress=progress)
    ours = fit(steps=20).params
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_what_the_caller_gave_is_left_alone():
    params = start()
    before = jax.tree.map(np.array, params)
    fit(params, steps=5)
    assert same(params, before)


def test_it_is_compiled_once_whatever_the_batches():
    calls = []

    def counted(params, batch):
        calls.append(batch.y.shape)
        return loss(params, batch)

    cut = [Batch(X[i : i + 12], Y[i : i + 12]) for i in range(0, N, 12)]  # 12 12 12 4
    options = {"steps": 30, "log_every": 4, "progress": False}
    natgrad.fit(counted, start(), cut, **options)
    traced = len(calls)
    assert set(calls) == {(12,)}
    natgrad.fit(counted, start(), (X, Y), batch_size=12, **options)
    assert len(calls) <= 2 * traced


def test_all_kinds_of_trees_and_optimisers_learn():
    whole = fit(steps=200)
    bound = whole.history[-1].objective
    of_q = lambda q, batch: loss({"q": q, "log_noise": jnp.log(0.3)}, batch)
    q = natgrad.fit(of_q, start()["q"], DATA, steps=60, progress=False).params
    np.testing.assert_allclose(q.mean, whole.params["q"].mean, atol=0.1)
    plain = lambda w, batch: N * ((batch.y - batch.x @ w) ** 2).mean()
    options = {"optimizer": annealed(optax.scale_by_adam(), 0.3), "progress": False}
    w = natgrad.fit(plain, jnp.zeros(D), DATA, steps=200, **options).params
    np.testing.assert_allclose(w, q.mean, atol=0.1)
    together = natgrad.split(natgrad.guarded_ngd(8 / N), optax.adam(0.05))
    for optimizer in (together, optax.adam(0.05), (together, optax.sgd(1e-4))):
        assert fit(optimizer=optimizer, steps=200).history[-1].objective > bound - 0.2


def test_a_loss_may_be_random_and_its_draws_belong_to_the_step():
    def noisy(params, batch, key):
        return loss(params, batch) + 0.1 * jax.random.normal(key) * params["log_noise"]

    options = {"batch_size": 8, "steps": 30, "progress": False}
    first = natgrad.fit(noisy, start(), DATA, **options).params
    again = natgrad.fit(noisy, start(), DATA, log_every=4, **options).params
    assert same(first, again)
    assert not same(first, fit(steps=30).params)


def interrupting(at, number=signal.SIGINT):
    def callback(record, params):
        if record.step == at:
            os.kill(os.getpid(), number)

    return callback


def test_an_interrupted_run_is_resumed_to_the_same_result(tmp_path):
    score = lambda params: -((params["log_noise"] + 1.0) ** 2)
    options = {"log_every": 4, "score": score}
    whole = fit(**options)
    there = {"checkpoint": tmp_path / "run", **options}
    part = fit(callbacks=[interrupting(24)], **there)
    assert part.history.reason == "interrupted" and part.history[-1].step == 24
    with pytest.raises(CheckpointError, match="step 24 already.*resume=True"):
        fit(**there)
    with pytest.raises(CheckpointError, match="fraction was 0.2 and is 0.25"):
        fit(resume=True, batch_size=10, **there)
    with pytest.raises(CheckpointError, match="data was .* and is "):
        fit(resume=True, data=Batch(X + 1, Y), **there)
    with pytest.raises(Terminated) as ended, stop_on_signals():
        fit(resume=True, callbacks=[interrupting(44, signal.SIGTERM)], **there)
    assert ended.value.history[-1].step == 44
    resumed = fit(resume=True, **there)
    assert same(resumed.params, whole.params)
    numbers = lambda fitted: [
        (r.step, r.objective, r.score, r.step_size) for r in fitted.history
    ]
    assert numbers(resumed) == numbers(whole)
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(4, 61, 4))
    assert same(fit(resume=True, **there).params, whole.params)  # nothing left to do


@pytest.fixture
def uncollected():
    """No garbage is collected: Python ignores a Ctrl-C that comes while it is."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_ctrl_c_at_any_moment_keeps_the_steps_so_far():
    # At its own rate it would converge within seconds.
    endless = {"steps": 10**6, "optimizer": natgrad.guarded_ngd(8 / N)}
    delay, kept = 0.01, []
    while len(kept) < 2:
        threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)).start()
        delay *= 2
        try:
            fitted = fit(**endless)
        except KeyboardInterrupt:  # before the first steps
            continue
        assert fitted.history.reason == "interrupted"
        kept.append(fitted)
    some = kept[0]  # what the steps up to there give, and nothing half done
    whole = fit(**endless, callbacks=[interrupting(some.history[-1].step)], log_every=1)
    assert same(some.params, whole.params)


def test_a_signal_ends_all_runs_of_its_block_and_no_other():
    handlers = lambda: [*map(signal.getsignal, (signal.SIGINT, signal.SIGTERM))]
    before = handlers()
    with stop_on_signals():
        part = fit(callbacks=[interrupting(12)], log_every=4)
        assert part.history.reason == "interrupted" and part.history[-1].step == 12
        with pytest.raises(KeyboardInterrupt):
            fit(steps=20)
    assert before == [
        signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)
    ]
    assert fit(steps=20).history.reason == "all steps taken"


FULL = """
import resource, sys, warnings
from tests.train import test_loop
from natgrad.errors import CheckpointError

limits = resource.getrlimit(resource.RLIMIT_FSIZE)

def fill(record, params):  # from here on no file may grow beyond so many bytes
    if record.step == 20:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))

folder = sys.argv[1]
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    try:
        test_loop.fit(checkpoint=folder, save_seconds=0, callbacks=[fill])
    except CheckpointError as error:
        caught = error
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
assert "could not be written" in str(caught), caught
assert any("the run continues" in str(one.message) for one in said)
whole = test_loop.fit().params
assert test_loop.same(caught.params, whole)
assert len(caught.history) == 60
# And what was whole before is there to go on from.
assert test_loop.same(test_loop.fit(checkpoint=folder, resume=True).params, whole)
"""


def test_a_full_disk_does_not_cost_the_model(tmp_path):
    command = [sys.executable, "-c", FULL, str(tmp_path / "run")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-3000:]


def test_a_folder_that_cannot_be_written_is_found_out_before_the_run(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(CheckpointError, match="cannot hold checkpoints"):
        fit(checkpoint=tmp_path / "file" / "run")


def test_what_is_not_finite_never_enters_the_state():
    bad = X.copy()
    bad[[5, 17]] = np.nan
    fitted = fit(data=Batch(bad, Y), steps=100)
    refused = fitted.history[-1].refused
    seen = natgrad.data.Arrays(Batch(bad, Y), 8, 0).take(0, 100)
    assert refused == np.isnan(seen.x).any((1, 2)).sum()
    clean = np.delete(np.arange(N), [5, 17])
    expected = fit(data=Batch(X[clean], Y[clean]), steps=100).params
    np.testing.assert_allclose(fitted.params["q"].mean, expected["q"].mean, atol=0.2)


def test_a_step_out_of_the_family_is_not_taken():
    far = natgrad.split(natgrad.mirror_descent(100.0), None)
    concave = lambda params, batch: loss(params, batch) - 1.5 * params["q"].entropy()
    with pytest.raises(FitError) as caught:
        natgrad.fit(concave, start(), DATA, optimizer=far, batch_size=N, progress=False)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(caught.value.params))


def test_a_hopeless_run_ends_with_what_it_had_and_the_cause():
    bad = X.copy()
    bad[[5, 17]] = np.inf
    with pytest.raises(FitError, match="rows 5, 17 of the table with values") as caught:
        fit(data=Batch(bad, Y), batch_size=N)
    assert same(caught.value.params, start())

    def spoiled(params, batch):
        return loss(params, batch) + jnp.log(batch.y + 10).sum()

    below = Y.copy()
    below[3] = -20.0
    with pytest.raises(FitError, match="row 3 of the table without a finite loss"):
        natgrad.fit(spoiled, start(), (X, below), batch_size=N, progress=False)

    steep = lambda params, batch: loss(params, batch) + jnp.sqrt(params["log_noise"])
    with pytest.raises(FitError, match=r"gradient of \['log_noise'\] is not finite"):
        natgrad.fit(steep, start(), DATA, batch_size=N, progress=False)


def test_it_stops_when_nothing_improves_and_keeps_the_best():
    best = lambda params: -((params["log_noise"] + 0.4) ** 2)
    fitted = fit(steps=2000, score=best, patience=5, log_every=10)
    scores = fitted.history.column("score")
    assert fitted.history.reason == "no new best in 5 records"
    assert len(scores) - 1 - int(np.argmax(scores)) == 5
    np.testing.assert_allclose(float(best(fitted.params)), max(scores), rtol=1e-6)
    by_bound = fit(steps=100_000, batch_size=N, patience=3, log_every=50)
    assert by_bound.history.reason == "no new best in 3 records"


def test_a_run_that_ends_between_records_gives_what_it_had():
    once = (batch for batch in [DATA] * 30)
    score = lambda params: -((params["q"].mean - 1.0) ** 2).sum()
    fitted = fit(data=once, steps=None, score=score, log_every=1000)
    assert float(score(fitted.params)) == pytest.approx(fitted.history[-1].score)
    assert not same(fitted.params, start())


def test_a_callback_may_keep_what_it_gets_and_no_batch_is_drawn_in_vain():
    class Counted:
        num_data, fraction = float(N), 1.0
        taken = 0

        def take(self, step, number):
            self.taken += number
            return jax.tree.map(lambda leaf: np.stack([leaf] * number), DATA)

    kept, source = [], Counted()
    fit(data=source, callbacks=[lambda record, params: kept.append(params)])
    assert source.taken == 60
    assert not same(kept[0], kept[-1])


def test_a_disk_that_is_full_for_a_moment_costs_nothing(tmp_path, monkeypatch):
    write, failures = checkpoint.FolderCheckpoints._write, []

    def failing_once(self, step, document, arrays):
        if not failures:
            failures.append(step)
            raise OSError("no space left on device")
        write(self, step, document, arrays)

    monkeypatch.setattr(checkpoint.FolderCheckpoints, "_write", failing_once)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = fit(checkpoint=tmp_path, save_seconds=0.01)
    assert failures and same(fit(checkpoint=tmp_path, resume=True).params, whole.params)


def test_an_unknown_option_is_refused_by_name():
    with pytest.raises(TypeError, match="unknown option 'step'; there are .*'steps'"):
        fit(step=3)
    with pytest.raises(InputError, match="steps is 0; it should be above 0"):
        fit(steps=0)


def test_it_stops_in_time():
    fitted = fit(steps=None, minutes=1 / 600)  # converging takes about a second
    assert fitted.history.reason == "the time is over"
    assert fitted.history[-1].seconds < 5
    once = (batch for batch in [DATA] * 7)
    assert fit(data=once, log_every=2).history.reason == "no more data"


def test_a_history_is_a_table_a_picture_and_lines(tmp_path):
    path = tmp_path / "run.jsonl"
    history = fit(log=path, score=lambda params: -params["log_noise"]).history
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    frame = history.to_frame()
    assert list(frame["step"]) == [line["step"] for line in lines] == list(range(1, 61))
    np.testing.assert_array_equal(
        frame["objective"], [line["objective"] for line in lines]
    )
    assert (frame["step_size"] > 0).all() and (frame["refused"] == 0).all()
    assert len(natgrad.plot.history(history).lines) == 2
    pyplot.close("all")
    assert "60 records, all steps taken" in repr(history)


def test_a_rule_of_ones_own_is_enough():
    rule = Rule(
        lambda params: (), lambda params, state, batch, **_: (params + 1, state, params)
    )
    source = natgrad.data.Arrays(DATA, 8)
    fitted = run(rule, jnp.zeros(()), source, steps=30, progress=False)
    assert fitted.params == 30
    assert loop.STEPS == 2500
