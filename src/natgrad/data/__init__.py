"""Rows of tables."""

from natgrad.data.batch import Batch as Batch
from natgrad.data.scan import Summary as Summary, scan as scan
from natgrad.data.shuffle import shuffle as shuffle
from natgrad.data.source import (
    Arrays as Arrays,
    Batches as Batches,
    Iterated as Iterated,
    table as table,
)
from natgrad.data.stream import Parquet as Parquet
