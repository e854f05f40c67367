"""Tables of a report: the paper's numbers, ours, and the difference, as plain values made from records alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from annealfit.experiments.paper import BITS, OUR_BITS, benchmark_runs, digits_runs, paper_table
from annealfit.experiments.records import Record
from annealfit.experiments.spec import CLASSICAL
from annealfit.report.cells import (
    DATASET_COLUMNS,
    METHOD_COLUMNS,
    NEAR_POINTS,
    RUN_COLUMNS,
    Cell,
    Column,
    Group,
    Table,
    count_cell,
    coverage,
    dataset_title,
    groups,
    loss_cell,
    near,
    percent_cell,
    plain_groups,
    presets_of,
    row_names,
    seconds_cell,
    signed,
    text_cell,
)
from annealfit.report.claims import claims_table
from annealfit.report.comparisons import (
    PAPER_RAISING_PERCENT,
    PAPER_SIGNIFICANT,
    contender_bits,
    p_text,
    paired_accuracies,
    paired_p,
    raising_shares,
)

N_PARAMETERS = 19  # d + 1: two filters of 3×3 on 8×8 images, pooled by two, make d = 2·3·3 = 18 features
METRIC_TITLES = {
    "train_accuracy": "Train accuracy",
    "test_accuracy": "Test accuracy",
    "precision": "Precision",
    "recall": "Recall",
    "f1": "F1",
    "kappa": "Kappa",
    "mcc": "MCC",
}
# What section 4 and the discussion say in words: seeds of five on which 20 bits beat the classical baseline, and the
# share of updates that raise the loss.
PAPER_WINS = {"mnist": 5, "fashion_mnist": 4, "emnist": 3, "cifar10": 2, "kmnist": 1}
# Qubits and couplers of Pegasus P16 as the paper counts them, and the largest clique that each ideal graph embeds.
PEGASUS_QUBITS, PEGASUS_COUPLERS = 5_640, 40_484
LARGEST_CLIQUES = {"Pegasus P16": 180, "Zephyr Z12": 184}
PAPER_HARDWARE_CLAIMS = {
    5: "embeddable on current hardware",
    10: "within the qubit limit",
    15: "the highest precision that fits within the couplers",
    20: "exceeds the couplers; 7,000 to 9,500 qubits with chains",
}


def digits_table(records: Sequence[Record]) -> Table:
    """The precision study: accuracy, cross-entropy and time on digits."""
    paper = {row["method"]: row for row in paper_table("digits")}
    rows = []
    for group in plain_groups(records, digits=True):
        # A number of the paper's is set beside ours only where the settings are the paper's.
        theirs = {k: float(v) for k, v in paper[group.spec.label].items() if k != "method"} if _is_papers(group) else {}
        runs = group.records
        rows.append(
            (
                *row_names(group, dataset=False),
                count_cell(len(runs)),
                percent_cell([r.train["accuracy"] for r in runs], theirs.get("train_accuracy_percent")),
                percent_cell([r.test["accuracy"] for r in runs], theirs.get("test_accuracy_percent")),
                loss_cell([r.cross_entropy for r in runs], theirs.get("final_loss")),
                seconds_cell([r.seconds for r in runs], theirs.get("seconds")),
            )
        )
    columns = (
        *METHOD_COLUMNS,
        RUN_COLUMNS,
        Column("train_accuracy_percent", "Train accuracy, %", True, True),
        Column("test_accuracy_percent", "Test accuracy, %", True, True),
        Column("final_loss", "Final cross-entropy", True, True),
        Column("seconds", "Seconds", True, True),
    )
    caption = (
        "Table 3 of the paper. Its numbers are of one run, ours the mean ± sample standard deviation over seeds. "
        "What it calls the final loss is the cross-entropy."
    )
    notes = coverage(records, digits_runs)
    return Table("digits", "Precision study on digits", caption, columns, tuple(rows), 1, notes)


def _is_papers(group: Group) -> bool:
    """Whether the paper has numbers for these runs."""
    return not group.departure and (group.spec.method == CLASSICAL or group.spec.bits in BITS)


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
    return Table("sizes", "Problem sizes", "Table 2 of the paper, d = 18; one problem a class.", columns, tuple(rows))


def predictions_table(records: Sequence[Record]) -> Table:
    """Probability of the true class for one test image of each digit, of the first seed."""
    paper = {(row["digit"], row["method"]): row for row in paper_table("sample_predictions")}
    rows = []
    for group in plain_groups(records, digits=True):
        record = group.records[0]
        cells = []
        for digit in range(10):
            where = np.flatnonzero(record.sample_labels == digit)
            theirs = paper.get((str(digit), group.spec.label)) if _is_papers(group) else None
            cells.append(_prediction(record, int(where[0]) if len(where) else None, theirs))
        rows.append((*row_names(group, dataset=False), *cells))
    columns = (*METHOD_COLUMNS, *(Column(f"digit_{digit}_percent", str(digit), True, True) for digit in range(10)))
    caption = (
        "Table 4 of the paper: probability of the true class in percent; ✓ where it is the predicted class, ✗ where "
        "it is not. The paper does not say which images it shows; ours are the first test image of each digit of the "
        "first seed, so the pattern compares and the single numbers do not."
    )
    notes = coverage(records, digits_runs)
    return Table("predictions", "Sample predictions", caption, columns, tuple(rows), 1, notes)


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


def benchmark_table(records: Sequence[Record]) -> Table:
    """Data set × method × the seven numbers of the consolidated benchmark."""
    paper = {(row["dataset"], row["method"], row["metric"]): row for row in paper_table("benchmark")}
    rows = []
    for group in plain_groups(records, digits=False):
        cells = []
        for metric in METRIC_TITLES:
            theirs = paper.get((group.spec.dataset, group.spec.label, metric)) if not group.departure else None
            values = [measure(record, metric) for record in group.records]
            cells.append(percent_cell(values, *_mean_and_std(theirs, "percent")))
        rows.append((*row_names(group), count_cell(len(group.records)), *cells))
    metrics = (Column(f"{name}_percent", title, True, True) for name, title in METRIC_TITLES.items())
    caption = (
        "Table 7 of the paper, in percent, mean ± sample standard deviation over seeds. With ten classes of equal size "
        "chance is 10 % for accuracy, precision, recall and F1, and 0 % for kappa and MCC (its Table 6)."
    )
    notes = coverage(records, benchmark_runs)
    columns = (*DATASET_COLUMNS, *METHOD_COLUMNS, RUN_COLUMNS, *metrics)
    return Table("benchmark", "Consolidated benchmark", caption, columns, tuple(rows), 2, notes)


def measure(record: Record, metric: str) -> float:
    """One of the benchmark's seven numbers, as a share."""
    if metric == "train_accuracy":
        return record.train["accuracy"]
    return record.test[metric.removeprefix("test_")]


