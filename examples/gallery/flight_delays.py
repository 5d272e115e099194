"""When should you fly from New York to arrive on time?

You train on a folder of Parquet files and plot a map of the delay. The data are 274,000
flights of 2013. natgrad reads batches as it needs them, so memory does not grow with
the number of rows. Delays have heavy tails, so the likelihood is Student-t, and the map
shows the median flight. The hour is that of the actual departure. Late at night only
delayed planes depart, so the map ends before.
"""

import argparse
import tempfile
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

from natgrad import datasets, gp
from natgrad.data import Parquet, scan, shuffle


TOLERANCE = 0.15  # 600 steps on noisy batches
INPUTS = ["dep_time", "distance"]


def main(out: Path) -> None:
    jax.config.update("jax_enable_x64", True)
    with tempfile.TemporaryDirectory() as folder:
        dataset = Path(folder) / "data"
        shuffle(datasets.fetch("flights_nyc2013"), dataset, rows_per_group=5000)
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
    middle, _ = gp.predictor(model).latent((at - found.mean) / found.deviation)
    delay = 60 * middle.reshape(60, 80)
    at_hours = np.interp([7, 13, 19], hours, delay[20])
    for hour, minutes in zip((7, 13, 19), at_hours, strict=True):
        print(
            f"median delay of {miles[20]:.0f} miles at {hour} h: {minutes:.1f} minutes"
        )

    figure, ax = plt.subplots()
    levels = np.arange(-14, 15, 2)
    field = ax.contourf(hours, miles, delay, levels, cmap="PuOr_r", extend="both")
    figure.colorbar(field, label="median delay at arrival, minutes")
    ax.set(xlabel="hour of departure", ylabel="distance, miles")
    early, late = -at_hours[0], -at_hours[2]
    ax.set_title(
        f"{miles[20]:.0f} miles: {early:.0f} minutes early at 7:00, {late:.0f} at 19:00"
    )
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("flight_delays.png"))
    main(parser.parse_args().out)
