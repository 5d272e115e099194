"""The paper's experiments: what they left behind, and what if they are ended."""

from pathlib import Path

from natgrad import reproduce as experiments
from natgrad._cli.common import say


def reproduce(name: str, folder: Path, is_quick: bool) -> None:
    """Makes what is missing of an experiment, and says where it is."""
    experiments.check_packages()
    import matplotlib

    matplotlib.use("agg")
    try:
        written = experiments.reproduce(name, folder, is_quick)
    except KeyboardInterrupt:
        say(f"{folder} has all runs that were finished; the same command goes on")
        raise
    say(f"{folder} has {', '.join(path.name for path in written)}")
