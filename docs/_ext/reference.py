"""Pages of the reference: one for each public module, made when the site is built.

They are made from the source, so that annotations stand as they are written: shapes in
strings, and aliases by their names. Docstrings are Markdown, with examples (`>>>`), the
sections of scikit-learn (`Parameters` above a line) and a list of errors (`Raises:`).
"""

import ast
import copy
import inspect
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import public
from public import Name


FOLDER = Path(__file__).parents[1] / "reference" / "modules"
COMMANDS = "The command line"
ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
FIRST = ("fit", "predict", "predict_proba")  # of an estimator's methods
SETUP = "../index.md#setup-for-the-examples"


def write() -> None:
    """Writes the pages that are not there as they should be."""
    FOLDER.mkdir(exist_ok=True)
    pages = {f"{module}.md": page(module) for module in public.modules()}
    pages["command_line.md"] = commands()
    pages["summary.txt"] = summary()
    for file in FOLDER.iterdir():
        if file.name not in pages:
            file.unlink()
    for name, text in pages.items():
        file = FOLDER / name
        # A page that stays as it was is not built again.
        if not file.is_file() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")


def page(module: str) -> str:
    """All that a module shows to its users."""
    names = public.names(module)
    doc = ast.get_docstring(public.tree(module)) or ""
    parts = [f"# {module}", f"```{{py:module}} {module}\n```", doc]
    below = [name for name in names if name.kind == "module"]
    if below:
        rows = [f"- [{full}]({full}.md): {_first(n)}" for n, full in _addressed(below)]
        parts.append("\n".join(rows))
    own = [name for name in names if name.kind != "module"]
    if len(own) > 1:
        parts.append(_listed(module, own))
    if any(">>>" in (name.doc or "") for name in own):
        parts.append(f"The examples start with [these lines]({SETUP}).")
    parts += [_constant(name) if name.kind == "data" else _entry(name) for name in own]
    return "\n\n".join(parts) + "\n"


def summary() -> str:
    """All modules and names with a line on each, for the page that lists them."""
    pages = "\n".join(f"modules/{name}" for name in ("command_line", *public.modules()))
    parts = [f"```{{toctree}}\n:hidden:\n\n{pages}\n```"]
    for module in public.modules():
        first = (ast.get_docstring(public.tree(module)) or "").split("\n")[0]
        own = [name for name in public.names(module) if name.kind != "module"]
        parts += [f"### [{module}](modules/{module}.md)", first, _listed(module, own)]
    return "\n\n".join(parts) + "\n"


def _listed(module: str, names: Iterable[Name]) -> str:
    """Names with links and the first lines of their docstrings."""
    return "\n".join(
        f"- {{py:obj}}`{name.name} <{module}.{name.name}>`: {_first(name)}"
        for name in names
    )


def source(name: Name) -> str:
    """The address of the lines that define a name."""
    file = public.file_of(name.home)
    assert file is not None and isinstance(name.node, ast.stmt)
    path = file.relative_to(ROOT).as_posix()
    return f"{PROJECT['urls']['Homepage']}/blob/main/{path}#L{name.node.lineno}"


def commands() -> str:
    """The help of each command, as the command gives it."""
    from natgrad._cli import cli

    settings: Any = {"max_content_width": 88, **cli.context_settings}
    top = click.Context(cli, info_name="natgrad", **settings)
    parts = [
        f"# {COMMANDS}",
        "A tour of it is [on a page of its own](../../howto/cli.md).",
    ]
    parts.append(_fenced("console", f"$ natgrad --help\n{cli.get_help(top)}"))
    for name in cli.list_commands(top):
        command = cli.commands[name]
        context = click.Context(command, top, name, **settings)
        text = f"$ natgrad {name} --help\n{command.get_help(context)}"
        parts += [f"## natgrad {name}", _fenced("console", text)]
    return "\n\n".join(parts) + "\n"


def _fenced(kind: str, body: str, ticks: int = 3) -> str:
    return f"{'`' * ticks}{kind}\n{body.strip()}\n{'`' * ticks}"


