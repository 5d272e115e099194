"""One process of first_result.py: runs a case and measures where its seconds go.

The file imports only the standard library. The case must be the first to import NumPy,
JAX or PyTorch, as it is for a user, because these read their settings at import.
"""
# pyright: reportMissingImports=false

import builtins
import functools
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


README = Path(__file__).parents[1] / "README.md"
NOT_INSTALLED = 3
SHORTEST = 1e-3
"""Seconds below which an import is not recorded: most find their module loaded."""

Score = Callable[[], float | None]
Job = Callable[[], Score]
"""Does what the user waits for. What it returns is called when the clock is stopped."""


# Clocks


class Clock(NamedTuple):
    wall: float
    cpu: float


class Span(NamedTuple):
    phase: str
    start: Clock
    end: Clock


def now() -> Clock:
    return Clock(time.time(), time.process_time())


EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "trace",
    "/jax/core/compile/backend_compile_duration": "compile",
}
CACHE_HIT = "/jax/compilation_cache/cache_hits"


class Recorder:
    """The spans of imports, traces and compilations since the last `take`."""

    def __init__(self, started: float):
        self.start = Clock(started, 0.0)
        self.spans = [Span("import", self.start, now())]
        self.cache_hits = 0
        self.local = threading.local()
        self.is_listening = False

    def watch_imports(self) -> None:
        plain = builtins.__import__

        @functools.wraps(plain)
        def timed(*args: Any, **options: Any) -> Any:
            if getattr(self.local, "is_importing", False):
                return plain(*args, **options)
            start, self.local.is_importing = now(), True
            try:
                return plain(*args, **options)
            finally:
                self.local.is_importing = False
                end = now()
                if end.wall - start.wall > SHORTEST:
                    self.spans.append(Span("import", start, end))
                    self.listen()

        builtins.__import__ = timed

    def listen(self) -> None:
        """Listens to JAX, once the case has imported it."""
        if self.is_listening or "jax" not in sys.modules:
            return
        self.is_listening = True
        from jax import monitoring

        monitoring.register_scalar_listener(self.enter)
        monitoring.register_event_duration_secs_listener(self.leave)
        monitoring.register_event_listener(self.count)

    def enter(self, event: str, *_: Any, **__: Any) -> None:
        if event in EVENTS:
            self.local.__dict__.setdefault("starts", []).append(now())

    def leave(self, event: str, *_: Any, **__: Any) -> None:
        if event in EVENTS:
            self.spans.append(Span(EVENTS[event], self.local.starts.pop(), now()))

    def count(self, event: str, **_: Any) -> None:
        self.cache_hits += event == CACHE_HIT

    def take(self) -> dict[str, Any]:
        """What was measured since the last time."""
        end, spans = now(), self.spans
        compiled = sum(span.phase == "compile" for span in spans) - self.cache_hits
        taken: dict[str, Any] = {"programs": compiled if self.is_listening else ""}
        for axis, clock in enumerate(Clock._fields):
            prefix = "" if clock == "wall" else "cpu_"
            taken[clock] = end[axis] - self.start[axis]
            taken |= {f"{prefix}{k}": v for k, v in split(spans, axis).items()}
            shares = [taken[prefix + name] for name in ("import", "trace", "compile")]
            taken[f"{prefix}run"] = taken[clock] - sum(shares)
        return taken

    def restart(self) -> None:
        self.start, self.spans, self.cache_hits = now(), [], 0


def split(spans: list[Span], axis: int) -> dict[str, float]:
    """Seconds of each phase. A moment in two of them counts for the first one here."""
    seconds, seen, before = {}, [], 0.0
    for phase in ("import", "compile", "trace"):
        seen += [(s.start[axis], s.end[axis]) for s in spans if s.phase == phase]
        seconds[phase] = covered(seen) - before
        before += seconds[phase]
    return seconds


def covered(intervals: list[tuple[float, float]]) -> float:
    """The length of the union: a function traced inside another counts once."""
    total, reached = 0.0, -1.0
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


# Jobs


