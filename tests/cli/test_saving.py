"""What cannot be saved is refused before the first step, and no error costs a run."""

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from natgrad import _config as config, _container as container, sklearn
from natgrad._cli import training
from natgrad._cli.folder import CHECKPOINT, MODEL, RUN
from natgrad._config import Run
from natgrad.data._encoding import Category, Number
from natgrad.data._prepare import Prepared, prepare
from natgrad.data._schema import Schema
from natgrad.errors import CheckpointError, FitError, InputError, Terminated
from natgrad.sklearn import GPRegressor, _files as files
from natgrad.train import Record


def wide(columns, length):
    """A table of text, of 100 values of so many characters to a column."""
    text = [f"v{value:0{length}d}" for value in range(100)]
    rows = [",".join([*[word] * columns, str(row)]) for row, word in enumerate(text)]
    return "\n".join([",".join([*"abcdef"[:columns], "y"]), *rows])


def size(value):
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def test_a_table_is_refused_before_the_first_step_if_its_model_could_not_be_saved(
    tmp_path,
):
    (tmp_path / "wide.csv").write_text(wide(2, 15_000))
    run, out = Run(str(tmp_path / "wide.csv"), "y"), tmp_path / "out"
    message = "could not be saved: its columns and classes take 3,.* leave some out"
    with pytest.raises(InputError, match=message):
        training.train(run, out, False, False, False)
    assert not out.exists()


@pytest.mark.filterwarnings("ignore")
def test_a_thread_that_cannot_handle_signals_can_train(tmp_path):
    """Ray runs a worker so."""
    rows = [f"{row},{row % 7}.5" for row in range(30)]
    (tmp_path / "a.csv").write_text("\n".join(["a,y", *rows]))
    run = Run(str(tmp_path / "a.csv"), "y", likelihood="gaussian", steps=2)
    with ThreadPoolExecutor(1) as worker:
        job = worker.submit(training.train, run, tmp_path / "out", False, False, False)
        assert job.result() == 0
    assert (tmp_path / "out" / MODEL).exists()


def test_a_model_too_large_to_be_read_is_refused_before_the_first_step():
    schema = Schema((Number("a"),), nulls="error")
    run = Run("a.csv", "y", likelihood="heteroskedastic", num_inducing=10_000)
    prepared = Prepared(run, schema, 20_000)
    with pytest.raises(InputError, match="1,600,000,000 bytes or more.*--num-inducing"):
        training.check_can_be_saved(prepared)


def test_six_text_columns_of_100_kilobytes_can_be_saved(tmp_path):
    (tmp_path / "wide.csv").write_text(wide(6, 1000))
    prepared = prepare(Run(str(tmp_path / "wide.csv"), "y"))
    training.check_can_be_saved(prepared)


def test_a_file_takes_no_more_than_what_is_allowed_for(folder, trained):
    saved, _ = container.read(folder / "model" / MODEL)
    prepared = prepare(config.read(folder / "model" / RUN))
    longest = -1.2345678901234567e-300  # no number takes more characters
    record = Record(2**63, *4 * [longest], *2 * [2**63], longest)
    known = saved["metadata"]["fitted"]
    long = {"schema_", "feature_names_in_", "x_mean_", "x_scale_", "classes_"}
    columns = sum(size(known[name]) for name in long & known.keys())
    assert columns <= training.most_bytes(prepared)
    rest = size(saved) - columns - size(known["history_"])
    history = files.RECORDS * size(dataclasses.asdict(record))
    assert 2 * rest + history < training.REST


def test_a_file_holds_the_history_of_a_run_of_any_length(folder, trained, tmp_path):
    estimator = sklearn.load(folder / "model" / MODEL)
    last = estimator.history_[-1]
    estimator.history_.records = [last] * 100_000
    estimator.save(tmp_path / "long.natgrad")
    document, _ = container.read(tmp_path / "long.natgrad")
    records = document["metadata"]["fitted"]["history_"]["records"]
    assert len(records) == files.RECORDS
    assert records[-1]["step"] == last.step


@pytest.mark.parametrize("has_step", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        InputError("of a target"),
        FitError("not finite"),
        CheckpointError("model could not be written"),
        MemoryError(),
        RuntimeError("of XLA"),
        KeyboardInterrupt(),
        Terminated("SIGTERM"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_error_deletes_a_checkpoint(error, has_step, tmp_path, capsys):
    schema = Schema((Category("town", ("Bath", "Ely")),), nulls="error")

    class Failing(GPRegressor):
        def _fit(self, *_, checkpoint, **__):
            if has_step:
                (checkpoint / "5.natgrad").touch()
            raise error

    run = Run("a.csv", "y", likelihood="gaussian")
    (tmp_path / CHECKPOINT).mkdir()
    try:
        training._fit(Failing(), Prepared(run, schema, 10), tmp_path, False)
    except BaseException as raised:
        assert type(raised) is type(error)
    assert (tmp_path / CHECKPOINT / "5.natgrad").exists() == has_step
    if has_step:
        told = capsys.readouterr().err
        assert "natgrad resume" in told or isinstance(error, CheckpointError)
