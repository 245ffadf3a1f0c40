"""Writes docs/contract.md from the docstrings of the contract. ``--check`` only compares."""

from __future__ import annotations

import argparse
import ast
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "contract.md"
CORE = ROOT / "core" / "oarlock"
MODULES = (
    "hal.adapter", "hal.device", "hal.memory", "hal.stream", "hal.program", "hal.operators", "hal.communication",
    "target", "abi", "hal.host",
)  # fmt: skip
"""In the order in which a reader needs them."""

HEAD = """\
# The contract

Made by `python ci/make_contract.py` from the docstrings in `core/oarlock`; edit those.
[vendors](vendors/index.md) leads through it with an adapter that works.
"""


def main() -> int:
    """Write the page, or compare it; exit status 1 where it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with docs/contract.md instead of writing it")
    arguments = parser.parse_args()
    page = make()
    if not arguments.check:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    there = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    difference = list(difflib.unified_diff(there, page.splitlines(), "docs/contract.md", "made now", lineterm=""))
    if difference:
        text = "docs/contract.md is out of date: run python ci/make_contract.py"
        print("\n".join([text, *difference]), file=sys.stderr)
    return 1 if difference else 0


def make() -> str:
    """The page."""
    parts = [HEAD, _text(ast.get_docstring(_tree("hal.__init__")))]
    for module in MODULES:
        parts += list(_module(module))
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _tree(module: str) -> ast.Module:
    path = CORE.joinpath(*module.split(".")).with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def _text(docstring: str | None) -> str:
    return (docstring or "").replace("``", "`")


def _module(module: str) -> Iterator[str]:
    tree = _tree(module)
    yield f"## `oarlock.{module}`"
    yield _text(ast.get_docstring(tree))
    public = _public(tree)
    body = tree.body
    for position, node in enumerate(body):
        if isinstance(node, ast.ClassDef) and node.name in public:
            yield from _class(node)
        elif isinstance(node, ast.FunctionDef) and node.name in public:
            yield f"### `{_signature(node)}`"
            yield _text(ast.get_docstring(node))
        elif (name := _assigned(node)) in public:
            yield f"### `{ast.unparse(node)}`" if len(ast.unparse(node)) < 80 else f"### `{name}`"
            yield _comment(body, position)


def _public(tree: ast.Module) -> set[str]:
    for node in tree.body:
        if _assigned(node) == "__all__" and isinstance(node, ast.Assign):
            return set(ast.literal_eval(node.value))
    return set()


def _assigned(node: ast.stmt) -> str:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def _comment(body: list[ast.stmt], position: int) -> str:
    """The string that stands after an assignment and explains it."""
    following = body[position + 1] if position + 1 < len(body) else None
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        value = following.value.value
        if isinstance(value, str):
            return _text(" ".join(value.split()))
    return ""


def _class(node: ast.ClassDef) -> Iterator[str]:
    bases = ", ".join(ast.unparse(base) for base in node.bases if ast.unparse(base) != "ABC")
    yield f"### `{node.name}({bases})`" if bases else f"### `{node.name}`"
    yield _text(ast.get_docstring(node))
    fields = [
        f"- `{ast.unparse(item)}`{_after(_comment(node.body, position))}"
        for position, item in enumerate(node.body)
        if isinstance(item, ast.AnnAssign) and not _assigned(item).startswith("_")
    ]
    yield "\n".join(fields)
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
            yield f"#### `{_signature(item)}`{_kind(item)}"
            yield _text(ast.get_docstring(item))


def _after(comment: str) -> str:
    return f": {comment}" if comment else ""


def _signature(node: ast.FunctionDef) -> str:
    """Name, parameters without self, and result."""
    arguments = ast.unparse(node.args)
    for first in ("self", "cls"):
        arguments = arguments.removeprefix(first + ", ") if arguments.startswith(first + ",") else arguments
        arguments = "" if arguments == first else arguments
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"{node.name}({arguments}){result}"


def _kind(node: ast.FunctionDef) -> str:
    """What the decorators say."""
    names = {ast.unparse(decorator) for decorator in node.decorator_list}
    return ", mandatory" if "abstractmethod" in names else ", property" if "property" in names else ""


if __name__ == "__main__":
    sys.exit(main())
