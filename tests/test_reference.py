"""The reference is complete: every public name is on a page, and is explained."""

import importlib
import sys
from pathlib import Path

import pytest

import natgrad


sys.path.append(str(Path(__file__).parents[1] / "docs" / "_ext"))

import public  # noqa: E402
import reference  # noqa: E402


MODULES = public.modules()
COMMITTED = Path(__file__).parent / "public_names.txt"


def test_the_public_names_are_those_committed():
    committed, found = set(COMMITTED.read_text().split()), set(public.listed())
    update = "if you mean it, python docs/_ext/public.py > tests/public_names.txt"
    assert found <= committed, f"added {sorted(found - committed)}; {update}"
    assert found >= committed, f"removed {sorted(committed - found)}; {update}"


def test_no_public_name_is_that_of_a_module_in_its_package():
    for folder in (public.SOURCE / "natgrad").rglob("__init__.py"):
        package = ".".join(folder.parent.relative_to(public.SOURCE).parts)
        below = {path.stem for path in folder.parent.iterdir()}
        names = {name.name for name in public.names(package) if name.kind != "module"}
        assert not names & below, package


def test_what_is_public_is_what_natgrad_gives():
    assert {name.name for name in public.names("natgrad")} == set(natgrad._HOMES)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_on_a_page_of_the_reference(module):
    text = reference.page(module)
    for name in public.names(module):
        kind = "[" if name.kind == "module" else f"{{py:{name.kind}}} "
        written = public.full(name) if name.kind == "module" else name.name
        assert f"{kind}{written}" in text, name.name


@pytest.mark.parametrize("module", [m for m in MODULES if m != "natgrad.ray"])
def test_every_name_of_the_reference_is_there(module):
    there = importlib.import_module(module)
    assert [n.name for n in public.names(module) if not hasattr(there, n.name)] == []


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_a_docstring(module):
    assert reference.page(module).split("\n")[5], module
    names = public.names(module)
    assert [name.name for name in names if not name.doc] == []


@pytest.mark.parametrize("module", MODULES)
def test_every_public_method_has_a_docstring_or_inherits_one(module):
    classes = [name for name in public.names(module) if name.kind == "class"]
    bare = [
        f"{name.name}.{member.name}"
        for name in classes
        for ancestor in public.lineage(name)
        for member in public.members(ancestor)
        if member.kind == "function" and not reference.documented(name, member)
    ]
    assert bare == []


def test_every_command_is_in_the_reference():
    from natgrad._cli import cli

    text = reference.commands()
    assert all(f"## natgrad {name}\n" in text for name in cli.commands)
