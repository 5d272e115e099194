"""Examples in docstrings: every public class and function has one, and it is right."""

import doctest
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import jax
import pytest

from tests.undisturbed import undisturbed


ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs" / "_ext"))

import public  # noqa: E402


SETUP = ROOT / "docs" / "reference" / "index.md"


def needs_example(name: public.Name) -> bool:
    """Abstract classes and exceptions are not made by users."""
    return not name.name.startswith("Abstract") and name.home != "natgrad.errors"


def documented(name: public.Name) -> list[public.Name]:
    """A name, and the members of a class, of private bases too."""
    if name.kind != "class":
        return [name]
    line = public.lineage(name)
    return [name, *(member for each in line for member in public.members(each))]


@pytest.fixture(scope="module")
def shared():
    """What the page says that all examples start with."""
    (lines,) = re.findall(r"^```py\n(.*?)^```", SETUP.read_text("utf-8"), re.S | re.M)
    names: dict = {}
    exec(lines, names)
    return names


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """An empty folder, and JAX as users have it: less strict than in the suite."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
    pyplot.close("all")


@pytest.mark.parametrize("module", public.modules())
def test_every_class_and_function_has_an_example(module):
    names = [n for n in public.names(module) if n.kind in ("class", "function")]
    bare = [n.name for n in names if needs_example(n) and ">>> " not in (n.doc or "")]
    assert bare == []


@pytest.mark.parametrize("module", public.modules())
def test_every_example_prints_what_it_says(module, shared, settings):
    """And leaves the handlers, hooks, settings and programs of its process alone."""
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False)
    failures: list[str] = []
    for name in public.names(module):
        for each in documented(name) if name.kind != "module" else ():
            title = f"{module}.{name.name}"
            title += "" if each is name else f".{each.name}"
            text = each.doc or ""
            case = parser.get_doctest(text, dict(shared), title, title, 0)
            if case.examples:
                with undisturbed() if each.name != "stop_on_signals" else nullcontext():
                    runner.run(case, out=failures.append)
    assert not failures, "".join(failures)
