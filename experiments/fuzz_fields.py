"""Whether a file with a hostile value in any one field is refused, or true to it.

    python experiments/fuzz_fields.py --files 200

Files of four kinds are taken apart: a model and the three estimators. Each field in
turn gets a hostile value, is removed, renamed or joined by another; each array gets
other numbers, shapes and types; models and names of classes are exchanged. The hash is
made right again, so that the reader goes on to the checks behind it. A file passes if
natgrad refuses it with an error of its own for files, or if the estimator predicts what
its fields say by `expected`, with finite means, positive deviations, probabilities that
sum to one and no control character in what it prints. It fails if it runs anything, or
takes more than 200 MB or a second. The table goes to results/fuzz_fields.md.
"""

import argparse
import collections
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
from fuzz_cases import SEEDS, cases

import natgrad.sklearn
from natgrad import gp
from natgrad.errors import CorruptFileError, FitError, IncompatibleFileError
from natgrad.gp._files import FORMAT


HERE = Path(__file__).parent
SECONDS, MEGABYTES, LETTERS = 1.0, 200.0, 1000
ROWS = np.random.default_rng(0).normal(size=(8, 2)) * [3, 50]
# Whatever a reader might be led to do, as Python itself reports it.
DEEDS = ("import", "exec", "compile", "pickle.", "marshal.", "os.", "subprocess.")
DEEDS += ("socket.", "ctypes.", "shutil.")


class Wrong(Exception):
    """A file that was taken and is not as it should be, or was refused badly."""


def judged(kind: str, path: Path) -> str:
    """What became of a file; raises `Wrong` if that should not be."""
    read = gp.load if kind == "model" else natgrad.sklearn.load
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = read(path)
        except (CorruptFileError, IncompatibleFileError) as error:
            if len(str(error)) > LETTERS or not str(error).isprintable():
                raise Wrong(f"says {str(error)[:200]!r}") from None
            return type(error).__name__
        except Exception as error:
            raise Wrong(f"raises {error!r}"[:300]) from error
        try:
            (check_model if kind == "model" else check_estimator)(found, path)
        except Wrong:
            raise
        except FitError:
            return "FitError"
        except Exception as error:
            raise Wrong(f"loads, then raises {error!r}"[:300]) from error
    return "loaded"


def require(is_so: Any, what: str) -> None:
    if not is_so:
        raise Wrong(what)


def check_answers(answers: tuple[np.ndarray, ...], is_classifier: bool) -> None:
    require(all(np.isfinite(answer).all() for answer in answers), "is not finite")
    if is_classifier:
        require((answers[0] >= 0).all(), "has a negative probability")
        require(np.allclose(answers[0].sum(1), 1, atol=1e-6), "does not sum to one")
    else:
        require((answers[1] > 0).all(), "has no positive deviation")


def answered(model: gp.SparseGP, x: np.ndarray, is_classifier: bool) -> Any:
    predictor = gp.predictor(model)
    return (predictor.probabilities(x),) if is_classifier else predictor.predict(x)


def check_model(model: gp.SparseGP, path: Path) -> None:
    is_classifier = hasattr(model.likelihood, "classes")
    if has_moments(model) or is_classifier:
        check_answers(answered(model, ROWS, is_classifier), is_classifier)
    density = gp.predictor(model).log_density(ROWS, np.ones(len(ROWS)))
    require(not np.isnan(density).any(), "has no density")


def has_moments(model: gp.SparseGP) -> bool:
    """A Student-t of few degrees of freedom has no finite mean, or no variance."""
    return getattr(model.likelihood, "dof", math.inf) > 2


def check_estimator(estimator: Any, path: Path) -> None:
    is_classifier = hasattr(estimator, "predict_proba")
    for text in (str(estimator), estimator._repr_html_(), repr(estimator)):
        require("\x1b" not in text and "\u202e" not in text, "prints escapes")
    require("\x1b" not in repr(estimator.history_), "prints escapes")
    if is_classifier:
        answers = (estimator.predict_proba(ROWS),)
        labels = estimator.predict(ROWS)
    else:
        answers = estimator.predict(ROWS, return_std=True)
        labels = answers[0]
    if has_moments(estimator.model_):
        check_answers(answers, is_classifier)
        density = estimator.log_density(ROWS, labels)
        require(not np.isnan(density).any(), "has no density")
    for one, other in zip(answers, expected(path, is_classifier, labels), strict=True):
        is_same = np.allclose(one, other, rtol=1e-9, equal_nan=True)
        require(is_same, "predicts what it does not say")
    estimator.save(path)
    natgrad.sklearn.load(path)


