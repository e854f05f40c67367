"""The command-line program: a command parses, calls the library and prints."""

from __future__ import annotations

from annealfit.cli import compare, datasets, hardware, paper, problems, quantize, training
from annealfit.cli.program import app, main

__all__ = ["app", "main"]

# The commands, in the order of --help.
for _command in (training.train, training.predict, problems.export, paper.reproduce, paper.report, hardware.hardware):
    app.command()(_command)
app.command("compare-samplers")(compare.compare)
app.command()(quantize.quantize)
app.add_typer(datasets.datasets_app, name="datasets")
app.add_typer(problems.instances_app, name="instances")
