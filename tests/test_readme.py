"""Every Python block of the README runs, as its reader would run it."""

import re
import subprocess
import sys
from pathlib import Path


README = Path(__file__).parents[1] / "README.md"


def test_the_blocks_of_the_readme_run(tmp_path):
    # In a process of its own: in 32 bits, and with nothing of the tests' own settings.
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks))
    run = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert blocks and run.returncode == 0, run.stderr[-2000:]
    (claimed,) = re.findall(r"# (-\d\.\d\d) nats per held-out row", blocks[0])
    printed = re.search(r"converged +yes (-\d+\.\d+)", run.stdout)
    assert printed and f"{float(printed[1]):.2f}" == claimed
