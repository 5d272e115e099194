"""Batches of rows: from memory, from an iterable, or from Parquet files."""

from natgrad.data._batches import (
    Arrays as Arrays,
    Batch as Batch,
    IterableBatches as IterableBatches,
)
from natgrad.data._parquet import Parquet as Parquet
from natgrad.data._scan import scan as scan
from natgrad.data._shuffle import shuffle as shuffle


__all__ = ["Batch", "Arrays", "IterableBatches", "Parquet", "scan", "shuffle"]