def _directive(kind: str, argument: str, options: Iterable[str], body: str) -> str:
    """A directive, in a fence that is longer than those inside."""
    ticks = max([2, *map(len, re.findall("^`{3,}", body, re.M))]) + 1
    lines = [*options, "", body]
    return _fenced(f"{{py:{kind}}} {argument}", "\n".join(lines), ticks)


def _addressed(names: Iterable[Name]) -> Iterator[tuple[Name, str]]:
    return ((name, public.full(name)) for name in names)


def _first(name: Name) -> str:
    """The first line of a docstring."""
    return (name.doc or "").split("\n")[0]


def _entry(name: Name) -> str:
    if isinstance(name.node, ast.FunctionDef):
        doc = _markdown(name.doc)
        return _directive(
            "function", f"{name.name}{_call(name.node, name.home)}", (), doc
        )
    parts = [_markdown(name.doc)]
    bases = _bases(name)
    if bases:
        parts.insert(0, f"*A kind of* {', '.join(bases)}.")
    parts += [_member(member) for member in shown(name)]
    options = [":abstract:"] if name.name.startswith("Abstract") else []
    body = "\n\n".join(parts)
    return _directive("class", f"{name.name}{_construction(name)}", options, body)


def shown(name: Name) -> list[Name]:
    """The members of a class that its entry has.

    Those of a public base stand with the base, and so does a method that only does in
    its own way what the base says. A field is in the signature, unless it is explained.
    What every user of an estimator needs comes first.
    """
    line = public.lineage(name)
    bases = [base for base in line[1:] if public.full(base) in public.addresses()]
    stated = {member.name for base in bases for member in public.members(base)}
    members: dict[str, Name] = {}
    for ancestor in line:
        if ancestor in bases:
            continue
        for member in public.members(ancestor):
            is_field = member.kind == "data"
            if member.doc or not (is_field or member.name in stated):
                doc = documented(name, member)
                members.setdefault(member.name, member._replace(doc=doc))
    return sorted(members.values(), key=lambda member: member.name not in FIRST)


def documented(name: Name, member: Name) -> str | None:
    """The docstring of a member: its own, or that of what it overrides."""
    docs = [
        other.doc
        for ancestor in public.lineage(name)
        for other in public.members(ancestor)
        if other.name == member.name and other.doc
    ]
    return member.doc or next(iter(docs), None)


def _member(name: Name) -> str:
    doc = _markdown(name.doc)
    if isinstance(name.node, ast.AnnAssign):
        return _directive(
            "attribute",
            f"{name.name}: {_type(name.node.annotation, name.home)}",
            (),
            doc,
        )
    if not isinstance(name.node, ast.FunctionDef):
        return _directive("attribute", name.name, (), doc)
    marks = {ast.unparse(mark).split(".")[-1] for mark in name.node.decorator_list}
    options = [":abstractmethod:"] if "abstractmethod" in marks else []
    if marks & {"property", "cached_property"}:
        if name.node.returns is not None:
            options.append(f":type: {_type(name.node.returns, name.home)}")
        return _directive("property", name.name, options, doc)
    options += [
        f":{mark}:" for mark in ("classmethod", "staticmethod") if mark in marks
    ]
    call = _call(name.node, name.home, is_bound="staticmethod" not in marks)
    return _directive("method", f"{name.name}{call}", options, doc)


def _constant(name: Name) -> str:
    assert isinstance(name.node, ast.Assign | ast.AnnAssign)
    doc = _markdown(name.doc)
    value = ast.unparse(name.node.value) if name.node.value else ""
    options = [f":value: {value}"] if len(value) < 80 else []
    return _directive("data", name.name, options, doc)


def _bases(name: Name) -> list[str]:
    """The bases of a class that its users may know of, with links to natgrad's own."""
    assert isinstance(name.node, ast.ClassDef)
    shown = []
    for base in name.node.bases:
        text = ast.unparse(base)
        parent = public.found(name.home, text.split("[")[0])
        address = public.addresses().get(public.full(parent)) if parent else None
        if address:
            shown.append(f"{{py:class}}`{text} <{address}>`")
        elif parent is None:
            shown.append(f"`{text}`")
    return shown


def _markdown(doc: str | None) -> str:
    """A docstring as Markdown, with its examples, parameters and errors in form."""
    blocks = re.split(r"\n{2,}(?=\S)", inspect.cleandoc(doc or ""))
    return "\n\n".join(map(_block, blocks))


