"""The encoding of a table as Python code that needs NumPy and nothing else."""

from collections.abc import Sequence
from typing import Any


ENCODE = '''
COLUMNS = {columns}


def encode(table):
    """Rows of the inputs above, from a frame or a dict of columns by name."""
    parts = []
    for column in COLUMNS:
        values = table[column["name"]]
        # Of a list of texts and nulls, NumPy would make texts.
        values = np.asarray(values, object if isinstance(values, list) else None)
        if column["kind"] == "category":
            texts = [_text(value) for value in values.tolist()]
            is_missing = np.array([text is None for text in texts], bool)
            parts += [[text == value for text in texts] for value in column["values"]]
        elif column["kind"] == "date":
            since = values.astype("datetime64[ns]") - np.datetime64(0, "ns")
            days = since / np.timedelta64(1, "D")
            is_missing = np.isnan(days)
            elapsed = days - column["first"]
            parts.append(np.where(is_missing, float(column["mean"]), elapsed))
            for length in column["periods"].values():
                for wave in (np.sin, np.cos):
                    angle = wave(2 * np.pi * days / length)
                    parts.append(np.where(is_missing, 0.0, angle))
        else:
            if values.dtype.kind == "m":
                values = values / np.timedelta64(1, "D")
            numbers = [np.nan if _is_null(v) else float(v) for v in values.tolist()]
            is_missing = np.isnan(np.array(numbers, float))
            parts.append(np.where(is_missing, float(column["mean"]), numbers))
        if column["has_gaps"]:
            parts.append(is_missing)
    return np.stack([np.asarray(part, float) for part in parts], axis=1)


def _is_null(value):
    return not isinstance(value, str) and str(value) in ("None", "nan", "<NA>", "NaT")


def _text(value):
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if _is_null(value) else str(value)

'''

ENCODED = """    if hasattr(x, "keys") or hasattr(x, "columns"):
        x = encode(x)
"""


def encoding_code(columns: Sequence[dict[str, Any]]) -> str:
    """A function `encode`, from a table to the inputs of `predict`."""
    lines = "".join(f"\n    {ascii(column)}," for column in columns)
    return ENCODE.format(columns=f"[{lines}\n]")
