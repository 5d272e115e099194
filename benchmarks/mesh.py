"""What a step costs on many devices: its compiled program, and rows per second.

    python benchmarks/mesh.py program --devices 1,2,4,8,16,32,64    # results/mesh.md
    python benchmarks/mesh.py scaling --rounds 5

`program` compiles a step for simulated devices, and counts collectives, their bytes and
the floating-point operations of one device. `scaling` trains in one process on one core
and in two on two, each with as many rows: twice as many rows per second would be ideal.
Each process is tied to a core of its own; `--loose` lets both use both cores.
"""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
from pathlib import Path


RESULTS = Path(__file__).parent / "results" / "mesh.md"
SIZE, WIDTH, ROWS = 100, 8, 8192
COLLECTIVES = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
BYTES = {"f64": 8, "f32": 4, "s64": 8, "s32": 4, "u32": 4, "pred": 1}


def compiled(number: int, kind: str):
    """A step of training on so many devices, of one of three kinds."""
    import jax
    import numpy as np
    import optax

    import natgrad
    from natgrad import gp
    from natgrad.data import Batch
    from natgrad.gp._fit import default_rule
    from natgrad.train._compiled import _on_all_devices, first_state
    from natgrad.train._constants import NONE
    from natgrad.train._devices import Devices
    from natgrad.train._mesh import meshed
    from natgrad.train._rules import in_turn

    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, WIDTH))
    y = rng.standard_normal(ROWS)
    model = gp.initialize(x, gp.likelihoods.Gaussian(), num_inducing=SIZE)
    loss = lambda model, batch: -gp.elbo(model, batch, 1e6)
    rules = {
        "one gradient": in_turn(
            loss, natgrad.split(natgrad.ngd(0.1), optax.adam(0.01))
        ),
        "in turn": gp.alternating(natgrad.ngd(0.1), optax.adam(0.01), 1e6),
        "guarded": default_rule(1e6, 0.01),
    }
    rule = rules[kind]
    devices = meshed(jax.devices()[:number]) if number > 1 else Devices()
    state = devices.spread(first_state(rule, False, model)._replace(best=None))
    batches = devices.place(Batch(x[None], y[None]))
    rest = (1, 100.0, 0.0, 1e6, 0)
    step = jax.jit(_on_all_devices, static_argnums=(0, 1, 2))
    return step.lower(rule, devices, NONE, state, batches, *rest).compile()


def counted(program) -> list[tuple[str, int]]:
    """The collectives of a compiled program, and the bytes of each."""
    found = []
    pattern = rf"= (\S+) ({COLLECTIVES})(?:-start)?\("
    for shapes, name in re.findall(pattern, program.as_text()):
        size = 0
        for kind, dims in re.findall(r"(\w+)\[([\d,]*)\]", shapes):
            numbers = [int(n) for n in dims.split(",") if n]
            product = BYTES[kind]
            for n in numbers:
                product *= n
            size += product
        found.append((name, size))
    return found


def expected(kind: str) -> list[int]:
    """The bytes of each collective by the formula, in float64, for one latent."""
    triangle = SIZE * (SIZE + 1) // 2
    of_q = SIZE + triangle
    others = SIZE * WIDTH + WIDTH + 2  # Z, lengthscales, two variances
    if kind == "one gradient":
        return [8 * (1 + of_q + others)]
    both = [8 * (1 + of_q), 8 * others]
    return both if kind == "in turn" else [*both, 8]