def _block(text: str) -> str:
    if text.startswith(">>>"):
        return _fenced("pycon", text)
    first, _, rest = text.partition("\n")
    if first == "Raises:":
        errors = [
            (_error(name), about) for name, about in _items(textwrap.dedent(rest))
        ]
        return "**Raises**\n\n" + "\n".join(f"- {name} {a}" for name, a in errors)
    if re.match(r"-{3,}\n", rest):
        items = "\n".join(_parameter(*item) for item in _items(rest.split("\n", 1)[1]))
        return f"**{first}**\n\n{items}"
    return text


def _items(text: str) -> Iterator[tuple[str, str]]:
    """What stands at the left of a list, and what is indented below each."""
    for item in re.split(r"\n(?=\S)", text):
        head, _, about = item.partition("\n")
        yield " ".join(head.split()), " ".join(about.split())


def _parameter(head: str, about: str) -> str:
    names, _, kind = head.partition(" : ")
    shown = ", ".join(f"`{name}`" for name in names.split(", "))
    return f"- {shown}: {kind}. {about}" if kind else f"- {shown}: {about}"


def _error(head: str) -> str:
    name, _, why = head.partition(": ")
    address = f"natgrad.errors.{name}"
    is_own = address in public.addresses().values()
    shown = f"{{py:class}}`{name} <{address}>`" if is_own else f"`{name}`"
    return f"{shown}: {why}"


def _call(node: ast.FunctionDef, home: str, is_bound: bool = False) -> str:
    """A signature, as it is written."""
    arguments = copy.deepcopy(node.args)
    if is_bound:
        (arguments.posonlyargs or arguments.args).pop(0)
    for argument in ast.walk(arguments):
        if isinstance(argument, ast.arg) and argument.annotation is not None:
            argument.annotation = _spelled(argument.annotation, home)
            if ast.unparse(argument.annotation) == "Any":
                argument.annotation = None  # it says nothing
    returns = f" -> {_type(node.returns, home)}" if node.returns is not None else ""
    returns = returns.removesuffix(" -> Any")
    return f"({ast.unparse(arguments)}){returns}"


def _construction(name: Name) -> str:
    """What a class is called with: its constructor's arguments, or else its fields."""
    fields: dict[str, str] = {}
    for ancestor in public.lineage(name):
        assert isinstance(ancestor.node, ast.ClassDef)
        for statement in ancestor.node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                return _call(statement, ancestor.home, is_bound=True).removesuffix(
                    " -> None"
                )
    for ancestor in reversed(public.lineage(name)):
        for member in public.members(ancestor):
            is_field = isinstance(member.node, ast.AnnAssign)
            if is_field and "ClassVar" not in ast.unparse(member.node):
                text = f"{member.name}: {_type(member.node.annotation, ancestor.home)}"
                fields[member.name] = text + _default(member.node.value)
    return f"({', '.join(fields.values())})" if fields else ""


def _default(value: ast.expr | None) -> str:
    """The default of a field, which may be one of several of its properties."""
    match value:
        case None:
            return ""
        case ast.Call(func=function) if ast.unparse(function).endswith("field"):
            given = {word.arg: ast.unparse(word.value) for word in value.keywords}
            return f" = {given['default']}" if "default" in given else ""
    return f" = {ast.unparse(value)}"


def _type(annotation: ast.expr, home: str) -> str:
    return ast.unparse(_spelled(annotation, home))


def _spelled(annotation: ast.expr, home: str) -> ast.expr:
    """A type without quotes around a name, and with shapes in the place of aliases."""
    match annotation:
        case ast.Constant(value=str(text)):
            annotation = ast.parse(text, mode="eval").body
    return _Shapes(home).visit(copy.deepcopy(annotation))


class _Shapes(ast.NodeTransformer):
    def __init__(self, home: str):
        self.home = home

    def visit_Name(self, node: ast.Name) -> ast.expr:
        name = public.found(self.home, node.id)
        match name.node if name else None:
            case ast.Assign(value=ast.Subscript(value=ast.Name(id="Float")) as shape):
                return shape
        return node
