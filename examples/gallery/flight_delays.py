"""When should one fly from New York, so as not to be late?

274,000 flights of 2013, put in random order in a folder of Parquet, from which batches
are read as they are needed: of a hundred times as many rows no more would be in memory.
Delays have heavy tails, so the noise is Student's t, whose middle is the usual flight.
Hours are those at which a plane did leave: late at night these are the late ones, and
so the picture ends before.
"""

import argparse
import tempfile
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

from natgrad import datasets, gp
from natgrad.data import Parquet, scan, shuffle


TOLERANCE = 0.15  # 600 noisy steps, and some minutes of hundreds
INPUTS = ["dep_time", "distance"]


def main(out: Path) -> None:
    jax.config.update("jax_enable_x64", True)
    with tempfile.TemporaryDirectory() as folder:
        dataset = Path(folder) / "data"
        shuffle(datasets.path("flights_nyc2013"), dataset, rows_per_group=5000)
        found = scan(dataset, "target", INPUTS)
        rows = Parquet(
            dataset,
            "target",
            INPUTS,
            batch_size=1024,
            schema=found.schema,
            centre=found.mean,
            scale=found.deviation,
            encode=lambda y: y / 60,
        )
        start = (found.sample_x - found.mean) / found.deviation
        model = gp.initialize(start, gp.likelihoods.StudentT(0.3), num_inducing=60)
        model, _ = gp.fit(model, rows, steps=600, progress=False)

    hours, miles = np.linspace(5.5, 20.5, 80), np.linspace(200, 2500, 60)
    at = np.stack(np.meshgrid(60 * hours, miles), -1).reshape(-1, 2)
    usual, _ = gp.predictor(model).latent((at - found.mean) / found.deviation)
    delay = 60 * usual.reshape(60, 80)
    middle = np.interp([7, 13, 19], hours, delay[20])
    for hour, minutes in zip((7, 13, 19), middle, strict=True):
        print(
            f"usual delay of {miles[20]:.0f} miles at {hour} h: {minutes:.1f} minutes"
        )

    figure, ax = plt.subplots()
    levels = np.arange(-14, 15, 2)
    field = ax.contourf(hours, miles, delay, levels, cmap="PuOr_r", extend="both")
    figure.colorbar(field, label="delay of the usual flight at arrival, minutes")
    ax.set(xlabel="hour of departure", ylabel="distance, miles")
    early, late = -middle[0], -middle[2]
    ax.set_title(
        f"{miles[20]:.0f} miles: {early:.0f} minutes early at 7 h, {late:.0f} at 19 h"
    )
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("flight_delays.png"))
    main(parser.parse_args().out)