def readme(case: str) -> Job:
    """The README's blocks, or the first one, which is scored if it has the rows."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    code = "\n".join(blocks[:1] if case == "readme-first" else blocks)

    def job() -> Score:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(code, README.name, "exec"), names)
        rows = [names.get(f"{k}_test", names.get(k)) for k in ("X", "y")]
        model = names.get("model")
        if not hasattr(model, "log_density"):
            return lambda: None
        return lambda: model.log_density(*rows).mean()  # pyright: ignore

    return job


def estimator(folder: Path, kind: str) -> Job:
    """The estimator of the kind with only its likelihood set: fits and predicts."""

    def job() -> Score:
        from natgrad import sklearn

        data = read(folder)
        if kind == "ordinal":
            model: Any = sklearn.GPOrdinal()
        elif kind in ("binary", "classes"):
            model = sklearn.GPClassifier()
        else:
            from tables import LIKELIHOODS

            model = sklearn.GPRegressor(LIKELIHOODS[kind])
        model.fit(data["x"], data["y"])
        model.predict(data["x_test"])
        return lambda: model.log_density(data["x_test"], data["y_test"]).mean()

    return job


def gp_fit(folder: Path) -> Job:
    """500 steps of a Student-t model, as in the README."""

    def job() -> Score:
        from natgrad import gp

        data = read(folder)
        from answers import Scaled  # imports NumPy, and so comes after natgrad

        rows = Scaled(data, "real")
        model = gp.initialize(rows.x, gp.likelihoods.StudentT(scale=0.3))
        model, _ = gp.fit(model, (rows.x, rows.y), steps=500)
        predictor = gp.predictor(model)
        predictor.predict(rows.x_test)

        def score() -> float:
            import numpy as np

            density = predictor.log_density(rows.x_test, rows.y_test).mean()
            return density - np.log(rows.y_scale)

        return score

    return job


def command(name: str, folder: Path) -> Job:
    """A command of natgrad's, on the Parquet files of the folder."""
    model = Path("model") if name == "train" else folder / "model"
    arguments = {
        "train": [folder / "train.parquet", "--target", "target", "--out", model],
        "evaluate": [model, folder / "test.parquet"],
        "predict": [model, folder / "test.parquet", "--out", "predictions.parquet"],
    }[name]

    def job() -> Score:
        from natgrad._cli import main

        try:
            main([name, *map(str, arguments)])
        except SystemExit as ended:
            if ended.code:
                raise
        return score

    def score() -> float:
        from natgrad import sklearn

        data = read(folder)
        fitted = sklearn.load(model / "model.natgrad")
        return fitted.log_density(data["x_test"], data["y_test"]).mean()

    return job


def peer(method: str, folder: Path, kind: str) -> Job:
    def job() -> Score:
        import rivals
        import tables

        try:
            entry = rivals.entry(method)
        except ImportError:
            sys.exit(NOT_INSTALLED)
        if method == "gpytorch":
            import torch

            # tables.py gives every method one thread; here all have their defaults.
            torch.set_num_threads = lambda _: None
        data = read(folder)
        answer = entry(data, kind, 0, float("inf"))
        return lambda: tables.score(answer, data["y_test"])["log_density"]

    return job


def read(folder: Path) -> dict[str, Any]:
    import numpy as np

    with np.load(folder / "data.npz") as file:
        return dict(file)


def make(case: str, method: str, folder: Path, kind: str) -> Job:
    if method != "natgrad":
        return peer(method, folder, kind)
    if case.startswith("readme"):
        return readme(case)
    if case in ("train", "evaluate", "predict"):
        return command(case, folder)
    return gp_fit(folder) if case == "gp-fit" else estimator(folder, kind)


def main() -> None:
    """Runs the job some times over, with a line of JSON in answer.jsonl for each."""
    started, case, method, folder, kind, runs = json.loads(sys.argv[1])
    recorder = Recorder(started)
    recorder.watch_imports()
    job = make(case, method, Path(folder), kind)
    for _ in range(runs):
        score = job()
        answer = recorder.take() | {"log_density": score()}
        with open("answer.jsonl", "a") as file:
            file.write(json.dumps(answer, default=float) + os.linesep)
        recorder.restart()


if __name__ == "__main__":
    main()
