"""Every Python block of the documentation runs, as its reader would run it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "docs/howto/estimators.md",
    "docs/howto/export.md",
    "docs/howto/files.md",
    "docs/explanation/likelihoods.md",
    "docs/howto/pictures.md",
    "docs/howto/sparse_gp.md",
    "docs/howto/streams.md",
    "docs/howto/training.md",
]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page, tmp_path):
    # In a process of its own: in 32 bits, and with nothing of the tests' own settings.
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks))
    run = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]
