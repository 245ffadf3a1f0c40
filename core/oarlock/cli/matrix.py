"""``oarlock matrix``: renders the release page of the certificates in a folder."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from oarlock.errors import ConfigError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.epilog = "exit status: 0 it was rendered, 2 wrong usage; whether a device is conformant is on the page"
    parser.add_argument("certificates", metavar="DIR", type=Path, help="the folder of certificates")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("matrix.html"), metavar="FILE", help="the page (default: matrix.html)"
    )
    parser.add_argument("--json", action="store_true", help="print the matrix as JSON as well")


def run(arguments: argparse.Namespace) -> int:
    """Render; a device that is unavailable is shown as that."""
    from oarlock_conformance.report.matrix import matrix_page, read_certificates, summary

    documents = read_certificates(arguments.certificates)
    try:
        arguments.output.write_text(matrix_page(documents, arguments.output.parent), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{arguments.output}: cannot write it: {error.strerror}") from error
    if arguments.json:
        print(json.dumps(summary(documents), indent=1))
    else:
        for document in documents:
            print(f"  {document['device']['id']:<16} {document['verdict']['state']}")
        print(f"  matrix: {arguments.output}")
    return 0