def _mean_and_std(row: dict[str, str] | None, unit: str) -> tuple[float | None, float | None]:
    return (float(row[f"mean_{unit}"]), float(row[f"std_{unit}"])) if row else (None, None)


def recall_table(records: Sequence[Record]) -> Table:
    """Recall of each class of each data set, by method."""
    paper = {(row["dataset"], row["method"], int(row["class"])): row for row in paper_table("per_class_recall")}
    found = plain_groups(records, digits=False) + plain_groups(records, digits=True)
    n_classes = max([10, *(len(group.records[0].confusion) for group in found)])
    rows = []
    for group in found:
        cells = []
        for label in range(n_classes):
            theirs = paper.get((group.spec.dataset, group.spec.label, label)) if not group.departure else None
            recalls = [float(record.recall[label]) for record in group.records if label < len(record.recall)]
            cells.append(percent_cell(recalls, *_mean_and_std(theirs, "percent")) if recalls else Cell("–"))
        rows.append((*row_names(group), *cells))
    classes = (Column(f"class_{label}_percent", f"Class {label}", True, True) for label in range(n_classes))
    caption = "Table 8 of the paper, in percent. Classes are numbered as there; the confusion matrices name them."
    notes = (*coverage(records, benchmark_runs), *_class_names(found))
    return Table(
        "recall", "Per-class recall", caption, (*DATASET_COLUMNS, *METHOD_COLUMNS, *classes), tuple(rows), 2, notes
    )


def _class_names(found: Sequence[Group]) -> list[str]:
    named = {group.spec.dataset: group.records[0].class_names for group in found}
    return [
        f"{dataset_title(dataset)}: " + ", ".join(f"{label} {name}" for label, name in enumerate(names))
        for dataset, names in named.items()
        if tuple(names) != tuple(map(str, range(len(names))))
    ]


