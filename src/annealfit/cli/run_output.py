"""What a training leaves for the user to see: the table, notes, and the pictures in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from annealfit._support.errors import MissingDependencyError
from annealfit.cli.display import console, errors, make_table, plain
from annealfit.cli.printing import print_table
from annealfit.cli.sampling import sampler_notes

if TYPE_CHECKING:
    from annealfit.studies import TrainingRun


def tell_run(run: TrainingRun, folder: Path, again: str, notes: list[str], *, as_json: bool) -> None:
    """Print the table, or its JSON, and what else the user should know."""
    classifier = run.classifier
    notes = [*notes, *sampler_notes(classifier)]
    interrupted = classifier.stop_reason_ == "interrupted"
    if interrupted:
        notes.append(
            f"Interrupted after {classifier.n_iter_} of {classifier.max_iter} iterations. Go on with:\n"
            f"annealfit {again}"
        )
    if as_json:
        typer.echo((folder / "metrics.json").read_text(encoding="utf-8").rstrip())
    else:
        print_table(_comparison_table(run))
    beside = errors if as_json else console  # beside the document, for people
    for note in (*notes, f"Run folder: {folder}"):
        beside.print(plain(note), soft_wrap=True)
    if interrupted:
        raise typer.Exit(130)  # what shells say of a program that Ctrl-C ended


def _comparison_table(run: TrainingRun) -> Table:
    kind = "images" if len(run.dataset.X_test.shape) > 2 else "rows"
    counts = f"{len(run.dataset.y_train)} training, {len(run.dataset.y_test)} test {kind}"
    table = make_table(plain(f"{run.dataset.name}: {counts}"))
    table.add_column("method", no_wrap=True)
    for heading in ("train\n%", "test\n%", "prec.\n%", "recall\n%", "F1\n%", "κ", "MCC", "loss", "sec."):
        table.add_column(heading, justify="right")
    for record in run.records:
        *percents, kappa, mcc = (record.train["accuracy"], *record.test.values())
        table.add_row(
            plain(record.method),
            *(f"{100 * value:.1f}" for value in percents),
            *(f"{value:.3f}" for value in (kappa, mcc)),  # from −1 to 1: no percentages
            f"{record.loss:.4f}",
            f"{record.seconds:.2f}",
        )
    return table


def draw_run(run: TrainingRun, folder: Path) -> list[str]:
    """Save the figures; without matplotlib say so instead."""
    from annealfit.studies.report import figures

    try:
        figures.save_run_figures(run, folder)
    except MissingDependencyError as error:
        return [f"No plots: {error}"]
    return []
