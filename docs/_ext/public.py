"""The public names of natgrad, read from its source without importing it.

    python docs/_ext/public.py > tests/public_names.txt

A module's public names are those in its `__all__`, in that order: the reference has
what most users need first. They are looked up among what it imports and defines.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


SOURCE = Path(__file__).parents[2] / "src"

# Modules that you import yourself, because they load what few users need.
APART = ("natgrad.gp.exact", "natgrad.ray")


class Name(NamedTuple):
    """What a name stands for, and the module it is written in."""

    name: str
    kind: str
    home: str
    node: ast.AST
    doc: str | None


def file_of(module: str) -> Path | None:
    """The file of a module, or nothing if there is no such module."""
    stem = SOURCE.joinpath(*module.split("."))
    files = (stem / "__init__.py", stem.with_suffix(".py"))
    return next((file for file in files if file.is_file()), None)


@functools.cache
def tree(module: str) -> ast.Module:
    """The syntax tree of a module."""
    file = file_of(module)
    if file is None:
        raise ValueError(f"natgrad has no module {module!r}")
    return ast.parse(file.read_text("utf-8"))


@functools.cache
def modules() -> tuple[str, ...]:
    """Every public module: natgrad itself, what it leads to, and those apart.

    They are in the order of `__all__`. A module stands where its own names begin there:
    before the modules below it, or between them.
    """
    return tuple(_in_order("natgrad"))


def _in_order(module: str) -> Iterator[str]:
    is_shown = False
    for name in names(module):
        if name.kind == "module":
            yield from _in_order(full(name))
        elif not is_shown:
            is_shown = True
            yield module
    for apart in APART:
        if apart.rpartition(".")[0] == module:
            yield from _in_order(apart)


def full(name: Name) -> str:
    """The address at which a name is written."""
    return f"{name.home}.{name.name}"


@functools.cache
def names(module: str) -> tuple[Name, ...]:
    """What a module shows to its users, in the order of its `__all__`."""
    looked_up = {name: found(module, name) for name in _in_all(module)}
    if missing := [name for name, what in looked_up.items() if what is None]:
        raise ValueError(f"{module} does not define {missing}, which its __all__ has")
    return tuple(name for name in looked_up.values() if name is not None)


def _in_all(module: str) -> list[str]:
    """What `__all__` has, which every public module should have."""
    for name in _written(module):
        if name.name == "__all__" and isinstance(name.node, ast.Assign):
            return ast.literal_eval(name.node.value)
    raise ValueError(f"{module} has no __all__, so the order of its names is unknown")


@functools.cache
def found(module: str, name: str) -> Name | None:
    """What a name means in a module, or nothing if it is none of natgrad's own."""
    first, *rest = name.split(".")
    for written in _written(module):
        if written.name == first:
            return written
    for statement in _imports(module):
        for alias in statement.names:
            if first != (alias.asname or alias.name):
                continue
            home = f"{statement.module}.{alias.name}"
            if file_of(home) is None:
                return found(str(statement.module), alias.name)
            if rest:
                return found(home, ".".join(rest))
            doc = ast.get_docstring(tree(home))
            return Name(alias.name, "module", str(statement.module), tree(home), doc)
    return None


def _imports(module: str) -> Iterator[ast.ImportFrom]:
    """The imports of natgrad's own names; also those for type checkers only."""
    for statement in tree(module).body:
        body = statement.body if isinstance(statement, ast.If) else [statement]
        for one in body:
            if isinstance(one, ast.ImportFrom) and str(one.module).startswith(
                "natgrad"
            ):
                yield one


@functools.cache
def _written(module: str) -> tuple[Name, ...]:
    """All names that the text of a module defines."""
    return tuple(_defined(tree(module).body, module))


def _defined(body: list[ast.stmt], home: str) -> Iterator[Name]:
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            kind = "class" if isinstance(statement, ast.ClassDef) else "function"
            doc = ast.get_docstring(statement)
            yield Name(statement.name, kind, home, statement, doc)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            is_plain = isinstance(statement, ast.Assign)
            target = statement.targets[0] if is_plain else statement.target
            if isinstance(target, ast.Name):
                doc = _string(following)
                yield Name(target.id, "data", home, statement, doc)


def _string(statement: ast.stmt | None) -> str | None:
    """A docstring below a constant or a field."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return None


def lineage(name: Name) -> list[Name]:
    """A class and its bases in natgrad, the nearest first."""
    assert isinstance(name.node, ast.ClassDef)
    line = [name]
    for base in name.node.bases:
        plain = base.value if isinstance(base, ast.Subscript) else base
        parent = found(name.home, ast.unparse(plain))
        if parent is not None:
            line += [one for one in lineage(parent) if one not in line]
    return line


def members(name: Name) -> list[Name]:
    """What a class has that is public, its fields and methods, without bases.

    To be called is public too, where it is explained.
    """
    assert isinstance(name.node, ast.ClassDef)
    return [
        one
        for one in _defined(name.node.body, name.home)
        if not one.name.startswith("_") or (one.name == "__call__" and one.doc)
    ]


@functools.cache
def addresses() -> dict[str, str]:
    """Where the reference has what is written at an address."""
    places: dict[str, str] = {}
    for module in sorted(modules(), key=lambda module: -module.count(".")):
        for name in names(module):
            if name.kind != "module":
                places.setdefault(full(name), f"{module}.{name.name}")
    return places


def listed() -> list[str]:
    """Every public name with the module that users import it from, sorted."""
    return sorted(
        f"{module}.{name.name}"
        for module in modules()
        for name in names(module)
        if name.kind != "module"
    )


if __name__ == "__main__":
    print("\n".join(listed()))
