"""The entry point: `hopline`, and `python -m hopline`."""

import sys


def main() -> None:
    """Run the command line. Its imports take a moment, and Ctrl-C may come in that too."""
    try:
        from hopline.cli import main as run  # noqa: PLC0415 - it is what takes the moment

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