def expected(path: Path, is_classifier: bool, labels: np.ndarray) -> Any:
    """What the numbers in a file say of its predictions, by another way."""
    with jax.enable_x64(True):
        model, said = gp.load(path), FORMAT.read_metadata(path)["fitted"]
        shifted = np.longdouble(ROWS) - np.longdouble(said["x_mean_"])
        x = np.clip(shifted / np.longdouble(said["x_scale_"]), -1e100, 1e100)
        answers = answered(model, np.asarray(x, float), is_classifier)
    if is_classifier:
        best = [said["classes_"]["values"][i] for i in answers[0].argmax(1)]
        require(labels.tolist() == best, "predicts labels it does not have")
        return (answers[0] / answers[0].sum(1, keepdims=True),)
    mean, var = answers
    scale = said["y_scale_"]
    return mean * scale + said["y_mean_"], np.sqrt(var) * scale


# Measuring


def memory(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))


def measured(kind: str, number: int, seed: int) -> dict[str, Any]:
    """The outcomes of all files of a kind, the worst of their costs, and failures."""
    if kind == "model":
        jax.config.update("jax_enable_x64", True)
    os.environ["NATGRAD_COMPILATION_CACHE"] = ""  # it reads and writes
    deeds: list[str] = []
    is_watched = False

    def watch(event: str, details: Any) -> None:
        if is_watched and event.startswith(DEEDS) and event != "os.listdir":
            deeds.append(f"{event} {str(details)[:100]}")

    sys.addaudithook(watch)
    counts, failures, worst = collections.Counter(), [], [0.0, 0.0]
    read = gp.load if kind == "model" else natgrad.sklearn.load
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        for seed_path in SEEDS[kind]:  # compiled once
            path.write_bytes(seed_path.read_bytes())
            judged(kind, path)
        for case in cases(kind, number, seed):
            path.write_bytes(case.data)
            Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
            before, start = memory("VmRSS"), time.process_time()
            del deeds[:]
            is_watched = True
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with contextlib.suppress(Exception):  # judged below
                    read(path)
            is_watched = False
            cost = time.process_time() - start, memory("VmHWM") - before
            worst = [max(pair) for pair in zip(worst, cost, strict=True)]
            try:
                outcome = judged(kind, path)
                require(cost[0] < SECONDS, f"takes {cost[0]:.1f} s")
                require(not deeds, f"does {deeds[:3]}")
                grown = memory("VmHWM") - before
                worst[1] = max(worst[1], grown)
                require(grown < MEGABYTES, f"takes {grown:.0f} MB")
            except Wrong as wrong:
                outcome = "FAILED"
                failures.append(f"{case.name}: {wrong}")
            counts[outcome] += 1
    return {"counts": counts, "worst": worst, "failures": failures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=SEEDS, help="one kind, as JSON")
    options = parser.parse_args()
    if options.kind:
        print(json.dumps(measured(options.kind, options.files, options.seed)))
        return
    flags = ["--files", str(options.files), "--seed", str(options.seed)]
    columns = ["CorruptFileError", "IncompatibleFileError", "FitError", "loaded"]
    columns += ["FAILED"]
    lines = [
        f"`python experiments/fuzz_fields.py {' '.join(flags)}`",
        "",
        "Loaded are files whose change leaves a sound model or estimator, which "
        "predicts what\nits fields say. A FitError is raised when a model is first "
        "used.",
        "",
        f"| kind | files | {' | '.join(columns)} | slowest (s of CPU) | most memory "
        "(MB) |",
        "|---|" + "---|" * (len(columns) + 3),
    ]
    failures = []
    for kind in SEEDS:
        # Of its own, so that memory is that of the files of this kind.
        arguments = [sys.executable, __file__, "--kind", kind, *flags]
        run = subprocess.run(arguments, capture_output=True, text=True)
        if run.returncode:
            raise SystemExit(run.stderr)
        found = json.loads(run.stdout.splitlines()[-1])
        failures += [f"{kind}: {each}" for each in found["failures"]]
        counts = [found["counts"].get(column, 0) for column in columns]
        seconds, megabytes = found["worst"]
        cells = [sum(counts), *counts, f"{seconds:.2f}", math.ceil(megabytes)]
        lines.append(f"| {kind} | {' | '.join(map(str, cells))} |")
    (HERE / "results" / "fuzz_fields.md").write_text("\n".join(lines) + "\n")
    print("\n".join([*lines, *failures]))
    if failures:
        raise SystemExit(f"{len(failures)} files are not refused, and not as they say")


if __name__ == "__main__":
    main()
