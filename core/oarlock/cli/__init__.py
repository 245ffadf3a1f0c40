"""The command ``oarlock``: a table of subcommands, each a module that is imported when it is asked for.

A command's module has ``add_arguments(parser)`` and ``run(arguments) -> exit status``. Errors that Oarlock raises on
purpose become one line on standard error and exit status 2.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from oarlock.errors import OarlockError
from oarlock.registry.versions import CORE_VERSION

__all__ = ["COMMANDS", "Command", "main"]


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand: its name, the module that implements it, and a line of help."""

    name: str
    module: str
    help: str


COMMANDS: tuple[Command, ...] = (
    Command("new", "oarlock.cli.new", "make the package of a new adapter, which works on the host at once"),
    Command("devices", "oarlock.cli.devices", "list the devices there are, and why others are missing"),
    Command("run", "oarlock.cli.run", "run a model file on a device, and compare its outputs"),
    Command("inspect", "oarlock.cli.inspect", "show what each stage of the compiler makes of a model"),
    Command("tune", "oarlock.cli.tune", "search faster schedules for a model's kernels by measuring, and keep them"),
    Command("certify", "oarlock.cli.certify", "run the conformance suite on a device, and write its certificate"),
    Command("verify", "oarlock.cli.verify", "check a certificate again: hashes, files, device, a sample of cases"),
    Command("compare", "oarlock.cli.compare", "say what got better or worse from one certificate to another"),
    Command("matrix", "oarlock.cli.matrix", "render the release page of several certificates"),
    Command("doctor", "oarlock.cli.doctor", "examine adapters: version, contract, driver, devices, cause of failures"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` (None: those of the process); returns the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        chosen = next((command for command in COMMANDS if given[:1] == [command.name]), None)
        if chosen is None:
            _top_parser().parse_args(given)
            _top_parser().print_help()
            return 2 if given else 0
        module = importlib.import_module(chosen.module)
        parser = argparse.ArgumentParser(prog=f"oarlock {chosen.name}", description=chosen.help)
        module.add_arguments(parser)
        return int(module.run(parser.parse_args(given[1:])))
    except OarlockError as error:
        print(f"oarlock: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def _top_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="oarlock",
        description="One small adapter takes a new accelerator to certified AI programs.",
        epilog="`oarlock COMMAND --help` explains a command.",
    )
    parser.add_argument("--version", action="version", version=f"oarlock {CORE_VERSION}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS:
        commands.add_parser(command.name, help=command.help)
    return parser
