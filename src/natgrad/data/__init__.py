"""Rows of tables."""

from natgrad.data.batch import Batch as Batch
