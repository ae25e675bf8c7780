"""Command line: ``skcalib --help``, or ``python -m skcalib --help``."""

import argparse
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from skcalib import __version__
from skcalib.cli import compare


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 0, 2 after an error, or 128 plus the number of a signal."""
    if arguments is None:
        _end_by_signals()
        for name in ("stdout", "stderr"):  # printing must never fail
            if getattr(sys, name) is None:  # closed by the caller
                setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
            getattr(sys, name).reconfigure(errors="backslashreplace")  # for ASCII terminals
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


def _end_by_signals() -> None:
    """Let signals end this process by an exception, so that no temporary file is left."""

    def end(number: int, _: Any) -> NoReturn:
        sys.exit(128 + number)

    for name in ("SIGTERM", "SIGHUP"):
        kind = getattr(signal, name, None)  # Windows has no SIGHUP
        if kind is not None and signal.getsignal(kind) is signal.SIG_DFL:  # not under nohup
            signal.signal(kind, end)


class Parser(argparse.ArgumentParser):
    """A parser whose error explains how to pass a value that looks like an option."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and exit."""
        if "expected one argument" in message:
            message += "; put an equals sign before a value that begins with a minus, as in "
            message += "--layers=-1,last2"
        super().error(message)


def _run(arguments: Sequence[str] | None) -> int:
    parser = Parser(prog="skcalib", description="Calibrated sentence vectors, without labels.")
    parser.add_argument("--version", action="version", version=f"skcalib {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    summary = "what a calibration gains on your texts, in one table"
    compare.add_arguments(commands.add_parser("compare", help=summary))
    options = parser.parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda text, *_: print(f"warning: {text}", file=sys.stderr)
            compare.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as ``head``, has what it needs
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ImportError, OSError, TypeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
