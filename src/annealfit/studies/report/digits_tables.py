"""Tables of the paper's study of digits: settings, sizes, precision, sample predictions, range and step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from annealfit.studies.paper_tables import BITS, OUR_BITS, paper_table
from annealfit.studies.records import Record
from annealfit.studies.report.cells import (
    METHOD_COLUMNS,
    RUNS_COLUMN,
    Cell,
    Column,
    Table,
    count_cell,
    groups,
    is_papers,
    loss_cell,
    method_title,
    percent_cell,
    plain_groups,
    presets_of,
    row_names,
    seconds_cell,
    signed,
    text_cell,
)
from annealfit.studies.report.comparisons import (
    raising_shares,
)

N_PARAMETERS = 19  # d + 1: two filters of 3×3 on 8×8 images, pooled by two, make d = 2·3·3 = 18 features


def digits_table(records: Sequence[Record]) -> Table:
    """The precision study: accuracy, cross-entropy and time on digits."""
    paper = {row["method"]: row for row in paper_table("digits")}
    rows = []
    for group in plain_groups(records, digits=True):
        # A number of the paper's is set beside ours only where the settings are the paper's.
        theirs = {k: float(v) for k, v in paper[group.spec.label].items() if k != "method"} if is_papers(group) else {}
        runs = group.records
        rows.append(
            (
                *row_names(group, dataset=False),
                percent_cell([r.train["accuracy"] for r in runs], theirs.get("train_accuracy_percent")),
                percent_cell([r.test["accuracy"] for r in runs], theirs.get("test_accuracy_percent")),
                loss_cell([r.cross_entropy for r in runs], theirs.get("final_loss")),
                seconds_cell([r.seconds for r in runs], theirs.get("seconds")),
                count_cell(len(runs)),
            )
        )
    columns = (
        *METHOD_COLUMNS,
        Column("train_accuracy_percent", "Train accuracy, %", True, True),
        Column("test_accuracy_percent", "Test accuracy, %", True, True),
        Column("final_loss", "Final cross-entropy", True, True),
        Column("seconds", "Seconds", True, True),
        RUNS_COLUMN,
    )
    caption = (
        "Table 3 of the paper. Its numbers are of one run, ours the mean ± sample standard deviation over seeds. "
        "What it calls the final loss is the cross-entropy."
    )
    return Table("digits", "Precision study on digits", caption, columns, tuple(rows), 2)


# Tables 1 and 5: the parameter, the paper's value for digits and for the benchmark, and what a record tells of it.
_SETTINGS: tuple[tuple[str, str, str, Callable[[Record], Any]], ...] = (
    ("Image resolution", "8×8", "8×8", lambda record: "×".join(map(str, record.sample_images.shape[1:]))),
    ("Test images", "540", "500", lambda record: int(record.confusion.sum())),
    ("Classes", "10", "10", lambda record: len(record.confusion)),
    ("Random seeds", "not said", "42, 43, 44, 45, 46", lambda record: record.run.seed),
    ("Bits", "5, 10, 15, 20", "5, 10, 15, 20", lambda record: record.run.bits),
    ("Iterations", "1000", "1000", lambda record: len(record.history.get("iteration", ()))),
    ("Sweeps", "1000", "100", lambda record: record.run.num_sweeps or 100),
)


def settings_table(records: Sequence[Record]) -> Table:
    """The paper's settings, and those that the records of QUBO runs tell of."""
    presets = presets_of(records)
    rows = []
    for is_digits in (True, False):
        found = [group for group in plain_groups(records, digits=is_digits) if group.spec.method == "qubo"]
        if not found:
            continue
        for parameter, digits, benchmark, read in _SETTINGS:
            ours = []
            for preset in presets:
                seen = {read(r) for group in found if group.spec.preset == preset for r in group.records}
                ours.append(text_cell(_listed(seen)))
            study = text_cell("Digits" if is_digits else "Benchmark")
            rows.append((study, text_cell(parameter), text_cell(digits if is_digits else benchmark), *ours))
    columns = (
        Column("study", "Study"),
        Column("parameter", "Parameter"),
        Column("paper", "Paper"),
        *(Column(preset, preset) for preset in presets),
    )
    caption = "Tables 1 and 5 of the paper, as far as the records tell: what the QUBO runs here really had."
    return Table("settings", "Settings", caption, columns, tuple(rows), 2)


