"""Data sets by name: one comes with natgrad, others are downloaded."""

from natgrad.datasets._files import fetch as fetch, load as load, names as names


__all__ = ["load", "names", "fetch"]
