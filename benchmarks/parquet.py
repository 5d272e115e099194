"""Batches from Parquet files: how fast, in how much memory, and for how many rows.

    python benchmarks/parquet.py make FOLDER --rows 1000000
    python benchmarks/parquet.py make FOLDER --rows 100000000
    python benchmarks/parquet.py ingest FOLDER --out benchmarks/results
    python benchmarks/parquet.py memory FOLDER --out benchmarks/results
    python benchmarks/parquet.py index FOLDER --out benchmarks/results
    python benchmarks/parquet.py shuffle FOLDER --out benchmarks/results

`make` writes tables of 8 inputs and a target, in 32 bits, in row groups of 50,000 rows
and files of 5 million. `ingest` takes all batches of 1024 rows of the smallest table,
in 64 bits: as natgrad shuffles them, and as a bare scan of pyarrow.dataset gives them,
in their order. They take turns in one process, with one thread for each and natgrad's
that reads ahead; the ratio is of CPU time of all threads, per round, after one round
that warms up. Beside them are a scan in pieces of a row group, for comparison, and a
step of training with 100 inducing points, to hold against what its batch costs.

`memory` is the peak of a fresh process that trains 300 steps, by `resource`, for each
table there is. `index` is a table of a billion rows, which is one file many times over:
its plan, not its data. `shuffle` writes the largest table anew, in a fresh process.
"""

import os


