"""The command-line program: parse, call, print."""

from __future__ import annotations

from annealfit.cli import compare, data, hardware, instances, paper, quantize, training, using
from annealfit.cli.program import app, main, reflow_help

__all__ = ["app", "main"]

# The commands, in the order of --help.
for _command in (training.train, using.predict, using.export, paper.reproduce, paper.report, hardware.hardware):
    app.command()(_command)
app.command("compare-samplers")(compare.compare)
app.command()(quantize.quantize)
app.add_typer(data.datasets_app, name="datasets")
app.add_typer(instances.instances_app, name="instances")
reflow_help(app)