def times_table(records: Sequence[Record]) -> Table:
    """Seconds of a training run, by data set and bits."""
    paper = {(row["dataset"], f"qubo_{row['bits']}"): row for row in paper_table("execution_seconds")}
    rows = []
    for group in plain_groups(records, digits=False):
        theirs = paper.get((group.spec.dataset, group.spec.label)) if not group.departure else None
        cell = seconds_cell([record.seconds for record in group.records], *_mean_and_std(theirs, "seconds"))
        rows.append((*row_names(group), count_cell(len(group.records)), cell))
    columns = (*DATASET_COLUMNS, *METHOD_COLUMNS, RUN_COLUMNS, Column("seconds", "Seconds", True, True))
    caption = (
        "Table 9 of the paper: seconds of one training run. The paper has no times of its classical baseline here."
    )
    notes = coverage(records, benchmark_runs)
    return Table("times", "Execution time", caption, columns, tuple(rows), 2, notes)


def wins_table(records: Sequence[Record]) -> Table:
    """On how many seeds QUBO training tests better than the classical baseline, and how sure that is."""
    found = plain_groups(records, digits=False) + plain_groups(records, digits=True)
    baselines = {group.spec.dataset: group for group in found if group.spec.method == CLASSICAL}
    rows = []
    for group in found:
        baseline = baselines.get(group.spec.dataset)
        if baseline is None or group.spec.bits is None or group.departure:
            continue
        if group.spec.bits != contender_bits(group.spec.preset):
            continue
        ours, theirs = paired_accuracies(group, baseline)
        if not ours:
            continue
        wins = sum(a > b for a, b in zip(ours, theirs, strict=True))
        papers = PAPER_WINS.get(group.spec.dataset) if group.spec.bits in BITS else None
        cell = Cell(f"{wins} of {len(ours)}", wins)
        if papers is not None:
            cell = Cell(cell.text, wins, None, papers, f"{papers} of 5", wins - papers, signed(wins - papers, 0))
        p = paired_p(ours, theirs)
        claim = "p < 0.05" if papers is not None and group.spec.dataset in PAPER_SIGNIFICANT else "–"
        gain = percent_cell([a - b for a, b in zip(ours, theirs, strict=True)])
        rows.append((*row_names(group), cell, gain, Cell(p_text(p), p), text_cell(claim)))
    columns = (
        *DATASET_COLUMNS,
        *METHOD_COLUMNS,
        Column("wins", "Seeds won", True, True),
        Column("gain_points", "Gain in test accuracy, points", True),
        Column("p", "p, ours", True),
        Column("p_paper", "p, paper"),
    )
    caption = (
        "Seeds on which QUBO training has the higher test accuracy than the classical baseline, and the p of a "
        "one-sided paired t-test over seeds. 20 bits as in the paper, and 3 bits of annealfit's own settings."
    )
    notes = coverage(records, benchmark_runs)
    return Table("wins", "Wins over the classical baseline", caption, columns, tuple(rows), 2, notes)


def raising_table(records: Sequence[Record]) -> Table:
    """Share of the updates that raise the regularised loss."""
    low, high = PAPER_RAISING_PERCENT
    rows = []
    for group in plain_groups(records, digits=True) + plain_groups(records, digits=False):
        shares = raising_shares(group)
        if not shares:
            continue
        cell = percent_cell(shares)
        if _is_papers(group):
            mean = float(np.mean(shares)) * 100
            difference = min(mean - low, 0.0) + max(mean - high, 0.0)
            verdict = near(abs(difference) <= NEAR_POINTS)
            papers = f"{low:.0f} to {high:.0f}"
            cell = Cell(cell.text, mean, cell.spread, papers, papers, difference, signed(difference), verdict)
        rows.append((*row_names(group), cell))
    columns = (
        *DATASET_COLUMNS,
        *METHOD_COLUMNS,
        Column("raising_percent", "Updates that raise the loss, %", True, True),
    )
    caption = "The discussion says 43 to 46 % of updates raise the loss; the difference is from the nearer end of that."
    return Table("raising", "Loss-raising updates", caption, columns, tuple(rows), 2)


