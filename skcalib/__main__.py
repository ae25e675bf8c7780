"""Command line: ``skcalib --help``, or ``python -m skcalib --help``."""

import argparse
import sys
import warnings
from collections.abc import Sequence

from skcalib import __version__
from skcalib.cli import compare


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 0, 2 after an error, or 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="skcalib", description="Calibrated sentence vectors, without labels."
    )
    parser.add_argument("--version", action="version", version=f"skcalib {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    summary = "what a calibration gains on your texts, in one table"
    compare.add_arguments(commands.add_parser("compare", help=summary))
    options = parser.parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda text, *_: print(f"warning: {text}", file=sys.stderr)
            compare.run(options)
    except (ImportError, OSError, TypeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
