"""`annealfit`, and `python -m annealfit`, is the command-line program."""

import os
import signal


def main() -> None:
    """Run the program; Ctrl-C while its libraries are loaded ends it without a traceback."""
    in_foreground = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if in_foreground:
        signal.signal(signal.SIGINT, _end)
    from annealfit import cli

    if in_foreground:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


def _end(*_: object) -> None:
    os.write(2, b"Interrupted.\n")
    os._exit(130)  # an exception could be lost in an import


if __name__ == "__main__":
    main()
