"""Runs the proof of the suite and stores it: docs/proof/{saboteurs,mutations,vacuity}.json and a page of what they say.

    python conformance/tests/prove.py [--output DIR] [--jobs N] [--page]

``--page`` writes the page anew from the stored results. The exit status is that of the worst part.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PARTS = {
    "saboteurs": HERE / "saboteurs" / "run.py",
    "mutations": HERE / "mutations" / "run.py",
    "vacuity": HERE / "saboteurs" / "vacuous.py",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every part and write what it gives."""
    parser = argparse.ArgumentParser(prog="prove.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, default=HERE.parents[1] / "docs" / "proof", metavar="DIR")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at once (default %(default)s)")
    parser.add_argument("--only", choices=sorted(PARTS), action="append", help="a part (repeatable; default: all)")
    parser.add_argument("--page", action="store_true", help="write the page alone, from the stored results")
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    worst = 0
    for name in [] if given.page else given.only or list(PARTS):
        command = [sys.executable, str(PARTS[name]), "--json", "--jobs", str(given.jobs)]
        command += ["--full"] * (name == "mutations")
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        worst = max(worst, done.returncode)
        found = {**json.loads(done.stdout), "suite_hash": _suite_hash()}
        (given.output / f"{name}.json").write_text(_here(json.dumps(found, indent=1)) + "\n")
    (given.output / "index.md").write_text(page(given.output))
    return worst


def _here(text: str) -> str:
    """``text`` without the folders of this machine."""
    text = re.sub(r"/[^\s\"']*?/(?:site-packages|lib/python3\.\d+)/", "", text)
    return text.replace(f"{HERE.parents[1]}/", "")


def _suite_hash() -> str:
    from oarlock_conformance.environment import suite_hash

    return suite_hash()


def page(folder: Path) -> str:
    """The page: sums, then a row for each fault."""
    lines = [
        "# Proof of the suite",
        "",
        "Written by `tox -e proof`; do not edit. Raw results lie beside this page.",
        "",
    ]
    for name, writer in (("saboteurs", _saboteurs), ("mutations", _mutations), ("vacuity", _vacuity)):
        path = folder / f"{name}.json"
        if path.exists():
            lines += writer(json.loads(path.read_text()))
    return "\n".join(lines).rstrip() + "\n"


def _head(title: str, found: dict[str, Any]) -> list[str]:
    return [f"## {title}", "", f"Suite `{found['suite_hash'][:16]}`.", ""]


def _saboteurs(found: dict[str, Any]) -> list[str]:
    kinds = Counter(row["by"] for row in found["rows"] if row["caught"])
    how = ", ".join(f"{count} by {kind}" for kind, count in kinds.most_common())
    text = f"{found['caught']} of {found['planted']} planted faults caught ({how}), {found['seconds']:.0f} s with "
    text += f"{found['jobs']} jobs. Caught by a crash alone: {', '.join(found['crash_only']) or 'none'}."
    rows = [
        f"| {row['surface']} | {row['fault']} | {row['by'] if row['caught'] else '**not caught**'} | {row['cases']} | "
        f"{'`' + row['first'] + '`' if row['first'] else ''} |"
        for row in found["rows"]
    ]
    head = ["| surface | fault | caught by | cases run | first failing case |", "|---|---|---|---|---|"]
    return [*_head("Broken adapters", found), text, "", *head, *rows, ""]


def _mutations(found: dict[str, Any]) -> list[str]:
    text = f"{found['caught']} of {found['planted']} mutations of the compiler caught, {found['seconds']:.0f} s with "
    kernels = ", ".join(f"{count} as {way}" for way, count in found["kernels"].items())
    kinds = Counter(row["by"] for row in found["rows"] if row["caught"])
    how = ", ".join(f"{count} by {kind}" for kind, count in kinds.most_common())
    text += f"{found['jobs']} jobs: {how}. Kernels looked at: {kernels}."
    rows = [
        f"| {row['module']} | {row['name']} | {row['by'] if row['caught'] else '**not caught**'} | {row['changed']} | "
        f"{row['first'] or row['reason']} |"
        for row in found["rows"]
    ]
    head = ["| module | mutation | caught by | kernels changed | first wrong program |", "|---|---|---|---|---|"]
    return [*_head("Mutations of the compiler", found), text, "", *head, *rows, ""]


def _vacuity(found: dict[str, Any]) -> list[str]:
    rows = [
        f"| {each['device']} | {each['cases']} | {each['failed']} | {each['cannot_tell']} | {len(each['vacuous'])} |"
        for each in found["devices"]
    ]
    head = [
        "| device | cases that compare values | failed, as they must | cannot tell | vacuous |",
        "|---|---|---|---|---|",
    ]
    why = "A case cannot tell where its right result is zero or empty, or depends on no operand's bytes."
    return [*_head("Vacuity", found), why, "", *head, *rows, ""]


if __name__ == "__main__":
    sys.exit(main())
