"""Text that is printed shows what is in it, and does nothing to a terminal."""

import pytest

from natgrad._text import brief, printable, printable_errors, printable_lines


def test_what_is_visible_stays_as_it_is():
    for text in ("size (m²)", "preis in €", "年齢", "1 000", "a\\b", "🌡", ""):
        assert printable(text) == text


def test_no_character_that_is_left_is_a_control():
    every = [chr(code) for code in (*range(0x2100), 0xD800, 0xFEFF, 0xE0001)]
    hidden = [c for c in every if not c.isprintable() and not c.isspace()]
    assert len(hidden) > 80
    assert printable("".join(hidden)).isascii()
    assert printable("\x1b[31m") == "\\x1b[31m"
    assert printable("\u202egpj.exe") == "\\u202egpj.exe"
    assert printable("a\r\n\u2028b") == "a\\r\\n\\u2028b"


def test_lines_are_kept_where_they_are_wanted():
    assert printable_lines("a\x07\nb\r") == "a\\x07\nb\\r"


def test_an_error_that_quotes_a_file_is_one_short_line():
    assert brief(ValueError("a\nb")) == "a\\nb"
    assert len(brief(ValueError("a" * 10**6))) < 500


def test_an_error_keeps_its_type_and_what_it_says():
    with pytest.raises(UnicodeError, match=r"^a\\x1b\nb$"), printable_errors():
        raise UnicodeError("a\x1b\nb")
    error = ValueError("plain")
    with pytest.raises(ValueError) as caught, printable_errors():
        raise error
    assert caught.value is error
