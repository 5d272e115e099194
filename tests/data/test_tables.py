"""Laws of tables in files, and of how they become numbers."""

import json
import os
import re
import stat

import numpy as np
import pyarrow as arrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings, strategies as st

from natgrad._config import NULLS
from natgrad.data import _tables as tables
from natgrad.data._encoding import Category, Date, Number
from natgrad.data._schema import Schema, infer
from natgrad.data._table import ArrowColumn, as_arrow, as_table
from natgrad.data._tables import read, write
from natgrad.data._texts import parse_column
from natgrad.errors import CheckpointError, InputError, InputWarning


TABLE = arrow.table(
    {
        "size": [1.5, 2.0, None, 4.0],
        "rooms": [1, 2, 3, 4],
        "new": [True, False, True, False],
        "town": ["Rye", None, "Ely", "Rye"],
        "code": arrow.array([7, 8, 7, 7]).dictionary_encode(),
    }
)
WHOLE = TABLE.take([0, 3])


def test_numbers_stay_and_strings_become_indicators():
    schema = infer(WHOLE, WHOLE.column_names)
    x, is_complete, _ = schema.encode(WHOLE)
    assert schema.features == ["size", "rooms", "new", "town=Rye", "code=7"]
    np.testing.assert_array_equal(x, [[1.5, 1, 1, 1, 1], [4, 4, 0, 1, 1]])
    assert x.dtype == np.float64 and is_complete.all()


def test_a_schema_survives_json():
    for nulls in NULLS:
        schema = infer(TABLE, ["size", "town"], nulls)
        assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    for wrong in (
        {},
        {"columns": [{"class": "text"}], "nulls": "drop"},
        {"columns": 3},
    ):
        with pytest.raises(InputError, match="schema"):
            Schema.from_dict(wrong)


def test_nulls_are_refused_with_their_place_or_dropped_or_filled():
    with pytest.raises(InputError, match="'size' has 1 null, the first in row 2"):
        infer(TABLE, ["rooms", "size"]).encode(TABLE)
    with pytest.raises(InputError, match="'town' has 1 null, the first in row 1"):
        infer(TABLE, ["town"]).encode(TABLE)
    dropped = infer(TABLE, ["size", "town"], "drop").encode(TABLE)
    np.testing.assert_array_equal(dropped.is_complete, [True, False, False, True])
    filled = infer(TABLE, ["size", "town"], "mean").encode(TABLE)
    assert filled.is_complete.all()
    assert filled.x[2, 0] == pytest.approx(2.5)
    np.testing.assert_array_equal(filled.x[1, 1:], [0, 0])
    with pytest.raises(InputError, match="nulls is 'zero'; it should be one of error"):
        infer(TABLE, ["size"], "zero")


def test_nulls_have_an_indicator_where_there_are_some():
    schema = infer(TABLE, ["size", "rooms", "town"], "indicator")
    names = ["size", "size missing", "rooms", "town=Ely", "town=Rye", "town missing"]
    assert schema.features == names
    x = schema.encode(TABLE).x
    np.testing.assert_array_equal(x[2], [2.5, 1, 3, 1, 0, 0])
    np.testing.assert_array_equal(x[1], [2, 0, 2, 0, 0, 1])
    with pytest.warns(InputWarning, match="column 'rooms' has nulls"):
        found = schema.encode(
            TABLE.set_column(1, "rooms", arrow.array([None, 2, 3, 4]))
        )
    assert found.x[0, 2] == 2.5 and found.is_complete.all()


def test_a_value_that_was_not_there_is_none_of_the_others_with_a_warning():
    schema = Schema((Category("town", ("Ely", "Rye")),))
    new = arrow.table({"town": ["Ely", "Bath", "York"]})
    with pytest.warns(InputWarning, match="'town' has the value 'Bath'.*of Ely, Rye"):
        found = schema.encode(new)
    np.testing.assert_array_equal(found.x, [[1, 0], [0, 0], [0, 0]])


@pytest.mark.parametrize("kind", ["date32", "date64", "s", "ns"])
def test_dates_are_days_since_the_first(kind):
    days = arrow.array(np.array(["2020-02-28", "NaT", "2020-03-02"], "M8[s]"))
    is_date = kind.startswith("date")
    column = days.cast(getattr(arrow, kind)() if is_date else arrow.timestamp(kind))
    table = arrow.table({"day": column})
    schema = infer(table, ["day"], "indicator", ["year"])
    assert schema.columns == (Date("day", 18320.0, 1.5, True, ("year",)),)
    x = schema.encode(table).x
    np.testing.assert_array_equal(x[:, 0], [0, 1.5, 3])
    np.testing.assert_allclose((x[:, 1:3] ** 2).sum(1), [1, 0, 1])
    assert schema.columns[0].describe().startswith("date, in days since 2020-02-28; ")


