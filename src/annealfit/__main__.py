"""`python -m annealfit` is the command-line program."""

from annealfit.cli import main

main()
