"""Count code lines (no blank lines, comments or docstrings) of each adapter and C dialect, against their budgets."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ADAPTER_BUDGET = 300
DIALECT_BUDGET = 80
PLAN_BUDGET = 80
ENFORCED = {"adapter opencl", "plans opencl", "dialect opencl", "vectors opencl"}
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """What is counted as one: its files and the lines that it may have."""

    name: str
    files: tuple[Path, ...]
    budget: int


def code_lines(source: str) -> int:
    """Lines of ``source`` that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            for statement in node.body:
                if _is_docstring(statement):
                    lines.difference_update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    return len(lines)


def _is_docstring(statement: ast.stmt) -> bool:
    """Whether it is a bare string: a docstring, or the note below a field."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def parts(root: Path) -> list[Part]:
    """The adapters and dialects of the tree ``root``. Whole plans, an optional ability that only saves time, are a part
    of their own where they have a file ``plan.py``."""
    adapters = []
    for folder in sorted((root / "adapters").iterdir()):
        files = sorted(folder.glob("oarlock_*/**/*.py"))
        plans = tuple(path for path in files if path.name == "plan.py")
        if files:
            others = tuple(path for path in files if path not in plans)
            adapters.append(Part(f"adapter {folder.name}", others, ADAPTER_BUDGET))
        if plans:
            adapters.append(Part(f"plans {folder.name}", plans, PLAN_BUDGET))
    renderers = root / "core" / "oarlock" / "codegen" / "render"
    dialects = [
        Part(f"dialect {name}", (renderers / f"{name}.py",), DIALECT_BUDGET)
        for name in ("c99", "opencl", "cuda")
        if (renderers / f"{name}.py").exists()
    ]
    vectors = Part("vectors opencl", (renderers / "opencl_vectors.py",), DIALECT_BUDGET)
    return [*adapters, *dialects, vectors]


def main() -> int:
    """Print the table; 1 when a part that is held to its budget is over it."""
    over = False
    print(f"{'part':<20}{'lines':>7}{'budget':>8}")
    for part in parts(ROOT):
        count = sum(code_lines(path.read_text()) for path in part.files)
        remark = ""
        if count > part.budget:
            enforced = part.name in ENFORCED
            over |= enforced
            remark = "  over budget" if enforced else "  over budget (reported only)"
        print(f"{part.name:<20}{count:>7}{part.budget:>8}{remark}")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