@given(
    st.lists(st.sampled_from(["a", "b", "", "é", None]), max_size=20),
    st.booleans(),
    st.sampled_from(["string", "large_string", "int8", "uint32"]),
    st.integers(1, 7),
)
@settings(max_examples=100, deadline=None)
def test_indicators_are_those_of_each_row_however_the_column_lies(
    texts, is_filled, kind, size
):
    values = ("", "a", "b", "é")
    array = arrow.array(texts, arrow.string())
    if kind in ("int8", "uint32"):
        coded = array.dictionary_encode()
        indices = coded.indices.cast(getattr(arrow, kind)())
        array = arrow.DictionaryArray.from_arrays(indices, coded.dictionary)
    else:
        array = array.cast(kind)
    parts = [array[at : at + size] for at in range(0, len(array), size)]
    column = arrow.chunked_array(parts, array.type)
    category = Category("c", values, is_filled)
    found = category.expand(category.read(ArrowColumn("c", column)))
    none = [0.0 if is_filled else np.nan] * 4
    expected = [
        none if text is None else [float(text == value) for value in values]
        for text in texts
    ]
    np.testing.assert_array_equal(found, np.array(expected).reshape(-1, 4))


def test_categories_of_other_types_go_by_how_they_are_written():
    category = Category("c", ("7", "8.5", "True"))
    for column, place in (([7, None], 0), ([7.0, 8.5], 1), ([True], 2)):
        chunks = arrow.chunked_array([column])
        found = category.expand(category.read(ArrowColumn("c", chunks)))
        assert found[-1, place] == 1 or np.isnan(found[-1]).all()
    coded = arrow.DictionaryArray.from_arrays([0, 1, None], ["7", None])
    chunks = arrow.chunked_array([coded])
    found = category.expand(category.read(ArrowColumn("c", chunks)))
    np.testing.assert_array_equal(np.isnan(found).all(1), [False, True, True])
    with pytest.warns(InputWarning, match=r"value '\[1\]', which was not among"):
        chunks = arrow.chunked_array([[[1], [2]]])
        category.expand(category.read(ArrowColumn("c", chunks)))


def test_columns_are_found_by_name_and_missing_ones_named():
    schema = infer(WHOLE, ["rooms", "size"])
    np.testing.assert_array_equal(schema.encode(WHOLE).x[:, 1], [1.5, 4.0])
    with pytest.raises(InputError, match="no column 'size'; it has rooms, new"):
        schema.encode(WHOLE.drop_columns(["size"]))
    with pytest.raises(InputError, match="no columns 'a', 'b'"):
        infer(WHOLE, ["a", "size", "b"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.0, np.inf], "has 1 infinite value, the first in row 1"),
        ([[1], [2]], "list.*make numbers of it"),
        ([None, None], "has no values; leave it out"),
    ],
    ids=["infinite", "list", "empty"],
)
def test_what_is_no_number_is_said(values, message):
    table = arrow.table({"when": arrow.array(values)})
    with pytest.raises(InputError, match=f"'when' .*{message}"):
        infer(table, ["when"])


def test_the_nearest_columns_are_shown_first_and_none_without_a_name():
    names = ["", "season", "month", "hour", "day", "wind", "rain", "snow", "fog"]
    names += ["frost", "cloud", "sun", "moon", "Hires"]
    table = arrow.table([[1.0]] * len(names), names=names)
    said = (
        "the table has no column 'hire'; did you mean 'Hires'? It has Hires, "
        "column 1 (without a name), season, "
    )
    with pytest.raises(InputError, match=re.escape(said)):
        infer(table, ["hire"])
    with pytest.raises(InputError, match="no column 'price'; it has column 1"):
        infer(table, ["price"])


