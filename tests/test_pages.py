"""Every Python block of the documentation runs, as its reader would run it."""

import re
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import pytest


DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```python\b.*\n((?:.*\n)*?)```", re.MULTILINE)
PAGES = {
    str(path.relative_to(DOCS)): text
    for path in sorted(DOCS.rglob("*.md"))
    if "_build" not in path.parts and BLOCK.search(text := path.read_text("utf-8"))
}


@pytest.fixture(autouse=True)
def as_a_reader(monkeypatch, tmp_path):
    """In an empty folder, and in 32 bits until the page sets 64."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    plt.switch_backend("agg")
    jax.config.update("jax_enable_x64", False)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
    jax.config.update("jax_enable_x64", True)
    plt.close("all")


@pytest.mark.filterwarnings("default", "error::UserWarning")
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run_in_order(page):
    names: dict = {"__name__": "__main__"}
    for block in BLOCK.finditer(PAGES[page]):
        line = PAGES[page].count("\n", 0, block.start(1))
        exec(compile("\n" * line + block[1], page, "exec"), names)
