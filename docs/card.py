"""Draws the card that is shown where a link to the site is shared.

    python docs/card.py

It needs Chromium, as screenshots.py does, and writes docs/_static/card.png from the
logo.
"""

import tempfile
from pathlib import Path

import screenshots


STATIC = Path(__file__).resolve().parent / "_static"
WIDTH, HEIGHT = 1200, 630
FONT = 'font-family="DejaVu Sans, Verdana, sans-serif"'


def card() -> str:
    """The card as SVG: the mark on the left, the name and what it is on the right."""
    logo = (STATIC / "logo.svg").read_text("utf-8")
    mark = logo.replace("<svg ", '<svg x="90" y="155" width="320" height="320" ', 1)
    lines = (
        "Gaussian processes and natural",
        "gradients for variational",
        "inference, in JAX",
    )
    text = "".join(
        f'<text x="480" y="{345 + 56 * number}" font-size="38" fill="#c9d6df" {FONT}>'
        f"{line}</text>"
        for number, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#10222e"/>{mark}'
        f'<text x="476" y="262" font-size="104" font-weight="bold" fill="#fff" {FONT}>'
        f"natgrad</text>{text}</svg>"
    )


if __name__ == "__main__":
    with tempfile.NamedTemporaryFile("w", suffix=".svg") as file:
        file.write(card())
        file.flush()
        with screenshots.browser() as tab:
            tab.show(Path(file.name).as_uri(), WIDTH)
            picture = tab.picture(WIDTH, HEIGHT)
    (STATIC / "card.png").write_bytes(picture)
