"""Batches of rows: from memory, from an iterable, or from Parquet files."""

from natgrad.data._batch import Batch as Batch
from natgrad.data._batches import (
    Arrays as Arrays,
    Batches as Batches,
    IterableBatches as IterableBatches,
    from_frame as from_frame,
)
from natgrad.data._parquet import Parquet as Parquet
from natgrad.data._scan import Summary as Summary, scan as scan
from natgrad.data._shuffle import shuffle as shuffle


__all__ = [
    "Batch",
    "Arrays",
    "IterableBatches",
    "from_frame",
    "Parquet",
    "scan",
    "Summary",
    "shuffle",
    "Batches",
]