def _listed(values: Iterable[Any]) -> str:
    """Values in order; the ends alone where they are many, as with runs that stop by themselves."""
    ordered = sorted(values)
    if len(ordered) > 6:
        return f"{ordered[0]} to {ordered[-1]}"
    return ", ".join(map(str, ordered)) or "–"


def sizes_table(records: Sequence[Record]) -> Table:
    """Variables and couplings of one class's problem, by bits."""
    paper = {int(row["bits"]): row for row in paper_table("qubo_size")}
    rows = []
    for bits in sorted({*BITS, *OUR_BITS}):
        n, theirs = N_PARAMETERS * bits, paper.get(bits)
        variables = int(theirs["logical_variables"]) if theirs else None
        couplings = int(theirs["quadratic_terms"]) if theirs else None
        rows.append((count_cell(bits), count_cell(n, variables), count_cell(n * (n - 1) // 2, couplings)))
    columns = (
        Column("bits", "Bits K", True),
        Column("variables", "Variables (d+1)K", True, True),
        Column("couplings", "Couplings n(n−1)/2", True, True),
    )
    return Table("sizes", "Problem sizes", "Table 2 of the paper, d = 18; one problem per class.", columns, tuple(rows))


def predictions_table(records: Sequence[Record]) -> Table:
    """Probability of the true class for one test image of each digit, of the first seed."""
    paper = {(row["digit"], row["method"]): row for row in paper_table("sample_predictions")}
    rows = []
    for group in plain_groups(records, digits=True):
        record = group.records[0]
        cells = []
        for digit in range(10):
            where = np.flatnonzero(record.sample_labels == digit)
            theirs = paper.get((str(digit), group.spec.label)) if is_papers(group) else None
            cells.append(_prediction(record, int(where[0]) if len(where) else None, theirs))
        rows.append((*row_names(group, dataset=False), *cells))
    columns = (*METHOD_COLUMNS, *(Column(f"digit_{digit}_percent", str(digit), True, True) for digit in range(10)))
    caption = (
        "Table 4 of the paper: probability of the true class in percent; ✓ where it is the predicted class, ✗ where "
        "it is not. The paper does not say which images it shows; ours are the first test image of each digit of the "
        "first seed, so the pattern compares and the single numbers do not."
    )
    return Table("predictions", "Sample predictions", caption, columns, tuple(rows), 2)


def _prediction(record: Record, sample: int | None, paper: dict[str, str] | None) -> Cell:
    if sample is None:
        return Cell("–")
    probabilities = record.sample_probabilities[sample]
    label = int(record.sample_labels[sample])
    value = 100 * float(probabilities[label])
    text = f"{value:.1f} {'✓' if int(probabilities.argmax()) == label else '✗'}"
    if paper is None:
        return Cell(text, value)
    theirs = float(paper["probability_of_true_class_percent"])
    paper_text = f"{theirs:.1f} {'✓' if paper['correct'] == 'True' else '✗'}"
    return Cell(text, value, None, theirs, paper_text, value - theirs, signed(value - theirs))


def range_table(records: Sequence[Record]) -> Table:
    """The study of δ on digits."""
    return _study(records, "update_range", "range", "δ", "Study of the update range δ")


def step_table(records: Sequence[Record]) -> Table:
    """The study of α on digits."""
    return _study(records, "step", "step", "α", "Study of the step α")


def _study(records: Sequence[Record], field: str, name: str, symbol: str, title: str) -> Table:
    rows = []
    for group in groups(records):
        value = getattr(group.spec, field)
        if value is None or group.spec.dataset != "digits":
            continue
        runs = group.records
        rows.append(
            (
                Cell(f"{symbol} = {value:g}", value),
                text_cell(method_title(group.spec.label)),
                text_cell(group.preset),
                percent_cell([r.train["accuracy"] for r in runs]),
                percent_cell([r.test["accuracy"] for r in runs]),
                loss_cell([r.cross_entropy for r in runs]),
                percent_cell(raising_shares(group)),
                count_cell(len(runs)),
            )
        )
    columns = (
        Column(field, symbol, True),
        *METHOD_COLUMNS,
        Column("train_accuracy_percent", "Train accuracy, %", True),
        Column("test_accuracy_percent", "Test accuracy, %", True),
        Column("final_loss", "Final cross-entropy", True),
        Column("raising_percent", "Updates that raise the loss, %", True),
        RUNS_COLUMN,
    )
    caption = f"Digits, with {symbol} alone varied, at the benchmark's 100 sweeps. The paper gives no numbers for this."
    return Table(f"{name}_study", title, caption, columns, tuple(rows), 3)