@pytest.mark.parametrize(
    "days",
    [
        ["2024-02-28", "2024-02-29"],
        ["28/02/2024", "29/02/2024"],
        ["28.2.2024 12:30", "29.2.2024 12:30"],
        ["2024-02-28T12:30:00Z", "2024-02-29T12:30:00Z"],
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_dates_as_text_are_refused_however_they_are_written(days, ending, tmp_path):
    path = tmp_path / f"table.{ending}"
    write(path, {"day": days, "y": [1.0, 2.0]})
    if ending == "csv" and days[0].startswith("2024"):  # which Arrow reads as dates
        assert infer(read(path), ["day"]).features == ["day days"]
        return
    with pytest.raises(InputError, match="column 'day' holds dates as text, such as"):
        infer(read(path), ["day"])


def test_versions_and_fractions_are_no_dates():
    schema = infer(arrow.table({"a": ["1.2.3", "1/2", "10-12-14"]}), ["a"])
    assert schema.features == ["a=1.2.3", "a=1/2", "a=10-12-14"]


def test_names_are_no_category():
    names = arrow.table({"name": [f"person {row}" for row in range(101)]})
    with pytest.raises(InputError, match="101 different values.*; a category may have"):
        infer(names, ["name"])


def as_dict(table):
    """The values of a table, as Arrow has them."""
    columns = {name: table[name] for name in table.column_names}
    return as_arrow(columns).to_pydict()


def test_csv_and_parquet_are_the_same_table(tmp_path):
    write(tmp_path / "a.csv", {name: TABLE[name] for name in ("size", "town")})
    write(tmp_path / "a.parquet", {name: TABLE[name] for name in ("size", "town")})
    csv, parquet = read(tmp_path / "a.csv"), read(tmp_path / "a.parquet")
    assert as_dict(csv) == as_dict(parquet)
    assert read(tmp_path / "a.parquet", ["town"]).column_names == ["town"]
    assert read(tmp_path / "a.csv", ["town"]).column_names == ["town"]


@pytest.mark.parametrize("separator", list(",;\t|"))
def test_csv_is_read_as_people_write_it(tmp_path, separator):
    lines = ["# by hand", "a,b b,c", "1,x,", '2,"y\nz",3.5', "NA,x,4"]
    text = "\n".join(lines).replace(",", separator) + "\n"
    (tmp_path / "t.csv").write_text("\ufeff" * (separator == ";") + text, "utf-8")
    if separator == ";":  # a mark of byte order, then a name and no comment
        (tmp_path / "t.csv").write_text("\ufeff" + text.partition("\n")[2], "utf-8")
    table = read(tmp_path / "t.csv")
    assert as_dict(table) == {
        "a": [1, 2, None],
        "b b": ["x", "y\nz", "x"],
        "c": [None, 3.5, 4.0],
    }


AGREED = {
    "numbers": ["1", "-2.5", "1e5", ".5", "5.", "+3"],
    "whole numbers": ["1", "-2", "9007199254740993"],
    "more digits than 64 bits": ["99999999999999999999", "1"],
    "spaces": [" 1", "2 ", "3"],
    "codes with zeros": ["007", "010", "123"],
    "a number for a day": ["20240228", "20240301"],
    "gaps": ["1", "", "NA", "N/A", "null", "NaN", "nan", "#N/A"],
    "truth": ["true", "False", "TRUE"],
    "truth and bits": ["True", "0", "1"],
    "truth with gaps": ["true", "", "false"],
    "days": ["2024-02-28", "2024-02-29", "1500-01-01"],
    "days with gaps": ["2024-02-28", "NA"],
    "moments": ["2024-02-28 12:30", "2024-02-28T12:30:05", "2024-02-28"],
    "moments of a zone": ["2024-02-28T12:30:00Z", "2024-02-28T12:30:00+02:00"],
    "fractions of a second": ["2024-02-28 12:30:05.25", "2024-02-28 00:00:00.5"],
    "times of a day": ["12:30", "23:59:59", "00:00"],
    "no value": ["", "", "NA"],
    "texts": ["Rye", "", "Ely", "NA"],
    "quoted": ['"a,b"', '"two\nlines"', '"say ""so"""', '""'],
    "quoted numbers": ['"1"', '"2.5"', '""'],
    "mixed": ["1", "x", "2.5"],
    "mixed with days": ["2024-02-28", "x"],
    "several zones and none": ["2024-02-28T12:30", "2024-02-28T12:30Z"],
    "no such day": ["2024-02-30", "2024-02-28"],
    "days otherwise": ["28/02/2024", "29/02/2024"],
    "underscores": ["1_000", "2_000"],
    "other digits": ["٣", "٤"],
    "units": ["5%", "$5", "1 000"],
    "infinity": ["1", "inf", "-Infinity"],
    "words": ["yes", "no", "None"],
}
"""Columns of CSV of which pyarrow's reader makes the same."""


def written(tmp_path, texts, separator=","):
    path = tmp_path / "t.csv"
    lines = [f"{text}{separator}{row}" for row, text in enumerate(texts)]
    path.write_text("\n".join([f"a{separator}row", *lines]) + "\n", "utf-8")
    return path


def by_arrow(path):
    return pyarrow.csv.read_csv(
        path,
        convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
    )


def outcome(function, *arguments):
    """What a function returns, as lists, or what it says is wrong."""
    try:
        found = function(*arguments)
    except InputError as error:
        return str(error).partition(", such as")[0].replace("type text", "type string")
    return [np.asarray(part).tolist() for part in found]


@pytest.mark.parametrize("texts", AGREED.values(), ids=AGREED)
def test_columns_of_csv_are_what_arrow_makes_of_them(tmp_path, texts):
    path = written(tmp_path, texts)

    def as_input(table):
        schema = infer(table, ["a"], "indicator", ["week"])
        return repr(schema), schema.encode(table).x

    ours, theirs = read(path), by_arrow(path)
    assert outcome(as_input, ours) == outcome(as_input, theirs)
    found = [outcome(as_table(table)["a"].target) for table in (ours, theirs)]
    assert repr(found[0]) == repr(found[1])  # NaN is NaN here


def test_where_arrow_makes_texts_of_numbers_we_make_numbers(tmp_path):
    for texts in (["1", " NA", "2"], ["1", "  ", "2"]):
        np.testing.assert_array_equal(
            read(written(tmp_path, texts))["a"].values, [1, np.nan, 2]
        )
    assert read(written(tmp_path, ["true", "fALSE"]))["a"].values.tolist() == [1, 0]
    texts = [" Rye", "Rye ", '" Rye"', '"Ely, East"']
    spaced = read(written(tmp_path, texts))["a"].to_pylist()
    assert spaced == ["Rye", "Rye", "Rye", "Ely, East"]
    assert read(written(tmp_path, ["0x10", "16"]))["a"].type == "text"


def test_a_decimal_comma_is_one_between_semicolons(tmp_path):
    table = read(written(tmp_path, ["1,5", "-2,25", "", "3"], ";"))
    np.testing.assert_array_equal(table["a"].values, [1.5, -2.25, np.nan, 3])
    assert read(written(tmp_path, ["1,5", "2,5"], "\t"))["a"].type == "text"
    assert read(written(tmp_path, ["1.234,5", "1"], ";"))["a"].type == "text"
    assert read(written(tmp_path, ["1.234", "999,5"], ";"))["a"].type == "text"
    exact = read(written(tmp_path, ["1,250", "0,125"], ";"))["a"].values
    np.testing.assert_array_equal(exact, [1.25, 0.125])
    write(tmp_path / "out.csv", {"a": table["a"]})
    assert (tmp_path / "out.csv").read_text().split() == ['"a"', "1.5", "-2.25", "3"]


def test_commas_of_thousands_or_decimals_are_not_guessed(tmp_path):
    table = read(written(tmp_path, ["1,000", "2,500", "950"], ";"))
    message = "column 'a' has numbers such as 1,000, .* decimals or thousands"
    with pytest.raises(InputError, match=message):
        table["a"]


@pytest.mark.parametrize("largest", [2**63 - 1, 2**64 - 1, 10**30])
def test_whole_numbers_keep_every_digit(tmp_path, largest):
    texts = [str(largest), str(largest - 1), "7"]
    write(tmp_path / "out.parquet", {"a": read(written(tmp_path, texts))["a"]})
    kept = pyarrow.parquet.read_table(tmp_path / "out.parquet")["a"].to_pylist()
    assert [*map(str, kept)] == texts


def test_a_part_of_a_column_is_taken_for_what_the_column_is(tmp_path):
    table = read(written(tmp_path, ["1", "2", "x", ""]))
    part = table.rows(slice(0, 2))
    assert part["a"].type == "text" and part["a"].to_pylist() == ["1", "2"]
    kept = table.rows(np.array([False, False, True, True])).select(["a"])
    assert kept.column_names == ["a"] and kept["a"].to_pylist() == ["x", None]
    assert len(table.rows(slice(1, 10))) == 3 and len(table.rows(slice(9, None))) == 0


def test_a_category_of_numbers_may_have_gaps_later(tmp_path):
    schema = infer(read(written(tmp_path, ["1", "2", "x"])), ["a"], "indicator")
    with pytest.warns(InputWarning, match="has nulls"):
        x = schema.encode(read(written(tmp_path, ["1.0", "", "2.0"]))).x
    np.testing.assert_array_equal(x, [[1, 0, 0], [0, 0, 0], [0, 1, 0]])


@given(
    st.lists(
        st.lists(
            st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=5)
            | st.sampled_from(["NA", "1.5", "2024-02-29", "true", "a,b", 'a"b']),
            min_size=2,
            max_size=2,
        ),
        min_size=1,
        max_size=30,
    )
)
@settings(max_examples=60, deadline=None)
def test_what_is_written_as_csv_is_read_again(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    columns = dict(zip(("a", "b"), map(list, zip(*rows, strict=True)), strict=True))
    write(path, columns)
    table = read(path)
    for name, texts in columns.items():
        assert table[name].to_pylist() == parse_column(texts).to_pylist()
    once = path.read_bytes()
    write(path, {name: table[name] for name in columns})
    again = read(path)
    for name in columns:
        assert again[name].to_pylist() == table[name].to_pylist()
        assert again[name].type == table[name].type
    assert once.splitlines()[0] == path.read_bytes().splitlines()[0]


def test_what_is_written_is_what_arrow_would_write(tmp_path):
    columns = {
        "number": np.ma.array([1.5, 1e-9, 0.1], mask=[0, 1, 0]),
        "whole": np.array([1, -2, 3]),
        "text": np.ma.array(np.array(["a", 'b"', ""], object), mask=[0, 0, 1]),
    }
    others = {
        "arrow": arrow.array(["x", None, "y,z"]).dictionary_encode(),
        "single": arrow.array([0.1, None, 2.5], arrow.float32()),
        "day": arrow.array([0, None, 1], arrow.date32()),
        "moment": arrow.array([0, None, 1], arrow.timestamp("s")),
        "is": arrow.array([True, False, None]),
    }
    columns |= {name: ArrowColumn(name, column) for name, column in others.items()}
    write(tmp_path / "ours.csv", columns)
    pyarrow.csv.write_csv(as_arrow(columns), tmp_path / "theirs.csv")
    assert (tmp_path / "ours.csv").read_text() == (tmp_path / "theirs.csv").read_text()


def test_what_cannot_be_read_is_said_in_one_line(tmp_path):
    good = tmp_path / "good.parquet"
    pyarrow.parquet.write_table(WHOLE, good)
    content = good.read_bytes()
    bad = {
        "cut.parquet": content[: len(content) // 2],
        "spoiled.parquet": content[:20] + b"\xff" * 40 + content[60:],
        "empty.parquet": b"",
        "empty.csv": b"",
        "ragged.csv": b"a,b\n1,2\n1,2,3\n",
        "short.csv": b"a,b\n1,2\n1\n",
        "open.csv": b'a,b\n1,"2\n',
        "latin.csv": "ä,b\n1,2\n".encode("latin-1"),
        "latin_inside.csv": "a,b\nä,2\n".encode("latin-1"),
        "headless.csv": b"1,2\n3,4\n",
        "rowless.csv": b"a,b\n",
        "twice.csv": b"a,a\n1,2\n",
        "what.xlsx": b"",
    }
    for name, contents in bad.items():
        (tmp_path / name).write_bytes(contents)
    for name in [*bad, "nowhere.csv"]:
        with pytest.raises(InputError) as caught:
            infer(read(tmp_path / name), ["a"]).encode(read(tmp_path / name))
        assert name in str(caught.value) and "\n" not in str(caught.value), name
    with pytest.raises(InputError, match="is a folder"):
        (tmp_path / "folder.csv").mkdir()
        read(tmp_path / "folder.csv")


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out.csv"
    write(path, {"a": [1.0]})
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"out\.csv could not be written: no"):  # noqa: SIM117
        with tables.replacing(path) as draft:
            draft.write_text("half")
            raise OSError(28, "no space")
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["out.csv"]
    os.umask(mask := os.umask(0))
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    with pytest.raises(CheckpointError, match="could not be written"):
        write(tmp_path / "no" / "folder.csv", {"a": [1.0]})
    with pytest.raises(InputError, match=r"\.parquet or \.csv"):
        write(tmp_path / "a.txt", {"a": [1.0]})


def test_columns_of_numbers_need_no_more_than_a_name():
    assert Schema((Number("a"),)).features == ["a"]
    with pytest.raises(InputError, match="no inputs"):
        infer(WHOLE, [])
