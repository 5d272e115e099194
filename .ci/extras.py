"""Installs each extra alone, and has it do what it promises; prints a table.

Each goes into an environment of its own, as pip is configured, with the newest versions
of all. There its promise must run. Where natgrad is installed bare, the promise must
fail with an error that names the extra.

    python -m build
    python .ci/extras.py dist/*.whl
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import NamedTuple


MOST = 12
"""How many packages natgrad may bring to who has jax, itself among them."""

BEGIN = """
import subprocess, sys
from pathlib import Path
import numpy as np
from natgrad import gp

x = np.linspace(0, 1, 50, dtype="f4")[:, None]
model = gp.initialize(x, gp.likelihoods.Gaussian(0.1), 10)

def fit(**options):
    data = (x, np.sin(6 * x[:, 0]))
    return gp.fit(model, data, steps=20, progress=False, **options)

def natgrad(line):
    command = Path(sys.executable).with_name("natgrad")
    subprocess.run([command, *line.split()], check=True)
"""

BARE = """
assert np.isfinite(fit(checkpoint="run").history[-1].objective)
fit(checkpoint="run", resume=True)
natgrad("--help")
natgrad("doctor")
"""


class Promise(NamedTuple):
    """What an extra is for, as a script; what is there before it, and beside it."""

    script: str
    before: str = ""
    beside: str = ""


EXTRAS = {
    "onnx": Promise("""
gp.to_onnx(gp.predictor(model), "model.onnx")
import onnx
onnx.checker.check_model("model.onnx")
"""),
    "stablehlo": Promise("""
gp.to_stablehlo(gp.predictor(model), "model.stablehlo")
assert Path("model.stablehlo").stat().st_size
"""),
    "plot": Promise(
        """
from natgrad import plot
plot.history(fit().history).figure.savefig("history.png")
""",
        beside="sklearn",
    ),
    "sklearn": Promise("""
from natgrad import datasets
from natgrad.sklearn import GPRegressor
X, y = datasets.load("motorcycle")
assert GPRegressor().fit(X, y).score(X, y) > 0.5
"""),
    "numpyro": Promise("""
from natgrad.numpyro import fit
import numpyro
from numpyro import distributions as dist
def model(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x, 0.5), obs=y)
result = fit(model, 10.0)
assert abs(result.guide.median(result.params)["x"] - 8) < 1e-3
"""),
    "parquet": Promise(
        """
from natgrad.data import Parquet
rows = Parquet("rows.parquet", "y", ["x"], batch_size=10)
gp.fit(model, rows, steps=20, progress=False)
""",
        before="""
import pyarrow, pyarrow.parquet
columns = {"x": x[:, 0], "y": np.sin(6 * x[:, 0])}
pyarrow.parquet.write_table(pyarrow.table(columns), "rows.parquet")
""",
    ),
    "cli": Promise(
        """
natgrad("train motorcycle --target accel --out model")
natgrad("evaluate model motorcycle")
natgrad("predict model motorcycle --out predictions.csv")
natgrad("report model motorcycle --out report.html")
""",
        beside="sklearn",
    ),
    "ray": Promise("""
import natgrad.ray
natgrad.ray.train(["train", "motorcycle", "--target", "accel"], workers=1)
assert list(Path("model").iterdir())
"""),
}


class Environment:
    """A virtual environment with what was asked of pip, and no more."""

    def __init__(self, folder: Path, *wanted: str):
        self.python = folder / "bin" / "python"
        venv.create(folder, with_pip=False)
        begin = time.perf_counter()
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install"]
        # Not compiled, so that sizes are those of what was unpacked.
        subprocess.run([*pip, "-qq", "--no-compile", *wanted], check=True)
        self.seconds = time.perf_counter() - begin
        self.names = self.packages()
        library = next((folder / "lib").glob("python*"))
        files = [path for path in library.rglob("*") if path.is_file()]
        self.megabytes = sum(path.stat().st_size for path in files) / 1e6

    def tried(self, *words: str, cwd: Path | None = None):
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        clean |= {"MPLBACKEND": "agg"}
        command = [str(self.python), *words]
        return subprocess.run(
            command, cwd=cwd, env=clean, capture_output=True, text=True
        )

    def packages(self) -> set[str]:
        script = "from importlib.metadata import distributions as all_of\n"
        script += "print(*{each.metadata['Name'] for each in all_of()})"
        return set(self.tried("-c", script).stdout.split())

    def run(self, script: str) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as folder:
            return self.tried("-c", BEGIN + script, cwd=Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--with-ray", action="store_true", help="it is large")
    parser.add_argument("--only", action="append", choices=EXTRAS, metavar="EXTRA")
    options = parser.parse_args()
    chosen = options.only or [name for name in EXTRAS if name != "ray"]
    if options.with_ray and "ray" not in chosen:
        chosen.append("ray")

    failed = []
    with tempfile.TemporaryDirectory() as folder:
        jax = Environment(Path(folder, "jax"), "jax")
        bare = Environment(Path(folder, "bare"), str(options.wheel))
        print(
            "| extra | packages over jax alone | MB over it | seconds of pip | works |"
        )
        print("|---|---|---|---|---|")

        def show(name: str, env: Environment, problem: str) -> None:
            added = len(env.names - jax.names)
            size = env.megabytes - jax.megabytes
            verdict = "no" if problem else "yes"
            print(f"| {name} | {added} | {size:.0f} | {env.seconds:.0f} | {verdict} |")
            sys.stdout.flush()
            if problem:
                failed.append(f"{name}: {problem}")

        added = bare.names - jax.names
        found = bare.run(BARE)
        problem = found.stderr[-3000:] if found.returncode else ""
        if len(added) > MOST:
            problem += f"{len(added)} packages over jax alone, more than {MOST}"
        show("(none)", bare, problem)
        for name in chosen:
            promise = EXTRAS[name]
            extras = [name, promise.beside] if promise.beside else [name]
            wanted = f"{options.wheel}[{','.join(extras)}]"
            env = Environment(Path(folder, name), wanted)
            found = env.run(promise.before + promise.script)
            problem = found.stderr[-3000:] if found.returncode else ""
            without = bare.run(promise.script)
            if not without.returncode:
                problem += "what it promises works without it"
            elif not re.search(rf"natgrad\[({'|'.join(extras)})\]", without.stderr):
                problem += f"without it, the error is {without.stderr[-500:]}"
            show(name, env, problem)
    print(f"\nOver jax alone: {', '.join(sorted(added, key=str.lower))}.")
    if failed:
        sys.exit("\n\n".join(failed))


if __name__ == "__main__":
    main()