def program(numbers: list[int], is_json: bool) -> None:
    import jax

    lines, found = [], []
    for kind in ("one gradient", "in turn", "guarded"):
        flops = {}
        for number in numbers:
            step = compiled(number, kind)
            flops[number] = step.cost_analysis()["flops"]
            found.append(
                {
                    "kind": kind,
                    "devices": number,
                    "collectives": counted(step),
                    "expected": expected(kind) if number > 1 else [],
                    "flops": flops[number],
                }
            )
            jax.clear_caches()
        if len(numbers) > 2:
            # What is shared out, and what each device repeats, from the two ends.
            low, high = numbers[0], numbers[-1]
            shared = (flops[low] - flops[high]) / (1 / low - 1 / high)
            repeated = flops[low] - shared / low
            for row in found[-len(numbers) :]:
                row["by_formula"] = repeated + shared / row["devices"]
    if is_json:
        print(json.dumps(found))
        return
    lines = [
        f"`python benchmarks/mesh.py program --devices {','.join(map(str, numbers))}`",
        "",
        f"M = {SIZE}, D = {WIDTH}, a batch of {ROWS} rows in all, float64. Formula: "
        "bytes 8 [1 + M + M(M+1)/2] for q and 8 [MD + D + 2] for all else; operations "
        "of a device a/n + c, with a and c from the first and the last line.",
        "",
        "| step | devices | collectives | bytes, counted | by formula | "
        "million operations of a device | by formula |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found:
        sizes = sorted(size for _, size in row["collectives"])
        kinds = sorted({name for name, _ in row["collectives"]})
        lines.append(
            f"| {row['kind']} | {row['devices']} | {len(sizes)} {' '.join(kinds)} | "
            f"{sum(sizes):,} | {sum(row['expected']):,} | {row['flops'] / 1e6:.1f} | "
            f"{row.get('by_formula', row['flops']) / 1e6:.1f} |"
        )
    write("program", lines)


def work(size: int, rows: int, steps: int) -> None:
    """One process of a run, which says how many rows it saw in a second."""
    from natgrad import distributed

    here = distributed.initialize()

    import jax
    import numpy as np

    from natgrad import gp
    from natgrad.data import Batch
    from natgrad.data._batches import Sample

    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((100_000, WIDTH))
    y = np.sin(x).sum(1) + 0.1 * rng.standard_normal(len(x))
    model = gp.initialize(x[:5000], gp.likelihoods.Gaussian(), num_inducing=size)
    fitted = gp.fit(
        model,
        Sample(Batch(x, y), rows * here.processes),
        steps=steps,
        log_every=20,
        progress=False,
    )
    rates = [record.steps_per_second for record in fitted.history][2:]
    if here.process == 0:
        rate = statistics.median(rate for rate in rates if rate)
        print(json.dumps(rate * rows * here.processes))


def rate(number: int, size: int, rows: int, steps: int, is_pinned: bool) -> float:
    """Rows per second of so many processes on as many cores."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begun = []
    for process in range(number):
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "NPROC": "1" if is_pinned else "2",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
            "NATGRAD_COORDINATOR": f"127.0.0.1:{port}",
            "NATGRAD_NUM_PROCESSES": str(number),
            "NATGRAD_PROCESS_ID": str(process),
        }
        numbers = [str(size), str(rows), str(steps)]
        cores = str(process) if is_pinned or number == 1 else f"0-{number - 1}"
        command = ["taskset", "-c", cores, sys.executable, __file__, "work"]
        begun.append(
            subprocess.Popen(
                [*command, *numbers],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said = [process.communicate() for process in begun]
    if any(process.returncode for process in begun):
        raise SystemExit(said[0][1][-2000:])
    return float(said[0][0].splitlines()[-1])


def scaling(sizes: str, rounds: int, steps: int, is_pinned: bool) -> None:
    loose = "" if is_pinned else " --loose"
    command = f"scaling{loose} --sizes {sizes} --rounds {rounds} --steps {steps}"
    lines = [
        f"`python benchmarks/mesh.py {command}`",
        "",
        "| M | rows of a process | rows/s, one process | rows/s, two | ratio, median "
        "(least to most) |",
        "|---|---|---|---|---|",
    ]
    for size, rows in (map(int, one.split("x")) for one in sizes.split(",")):
        pairs = [
            [rate(number, size, rows, steps, is_pinned) for number in (1, 2)]
            for _ in range(rounds)
        ]
        ratios = sorted(two / one for one, two in pairs)
        one, two = (statistics.median(column) for column in zip(*pairs, strict=True))
        lines.append(
            f"| {size} | {rows:,} | {one:,.0f} | {two:,.0f} | "
            f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"
        )
        print(lines[-1], flush=True)
    write(command, lines)


def write(name: str, lines: list[str]) -> None:
    """Puts a section into the file of results, in the place of an older one."""
    parts = RESULTS.read_text().split("\n\n`") if RESULTS.exists() else []
    parts = [part if at == 0 else "`" + part for at, part in enumerate(parts)]
    kept = [part.strip() for part in parts if f"mesh.py {name}" not in part]
    order = sorted([*kept, "\n".join(lines).strip()])
    RESULTS.write_text("\n\n".join(order) + "\n")
    print("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("program")
    one.add_argument("--devices", default="1,2,4,8,16,32,64")
    one.add_argument("--json", action="store_true")
    two = commands.add_parser("scaling")
    two.add_argument("--sizes", default="100x1024,100x4096,200x2048", help="M x rows")
    two.add_argument("--rounds", type=int, default=5)
    two.add_argument("--steps", type=int, default=300)
    two.add_argument("--loose", action="store_true", help="not tied to a core each")
    three = commands.add_parser("work")
    three.add_argument("numbers", nargs=3, type=int)
    options = parser.parse_args()
    if options.command == "work":
        work(*options.numbers)
    elif options.command == "scaling":
        scaling(options.sizes, options.rounds, options.steps, not options.loose)
    else:
        numbers = [int(number) for number in options.devices.split(",")]
        flag = f"--xla_force_host_platform_device_count={max(numbers)}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
        program(numbers, options.json)


if __name__ == "__main__":
    main()