os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NPROC="1")
os.environ["PJRT_NPROC"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import argparse  # noqa: E402
import itertools  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pyarrow as arrow  # noqa: E402
from pyarrow import dataset, parquet  # noqa: E402

import natgrad.data  # noqa: E402
from natgrad import gp  # noqa: E402
from natgrad.data import Parquet, scan  # noqa: E402
from natgrad.data._dataset import ParquetDataset  # noqa: E402
from natgrad.gp._fit import default_rule  # noqa: E402


jax.config.update("jax_enable_x64", True)
arrow.set_cpu_count(1)

WIDTH, INDUCING, BATCH, GROUP, FILE = 8, 100, 1024, 50_000, 5_000_000
NAMES = [*(f"x{at}" for at in range(WIDTH)), "y"]
STEPS = 300
CHOICES = ["make", "ingest", "memory", "index", "shuffle", "train", "rewrite"]


def make(folder: Path, rows: int) -> None:
    """A smooth function of eight inputs and noise, written piece by piece."""
    table = folder / f"{rows}"
    table.mkdir(parents=True, exist_ok=True)
    for begin in range(0, rows, FILE):
        path = table / f"part-{begin // FILE:05d}.parquet"
        pieces = range(begin, min(begin + FILE, rows), GROUP)
        schema = arrow.schema([(name, arrow.float32()) for name in NAMES])
        with parquet.ParquetWriter(path, schema, use_dictionary=False) as file:
            for place in pieces:
                size = min(GROUP, rows - place)
                rng = np.random.default_rng([0, place])
                x = rng.standard_normal((WIDTH, size), np.float32)
                y = np.sin(2 * x).sum(0) / 2
                y += np.float32(0.3) * rng.standard_normal(size, np.float32)
                file.write_table(arrow.table([*x, y], schema=schema))
    print(f"{rows:,} rows in {table}")


def ingest(folder: Path, rounds: int) -> list[str]:
    table = smallest(folder)
    source, rows = Parquet(table, "y", batch_size=BATCH), int(table.name)
    found = scan(source.dataset, "y", rows=2000)
    model = gp.initialize(found.sample_x, gp.likelihoods.Gaussian(0.3), INDUCING)
    rule = default_rule(source.num_data, source.fraction)
    state, steps = rule.init(model), source.plan.batches
    taken = jax.tree.map(lambda leaf: leaf[0], source.take(0, 1))
    step = jax.jit(lambda *state: rule.step(*state, taken, progress=0.5)[:2])

    def stream(number: int) -> Callable[[], float]:
        """A pass each time, after the last; what was read ahead is waited for."""
        ours, passes = Parquet(source.dataset, "y", batch_size=BATCH), itertools.count()

        def run() -> float:
            begin = next(passes) * steps
            for at in range(begin, begin + steps, number):
                ours.take(at, min(number, begin + steps - at))
            for _, ahead in ours._ahead.values():
                ahead.result()
            return steps

        return run

    def bare(size: int) -> float:
        for batch in dataset.dataset(table).to_batches(
            columns=NAMES, batch_size=size, use_threads=False
        ):
            matrix = np.empty((len(batch), WIDTH + 1))
            for at in range(WIDTH + 1):
                matrix[:, at] = batch.column(at).to_numpy()
        return rows / BATCH

    def train() -> float:
        now = model, state
        for _ in range(30):
            now = step(*now)
        jax.block_until_ready(now)
        return 30

    contenders: dict[str, Callable[[], float]] = {
        "pyarrow.dataset, in order": lambda: bare(BATCH),
        f"the same, {GROUP:,} rows at once": lambda: bare(GROUP),
        "natgrad, shuffled, 20 steps at once": stream(20),
        "natgrad, shuffled, a step at a time": stream(1),
        f"a step of training, M = {INDUCING}": train,
    }
    cpu, wall = ({name: [] for name in contenders} for _ in range(2))
    for turn in range(rounds + 1):
        for name, run in contenders.items():
            before = time.process_time(), time.perf_counter()
            number = run()
            after = time.process_time(), time.perf_counter()
            if turn:
                cpu[name].append((after[0] - before[0]) / number)
                wall[name].append((after[1] - before[1]) / number)
    base, last = (np.array(cpu[name]) for name in (list(cpu)[0], list(cpu)[-1]))
    lines = [
        f"| {rows:,} rows, batches of {BATCH} | CPU ms a batch | million rows per "
        "CPU-s | per wall-clock s | rate / pyarrow.dataset | CPU / a step |",
        "|---|---|---|---|---|---|",
    ]
    for name in contenders:
        spent, passed = np.array(cpu[name]), np.array(wall[name])
        lines.append(
            f"| {name} | {1e3 * np.median(spent):.2f} | "
            f"{BATCH / np.median(spent) / 1e6:.2f} | "
            f"{BATCH / np.median(passed) / 1e6:.2f} | {quartiles(base / spent)} | "
            f"{quartiles(spent / last)} |"
        )
    return lines


def memory(folder: Path) -> list[str]:
    """The peak of a process that trains from each table."""
    lines = [
        "| rows | peak memory, MB | to the smallest | seconds |",
        "|---|---|---|---|",
    ]
    peaks = []
    for table in sorted(tables(folder), key=lambda table: int(table.name)):
        most, seconds = alone("train", table)
        peaks.append(most)
        ratio = most / peaks[0]
        lines.append(
            f"| {int(table.name):,} | {most:.0f} | {ratio:.3f} | {seconds:.0f} |"
        )
    return lines


def train(table: Path) -> None:
    began = time.monotonic()
    source = Parquet(table, "y", batch_size=BATCH)
    first = source.take(0, 2).x.reshape(-1, WIDTH)
    model = gp.initialize(first, gp.likelihoods.Gaussian(0.3), INDUCING)
    gp.fit(model, source, steps=STEPS, progress=False)
    print(json.dumps([peak(), time.monotonic() - began]))


def shuffled(folder: Path) -> list[str]:
    """What it takes to write the largest table in random order."""
    table = max(tables(folder), key=lambda table: int(table.name))
    most, seconds = alone("rewrite", table)
    return [
        f"| {int(table.name):,} rows put in random order | |",
        "|---|---|",
        f"| million rows per CPU-s | {int(table.name) / seconds / 1e6:.2f} |",
        f"| peak memory, MB | {most:.0f} |",
    ]


def rewrite(table: Path) -> None:
    out = table.parent / "shuffled"
    before = time.process_time()
    natgrad.data.shuffle(table, out, overwrite=True)
    seconds = time.process_time() - before
    shutil.rmtree(out)
    print(json.dumps([peak(), seconds]))


def alone(what: str, table: Path) -> list[float]:
    """What a command tells that has a process of its own."""
    command = [sys.executable, __file__, what, str(table)]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(told.stdout.splitlines()[-1])


def peak() -> float:
    """The most memory that this process had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def index(folder: Path, rows: int = 10**9) -> list[str]:
    """A billion rows by their counts alone."""
    path = smallest(folder) / "part-00000.parquet"
    each = parquet.read_metadata(path).num_rows
    before = resident()
    began = time.perf_counter()
    dataset = ParquetDataset([str(path)] * (rows // each))
    opened = time.perf_counter() - began
    began = time.perf_counter()
    source = Parquet(dataset, "y", batch_size=BATCH)
    planned = time.perf_counter() - began
    rng = np.random.default_rng(0)
    seeks = []
    for step in rng.integers(0, 3 * source.plan.batches, 20):
        began = time.perf_counter()
        for shard in range(source.shards):
            source.plan.at(shard, int(step) * source.plan.cut)
        seeks.append(time.perf_counter() - began)
    grown = resident() - before
    began = time.perf_counter()
    source.take(int(step), 1)
    taken = time.perf_counter() - began
    return [
        f"| {dataset.total:,} rows in {len(dataset):,} row groups | |",
        "|---|---|",
        f"| seconds to index the files, of which one is distinct | {opened:.2f} |",
        f"| seconds to plan, and to look for order in the target | {planned:.2f} |",
        f"| milliseconds to find a step of any pass, the slowest of 20 | "
        f"{1e3 * max(seeks):.1f} |",
        f"| seconds to read the batch of such a step | {taken:.2f} |",
        f"| memory of all that, MB, before a batch is read | {grown:.0f} |",
    ]


def resident() -> float:
    """The memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def tables(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.isdecimal()]


def smallest(folder: Path) -> Path:
    return min(tables(folder), key=lambda table: int(table.name))


def quartiles(ratios: np.ndarray) -> str:
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def keep(out: Path | None, what: str, command: str, lines: list[str]) -> None:
    """Puts a table in the place of the last of its kind."""
    print("\n".join(lines))
    if out is None:
        return
    path = out / "parquet.md"
    kept = {}
    for part in path.read_text().split("\n\n`") if path.exists() else []:
        kept[part.strip("`").split()[2]] = part.strip("`\n")
    kept[what] = "\n".join([f"{command}`", "", *lines])
    order = [name for name in ("ingest", "memory", "index", "shuffle") if name in kept]
    path.write_text("\n\n".join(f"`{kept[name]}" for name in order) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=CHOICES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    command = f"python benchmarks/parquet.py {given.what} FOLDER"
    match given.what:
        case "make":
            make(given.folder, given.rows)
        case "train":
            train(given.folder)
        case "rewrite":
            rewrite(given.folder)
        case "ingest":
            command += f" --rounds {given.rounds}"
            keep(given.out, "ingest", command, ingest(given.folder, given.rounds))
        case "memory":
            keep(given.out, "memory", command, memory(given.folder))
        case "shuffle":
            keep(given.out, "shuffle", command, shuffled(given.folder))
        case "index":
            keep(given.out, "index", command, index(given.folder))


if __name__ == "__main__":
    main()
