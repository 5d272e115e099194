"""The reference is complete: every public name is on a page, and is explained."""

import ast
import importlib
import re
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
    for module in MODULES:
        file = public.file_of(module)
        assert file is not None
        if file.name == "__init__.py":
            below = {path.stem for path in file.parent.iterdir()}
            names = {n.name for n in public.names(module) if n.kind != "module"}
            assert not names & below, module


@pytest.mark.parametrize("module", MODULES)
def test_what_a_package_imports_of_its_own_is_in_its_all(module):
    file = public.file_of(module)
    assert file is not None
    passed_on = {
        alias.name
        for statement in ast.walk(public.tree(module))
        if isinstance(statement, ast.ImportFrom) and file.name == "__init__.py"
        if str(statement.module).startswith(module)
        for alias in statement.names
    }
    assert passed_on <= {name.name for name in public.names(module)}


def test_the_reference_begins_with_what_most_users_need():
    assert MODULES[:2] == ("natgrad.sklearn", "natgrad.gp")
    assert [n.name for n in public.names("natgrad.gp")][:3] == [
        "SparseGP",
        "initialize",
        "fit",
    ]
    summary = reference.summary()
    places = [summary.index(f"### [{module}]") for module in MODULES]
    assert places == sorted(places)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_a_line_in_the_list_of_all(module):
    summary = reference.summary()
    for name in public.names(module):
        if name.kind != "module":
            assert f"`{name.name} <{module}.{name.name}>`: " in summary


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_leads_to_the_line_that_defines_it(module):
    for name in public.names(module):
        if name.kind != "module":
            address, _, line = reference.source(name).partition("#L")
            path = address.split("/blob/main/")[1]
            code = (reference.ROOT / path).read_text("utf-8").splitlines()
            assert re.match(rf"(class|def) {name.name}\b", code[int(line) - 1])


def test_an_estimator_lists_all_of_its_parameters():
    text = reference.page("natgrad.sklearn")
    for name in public.names("natgrad.sklearn")[:3]:
        entry = text.split(f"{{py:class}} {name.name}(")[1]
        signature, body = entry.split("\n", 1)
        parameters = re.findall(r"(\w+)=", signature)
        assert "n_inducing" in parameters
        for parameter in parameters:
            assert f"\n- `{parameter}`: " in body.split("{py:class}")[0]


def test_examples_and_errors_stand_in_a_page_as_such():
    text = reference._markdown(
        """Does it.

        Raises:
            InputError: If it cannot,
                or will not.

        >>> 1 + 1
        2
        """
    )
    assert text.startswith("Does it.\n\n**Raises**\n\n- {py:class}`InputError <")
    assert ">`: If it cannot, or will not.\n\n```pycon\n>>> 1 + 1\n2\n```" in text


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