def gap_table(records: Sequence[Record]) -> Table:
    """How far the sampled energies stay above the lower bound that certifies them."""
    rows = []
    for group in plain_groups(records, digits=True) + plain_groups(records, digits=False):
        gaps = [record.history["gap"] for record in group.records if len(record.history.get("gap", ()))]
        if not gaps:
            continue
        bounds = [record.history["lower_bound"] for record in group.records if len(record.history.get("gap", ()))]
        # A gap as large as the bound itself means that no update at all (energy 0) would have been as good.
        relative = [
            float(np.mean(gap) / max(np.mean(np.abs(bound)), 1e-300)) for gap, bound in zip(gaps, bounds, strict=True)
        ]
        values = [[float(gap[0]) for gap in gaps], [float(np.mean(gap)) for gap in gaps], [float(g[-1]) for g in gaps]]
        cells = (Cell(f"{np.mean(value):.2g}", float(np.mean(value))) for value in values)
        rows.append((*row_names(group), *cells, Cell(f"{np.mean(relative):.2f}", float(np.mean(relative)))))
    columns = (
        *DATASET_COLUMNS,
        *METHOD_COLUMNS,
        Column("gap_first", "Gap at the first iteration", True),
        Column("gap_mean", "Mean gap", True),
        Column("gap_last", "Gap at the last iteration", True),
        Column("gap_relative", "Mean gap ÷ |bound|", True),
    )
    caption = (
        "Energy of the sampled update minus the certified lower bound, means over seeds. 0 is a proven optimum; a gap "
        "of 1 × |bound| is no better than no update, and more is worse than none. The paper has no such numbers."
    )
    return Table("gap", "Energy gap to the certificate", caption, columns, tuple(rows), 2)


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
                Cell(f"{value:g}", value),
                text_cell(group.preset),
                count_cell(group.spec.bits or 0),
                count_cell(len(runs)),
                percent_cell([r.train["accuracy"] for r in runs]),
                percent_cell([r.test["accuracy"] for r in runs]),
                loss_cell([r.cross_entropy for r in runs]),
                percent_cell(raising_shares(group)),
            )
        )
    columns = (
        Column(field, symbol, True),
        Column("preset", "Preset"),
        Column("bits", "Bits", True),
        RUN_COLUMNS,
        Column("train_accuracy_percent", "Train accuracy, %", True),
        Column("test_accuracy_percent", "Test accuracy, %", True),
        Column("final_loss", "Final cross-entropy", True),
        Column("raising_percent", "Updates that raise the loss, %", True),
    )
    caption = f"Digits, with {symbol} alone varied, at the benchmark's 100 sweeps. The paper gives no numbers for this."
    notes = coverage(records, lambda preset: [s for s in digits_runs(preset) if getattr(s, field) is not None])
    return Table(f"{name}_study", title, caption, columns, tuple(rows), 1, notes)


def hardware_table(records: Sequence[Record]) -> Table:
    """What the discussion says about hardware, by bits."""
    rows = []
    for bits in sorted({*BITS, *OUR_BITS}):
        n = N_PARAMETERS * bits
        couplings = n * (n - 1) // 2
        fits = [n <= PEGASUS_QUBITS, couplings <= PEGASUS_COUPLERS, *(n <= size for size in LARGEST_CLIQUES.values())]
        answers = (text_cell("yes" if fit else "no") for fit in fits)
        claim = text_cell(PAPER_HARDWARE_CLAIMS.get(bits, "–"))
        rows.append((count_cell(bits), count_cell(n), count_cell(couplings), *answers, claim))
    columns = (
        Column("bits", "Bits K", True),
        Column("variables", "Variables", True),
        Column("couplings", "Couplings", True),
        Column("within_qubits", f"Within {PEGASUS_QUBITS:,} qubits"),
        Column("within_couplers", f"Within {PEGASUS_COUPLERS:,} couplers"),
        *(
            Column(f"clique_{name.split()[1].lower()}", f"Embeds as a clique in {name} (≤ {size})")
            for name, size in LARGEST_CLIQUES.items()
        ),
        Column("paper_claim", "What the paper says"),
    )
    caption = (
        "Counting couplers is not embedding. The problems are dense, so each needs a clique of its size, and the "
        "largest clique of an ideal Pegasus P16 has 180 variables, of Zephyr Z12 184: 10 bits at d = 18 (190 "
        "variables) already do not embed, and neither do the 15 bits the paper calls the most practical."
    )
    return Table("hardware", "Hardware", caption, columns, tuple(rows))


def failures_table(records: Sequence[Record]) -> Table:
    """Runs that ended with an error."""
    failed = [record for record in records if record.error is not None]
    rows = tuple((text_cell(record.run.id), text_cell(str(record.error))) for record in failed)
    columns = (Column("run", "Run"), Column("error", "Error"))
    return Table("failures", "Failed runs", "Runs that ended with an error; they are in no other table.", columns, rows)


def all_tables(records: Sequence[Record]) -> list[Table]:
    """Every table of the report, in the paper's order; a table without rows is left out."""
    builders = (
        claims_table,
        settings_table,
        sizes_table,
        digits_table,
        predictions_table,
        benchmark_table,
        recall_table,
        times_table,
        wins_table,
        raising_table,
        gap_table,
        range_table,
        step_table,
        hardware_table,
        failures_table,
    )
    return [table for build in builders if (table := build(records)).rows]
