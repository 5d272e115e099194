"""The command, as `python -m natgrad`."""

from natgrad._cli import main


main()
