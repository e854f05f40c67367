"""The tables of a report: the paper's numbers, ours, and the difference, made from records alone.

A `Table` is plain values: the page, the terminal and CSV all show the same one. Titles, captions, columns and
the wording of the claims are in `tables.toml`; the functions here compute the rows.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from itertools import groupby
from typing import Any

import numpy as np

from annealfit._support.files import without_nan
from annealfit.studies.paper_tables import BITS, OUR_BITS, STUDY_SWEEPS, bits_of, paper_table
from annealfit.studies.records import (
    CLASSICAL,
    IMAGES,
    MODELS,
    NETWORK_METHODS,
    OPTIMUM,
    RUN_PRESETS,
    Record,
    RunSpec,
    csv_text,
)

NEAR_POINTS = 5.0  # a percentage this close to the paper's counts as reproduced
NEAR_SHARE = 0.10  # so does a loss within this share of the paper's
DATASET_TITLES = {
    "digits": "Digits",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "emnist": "EMNIST",
    "kmnist": "KMNIST",
}
_STATED, _OTHER_IMAGES = "-stated", ", stated images"
READINGS = {preset + _OTHER_IMAGES * (kind == "stated"): (kind, preset) for kind in IMAGES for preset in RUN_PRESETS}
SCORES = ("kappa", "mcc")  # from −1 to 1; the other metrics are shares
# What the paper says in words: seeds of five on which 20 bits beat the classical baseline, the data sets on which that
# is significant, and the share of updates that raise the loss.
PAPER_WINS = {"mnist": 5, "fashion_mnist": 4, "emnist": 3, "cifar10": 2, "kmnist": 1}
PAPER_SIGNIFICANT = ("mnist", "fashion_mnist")
PAPER_RAISING_PERCENT = (43.0, 46.0)
N_PARAMETERS = 19  # d + 1: two filters of 3×3 on 8×8 images, pooled by two, make d = 2·3·3 = 18 features
# Qubits and couplers of Pegasus P16 as the paper counts them, and the largest clique that each ideal graph embeds.
PEGASUS_QUBITS, PEGASUS_COUPLERS = 5_640, 40_484
LARGEST_CLIQUES = {"P16": 180, "Z12": 184}


@dataclass(frozen=True)
class Cell:
    """One entry: what a reader sees, and the raw numbers behind it.

    `verdict` is "near" or "far" from the paper, "better" where the difference is good news, or empty.
    """

    text: str
    value: float | str | None = None
    spread: float | None = None
    paper: float | str | None = None
    paper_text: str = ""
    difference: float | None = None
    difference_text: str = ""
    verdict: str = ""
    paper_spread: float | None = None


@dataclass(frozen=True)
class Column:
    """A heading; a compared column also has the paper's number and the difference."""

    name: str
    title: str
    numeric: bool = False
    compared: bool = False


@dataclass(frozen=True)
class Table:
    """Columns and rows of cells, independent of how they are shown. The first `headings` cells of a row name it."""

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    headings: int = 1
    notes: tuple[str, ...] = ()


Row = dict[str, Cell]  # by the names of columns


def make_table(name: str, rows: Sequence[Row], notes: Iterable[str] = ()) -> Table:
    """The table of this name in `tables.toml`; an optional column is there if a row has a cell for it."""
    layout = layouts()[name]
    columns = tuple(
        Column(key, title, kind in (["number"], ["compared"]), kind == ["compared"])
        for key, title, *kind in layout["columns"]
        if kind != ["optional"] or any(key in row for row in rows)
    )
    cells = tuple(tuple(row.get(column.name, Cell("–")) for column in columns) for row in rows)
    return Table(name, layout["title"], layout["caption"], columns, cells, layout.get("headings", 1), tuple(notes))


@cache
def layouts() -> dict[str, Any]:
    """The content of `tables.toml`."""
    return tomllib.loads((resources.files("annealfit.studies.report") / "tables.toml").read_text(encoding="utf-8"))


def main_table(spec: RunSpec) -> str:
    """The table that shows a run itself."""
    if spec.model is not None or spec.is_reading:
        return "evidence" if spec.model is None else "family"
    if spec.method in NETWORK_METHODS:
        return "filters"
    if spec.update_range is not None or spec.step is not None:
        return "range_study" if spec.update_range is not None else "step_study"
    return "digits" if spec.dataset == "digits" else "benchmark"


@dataclass(frozen=True)
class Group:
    """The runs that differ in nothing but their seed; failed ones are left out."""

    spec: RunSpec  # of the first seed
    records: tuple[Record, ...]

    @property
    def data(self) -> str:
        """The data set's name; that of the stated images says so, since they are other data."""
        return self.spec.dataset + _STATED * (self.spec.images == "stated")

    @property
    def departure(self) -> str:
        """What sets the runs apart from the settings of the table they belong to; empty if nothing does."""
        spec = self.spec
        settings = {"δ = {:g}": spec.update_range, "α = {:g}": spec.step, "{} iterations": spec.max_iter}
        parts = [form.format(value) for form, value in settings.items() if value is not None]
        usual = STUDY_SWEEPS if main_table(spec) == "digits" and spec.preset != "annealfit" else None
        if not self.is_study and spec.num_sweeps != usual:
            parts.insert(0, f"{spec.num_sweeps or 100} sweeps")
        return ", ".join(parts) if spec.method == "qubo" else ""

    @property
    def is_study(self) -> bool:
        """Whether the update range or the step is varied: its value is a column of the table, and no departure."""
        return main_table(self.spec) in ("range_study", "step_study")

    @property
    def is_papers(self) -> bool:
        """Whether the paper has numbers for these runs: a number is compared only where the settings are its own."""
        return not self.departure and (self.spec.method == CLASSICAL or self.spec.bits in BITS)

    @property
    def has_most_bits(self) -> bool:
        """Whether these runs stand for their preset: its own settings, and the most bits it has."""
        return self.spec.preset is not None and not self.departure and self.spec.bits == max(bits_of(self.spec.preset))

    @cached_property
    def _numbers(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for record in self.records:
            for name, number in numbers_of(record).items():
                found.setdefault(name, []).append(number)
        return found

    def values(self, column: str) -> list[float]:
        """The numbers of a table's column, one of every run that has it."""
        return self._numbers.get(column, [])

    def mean(self, column: str) -> float:
        """The mean of `values`."""
        return float(np.mean(self.values(column)))

    def cell(self, column: str) -> Cell:
        """The cell of a column: our mean and spread, and the paper's where the settings are its own."""
        key = self.spec.dataset, self.spec.label, column
        return mean_cell(column, self.values(column), paper_numbers().get(key) if self.is_papers else None)

    def names(self) -> Row:
        """The cells that name the group, and the number of its runs."""
        spec, departure = self.spec, f" ({self.departure})" if self.departure and not self.is_study else ""
        return {
            "dataset": Cell(dataset_title(spec.dataset)),
            "method": Cell(method_title(spec.label) + departure, spec.bits or (0 if spec.method == CLASSICAL else -1)),
            "preset": Cell(spec.preset or "–"),
            "images": Cell(spec.images),
            "model": Cell(spec.model or "–"),
            "runs": count_cell(len(self.records)),
            "update_range": Cell(f"δ = {spec.update_range or 0:g}", spec.update_range),
            "step": Cell(f"α = {spec.step or 0:g}", spec.step),
        }


def numbers_of(record: Record) -> dict[str, float]:
    """The numbers of a finished run by the columns of the tables: shares, the same in percent, and others."""
    found = record.test | {"train_accuracy": record.train.get("accuracy", math.nan)}
    found |= {f"class_{label}": recall for label, recall in enumerate(record.recall.tolist())}
    found["test_accuracy"] = found["accuracy"]
    history = {name: column for name, column in record.history.items() if len(column)}
    if "loss_change" in history:  # updates that raise the regularised loss
        found["raising"] = float(np.mean(history["loss_change"] > 0))
    found |= {f"{name}_percent": 100 * share for name, share in found.items()} | record.counts
    found |= {"loss": record.loss, "final_loss": record.cross_entropy, "seconds": record.seconds}
    if "gap" in history:  # of sampled energies to the lower bound that certifies them
        gaps = history["gap"].astype(float)
        # A gap as large as the bound itself means that no update at all (energy 0) would have been as good.
        bound = max(np.abs(history["lower_bound"]).mean(), 1e-300)
        means = {"first": gaps[0], "mean": gaps.mean(), "last": gaps[-1], "relative": gaps.mean() / bound}
        found |= {f"gap_{name}": float(mean) for name, mean in means.items()}
    return found


def method_title(label: str) -> str:
    """A method's name for readers."""
    known = {CLASSICAL: "Classical (SGD)", OPTIMUM: "Convex optimum"}
    return known.get(label) or f"QUBO {label.removeprefix('qubo_')}-bit"


def dataset_title(data: str) -> str:
    """A data set's name for readers, from its name or from `Group.data`."""
    name = data.removesuffix(_STATED)
    return DATASET_TITLES.get(name, name) + _OTHER_IMAGES * (name != data)


def presets_of(records: Iterable[Record]) -> list[str]:
    """The presets that were run."""
    seen = {record.run.preset for record in records}
    return [preset for preset in RUN_PRESETS if preset in seen]


def groups(records: Iterable[Record], *tables: str) -> list[Group]:
    """Finished runs of these tables, by default of digits and benchmark, by seed; in the paper's order."""
    found: dict[RunSpec, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.run.seed):
        if record.error is None and main_table(record.run) in (tables or ("digits", "benchmark")):
            found.setdefault(replace(record.run, seed=0), []).append(record)
    return [Group(found[key][0].run, tuple(found[key])) for key in sorted(found, key=_order)]


def by_dataset(found: Iterable[Group]) -> dict[str, list[Group]]:
    """The groups of each data set, by `Group.data`."""
    return {data: list(members) for data, members in groupby(found, key=lambda group: group.data)}


def _order(spec: RunSpec) -> tuple[Any, ...]:
    names, presets = [*DATASET_TITLES], [None, *RUN_PRESETS]
    place = names.index(spec.dataset) if spec.dataset in names else len(names)
    studied = (spec.update_range or 0, spec.step or 0, spec.max_iter or 0, spec.num_sweeps or 0)
    reading = IMAGES.index(spec.images), presets.index(spec.preset)
    model = MODELS.index(spec.model) if spec.model else 0
    return (place, spec.dataset, *reading, model, spec.bits or 0, spec.method, studied)


_NEAR = {True: "near", False: "far"}  # verdicts


def count_cell(count: int, paper: int | None = None) -> Cell:
    """A whole number, which must be the paper's exactly."""
    if paper is None:
        return Cell(f"{count:,}", count)
    off = count - paper
    return Cell(f"{count:,}", count, None, paper, f"{paper:,}", off, f"{off:+,}", _NEAR[off == 0])


def mean_cell(column: str, values: Sequence[float], paper: tuple[float, float | None] | None = None) -> Cell:
    """Mean ± sample standard deviation of a column's values; beside it the paper's, and the difference."""
    mean = float(np.mean(values)) if len(values) else math.nan
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    digits = 1 if column.endswith(("_percent", "_points")) else 3
    if column == "seconds":
        digits = 2 if mean < 10 else 0
    form = ".2g" if column.startswith("gap_") else f",.{digits}f"
    text = _with_spread(mean, spread, form)
    if paper is None:
        return Cell(text, mean, spread)
    papers, paper_spread = paper
    difference = mean - papers
    tolerance = NEAR_POINTS if digits == 1 else NEAR_POINTS / 100 if column in SCORES else NEAR_SHARE * abs(papers)
    told, verdict = signed(difference, digits), _NEAR[abs(difference) <= tolerance]
    if column == "seconds":  # a ratio says more than a difference
        faster, slower = (papers / mean, mean / papers) if mean > 0 else (math.inf, 0.0)
        told = f"{faster:,.0f}× faster" if faster >= 1.5 else f"{slower:.1f}× the time"
        form, verdict = ",.0f", ""
    paper_text = _with_spread(papers, paper_spread, form)
    return Cell(text, mean, spread, papers, paper_text, difference, told, verdict, paper_spread)


def _with_spread(mean: float, spread: float | None, form: str) -> str:
    if math.isnan(mean):
        return "–"
    return f"{mean:{form}}".replace("-", "−") + ("" if spread is None else f" ± {spread:{form}}")


def signed(value: float, digits: int = 1) -> str:
    """A number with its sign, and a real minus."""
    rounded = round(value, digits) + 0.0  # no "-0.0"
    return f"{rounded:+.{digits}f}".replace("-", "−")


@cache
def paper_numbers() -> dict[tuple[str, str, str], tuple[float, float | None]]:
    """The paper's means and spreads by data set, method and column of our tables."""
    found: dict[tuple[str, str, str], tuple[float, float | None]] = {}
    for row in paper_table("digits"):
        found |= {("digits", row["method"], name): (float(row[name]), None) for name in row if name != "method"}
    for row in paper_table("benchmark"):
        # The paper prints κ and MCC times 100.
        name, unit = (row["metric"], 100) if row["metric"] in SCORES else (f"{row['metric']}_percent", 1)
        found[row["dataset"], row["method"], name] = float(row["mean_percent"]) / unit, float(row["std_percent"]) / unit
    for row in paper_table("per_class_recall"):
        name = f"class_{row['class']}_percent"
        found[row["dataset"], row["method"], name] = float(row["mean_percent"]), float(row["std_percent"])
    for row in paper_table("execution_seconds"):
        method = f"qubo_{row['bits']}"
        found[row["dataset"], method, "seconds"] = float(row["mean_seconds"]), float(row["std_seconds"])
    return found


def _predictions_row(group: Group) -> Row:
    """Probability of the true class for one test image of each digit, of the first seed."""
    record, ticks = group.records[0], {True: "✓", False: "✗"}
    papers = {row["digit"]: row for row in paper_table("sample_predictions") if row["method"] == group.spec.label}
    cells = {f"digit_{digit}_percent": Cell("–") for digit in range(10)}
    for digit, probabilities in zip(record.sample_labels.tolist(), record.sample_probabilities, strict=True):
        value, theirs = 100 * float(probabilities[digit]), papers.get(str(digit)) if group.is_papers else None
        cell = Cell(f"{value:.1f} {ticks[int(probabilities.argmax()) == digit]}", value)
        if theirs:
            percent = float(theirs["probability_of_true_class_percent"])
            text = f"{percent:.1f} {ticks[theirs['correct'] == 'True']}"
            cell = Cell(cell.text, value, None, percent, text, value - percent, signed(value - percent))
        cells[f"digit_{digit}_percent"] = cell
    return cells


def _wins_row(group: Group, baselines: Mapping[str, Group]) -> Row | None:
    """On how many seeds QUBO training tests better than the classical baseline, and how sure that is."""
    dataset, baseline = group.spec.dataset, baselines.get(group.data)
    if baseline is None or not group.has_most_bits:
        return None
    gains, p = compare_pairs(group, baseline)
    if not gains:
        return None
    wins = sum(gain > 0 for gain in gains)
    won, is_significant = Cell(f"{wins} of {len(gains)}", wins), False
    if group.spec.bits in BITS and dataset in PAPER_WINS:
        papers, is_significant = PAPER_WINS[dataset], dataset in PAPER_SIGNIFICANT
        won = Cell(won.text, wins, None, papers, f"{papers} of 5", wins - papers, signed(wins - papers, 0))
    return {
        "wins": won,
        "gain_points": mean_cell("gain_points", [100 * gain for gain in gains]),
        "p": Cell(p_text(p), p),
        "p_paper": Cell("p < 0.05" if is_significant else "–"),
    }


def compare_pairs(group: Group, baseline: Group) -> tuple[list[float], float]:
    """Gains in test accuracy on the seeds that both have, and the p of the one-sided t-test that they are above 0.

    It is NaN where the test is not defined: it divides by the spread of the gains.
    """
    from scipy.stats import ttest_1samp

    theirs = {record.run.seed: record.test["accuracy"] for record in baseline.records}
    gains = [r.test["accuracy"] - theirs[r.run.seed] for r in group.records if r.run.seed in theirs]
    if len(gains) < 2 or np.ptp(gains) < 1e-9:  # rounding is no spread
        return gains, math.nan
    return gains, float(ttest_1samp(gains, 0.0, alternative="greater").pvalue)


def p_text(p: float) -> str:
    """A p-value as a reader wants it; a dash where there is none."""
    return "–" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _raising_row(group: Group) -> Row | None:
    """Share of the updates that raise the regularised loss; the paper gives a range."""
    if not group.values("raising"):
        return None
    cell, (low, high) = group.cell("raising_percent"), PAPER_RAISING_PERCENT
    if group.is_papers:
        mean = group.mean("raising_percent")
        off = min(mean - low, 0.0) + max(mean - high, 0.0)
        verdict = _NEAR[abs(off) <= NEAR_POINTS] if off >= -NEAR_POINTS else "better"
        papers = f"{low:.0f} to {high:.0f}"
        cell = Cell(cell.text, mean, cell.spread, papers, papers, off, signed(off), verdict)
    return {"raising_percent": cell}


def recall_pairs(group: Group) -> list[tuple[float, float]]:
    """Our mean recall of each class, and the paper's, in percent."""
    cells = [group.cell(f"class_{label}_percent") for label in range(10)]
    return [(float(c.value), float(c.paper)) for c in cells if c.value is not None and c.paper is not None]


def fit_of_recalls(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Mean absolute difference in points, and correlation over classes; NaN where one side has no spread."""
    if not pairs:
        return math.nan, math.nan
    ours, theirs = np.array(pairs).T
    varies = min(np.ptp(ours), np.ptp(theirs)) > 1e-9
    return float(np.abs(ours - theirs).mean()), float(np.corrcoef(ours, theirs)[0, 1]) if varies else math.nan


def recall_cells(pairs: Sequence[tuple[float, float]]) -> Row:
    """The fit of recalls as cells; dashes for NaN."""
    found = zip(("recall_difference", "recall_correlation"), fit_of_recalls(pairs), (".1f", ".2f"), strict=True)
    return {name: Cell(_with_spread(value, None, form), value) for name, value, form in found}


def _group_rows(records: Sequence[Record]) -> Iterator[tuple[str, list[Row]]]:
    """The rows of the tables that have one per group of their `runs`."""
    baselines = {group.data: group for group in groups(records) if group.spec.method == CLASSICAL}
    # Cells that are more than a mean; None leaves a group out.
    special: dict[str, Callable[[Group], Row | None]] = {
        "predictions": _predictions_row,
        "wins": lambda group: _wins_row(group, baselines),
        "raising": _raising_row,
        "recall": lambda group: recall_cells(recall_pairs(group)),
        "gap": lambda group: {} if group.values("gap_first") else None,
    }
    for name, layout in layouts().items():
        rows = []
        for group in (group for part in layout.get("runs", ()) for group in groups(records, part)):
            cells = special[name](group) if name in special else {}
            if cells is not None:
                row = group.names() | cells
                rows.append(row | {key: group.cell(key) for key, *_ in layout["columns"] if key not in row})
        yield name, rows


# Tables 1 and 5: the parameter, the paper's value for digits and for the benchmark, and the value of a record.
_SETTINGS: tuple[tuple[str, str, str, Callable[[Record], Any]], ...] = (
    ("Images", "digits", "MNIST and others", lambda record: record.run.images),
    ("Image resolution", "8×8", "8×8", lambda record: "×".join(map(str, record.sample_images.shape[1:]))),
    ("Test images", "540", "500", lambda record: int(record.confusion.sum())),
    ("Classes", "10", "10", lambda record: len(record.confusion)),
    ("Random seeds", "not said", "42, 43, 44, 45, 46", lambda record: record.run.seed),
    ("Bits", "5, 10, 15, 20", "5, 10, 15, 20", lambda record: record.run.bits),
    ("Iterations", "1000", "1000", lambda record: record.iterations),
    ("Sweeps", "1000", "100", lambda record: record.run.num_sweeps or 100),
)


def _settings_rows(records: Sequence[Record]) -> list[Row]:
    """The paper's settings, and those in the records of QUBO runs."""
    rows = []
    for study in ("digits", "benchmark"):
        found = [r for group in groups(records, study) if group.spec.method == "qubo" for r in group.records]
        for parameter, digits, benchmark, read in _SETTINGS if found else ():
            papers = digits if study == "digits" else benchmark
            words = {"study": study.capitalize(), "parameter": parameter, "paper": papers}
            for preset in presets_of(records):
                seen = sorted({read(record) for record in found if record.run.preset == preset})
                # Runs that stop by themselves have many numbers of iterations: the ends alone.
                words[preset] = f"{seen[0]} to {seen[-1]}" if len(seen) > 6 else ", ".join(map(str, seen)) or "–"
            rows.append({name: Cell(word) for name, word in words.items()})
    return rows


def _size_rows(*, compared: bool) -> Iterator[Row]:
    """Variables and couplings of one class's problem by bits, and what fits a chip."""
    papers = {int(row["bits"]): row for row in paper_table("qubo_size")} if compared else {}
    claims = {int(row["bits"]): row["claim"] for row in paper_table("hardware_claims")}
    for bits in sorted({*BITS, *OUR_BITS}):
        n, theirs = N_PARAMETERS * bits, papers.get(bits)
        couplings = n * (n - 1) // 2
        fits = {"within_qubits": n <= PEGASUS_QUBITS, "within_couplers": couplings <= PEGASUS_COUPLERS}
        fits |= {f"clique_{chip.lower()}": n <= size for chip, size in LARGEST_CLIQUES.items()}
        yield {name: Cell("yes" if fit else "no") for name, fit in fits.items()} | {
            "bits": count_cell(bits),
            "variables": count_cell(n, int(theirs["logical_variables"]) if theirs else None),
            "couplings": count_cell(couplings, int(theirs["quadratic_terms"]) if theirs else None),
            "paper_claim": Cell(claims.get(bits, "–")),
        }


TEST = "test_accuracy_percent"  # the column that most claims are about
_HOLDS, _BETTER, _FAILS = "holds", "better", "does not hold"
_VERDICTS = {_HOLDS: "near", _BETTER: "better", _FAILS: "far"}


def claim_rows(records: Sequence[Record]) -> list[Row]:
    """What the paper says in words, and whether it holds here under each preset."""
    there = {(record.run.images, record.run.preset) for record in records}
    readings = {name: reading for name, reading in READINGS.items() if reading in there}
    answers = {name: _check_claims(records, *reading) for name, reading in readings.items()}
    rows: list[Row] = []
    for key, claim, papers in layouts()["claims"]["rows"] if answers else ():
        rows.append(row := {"claim": Cell(claim), "paper": Cell(papers)})
        for name, own in answers.items():
            word, evidence = own.get(key, ("not run", ""))
            row[name] = Cell(f"{word}: {evidence}" if evidence else word, word, verdict=_VERDICTS.get(word, ""))
    return rows


def _from_to(values: Sequence[float], digits: int = 0) -> str:
    """The least and the greatest value; a single number where they read the same."""
    first, last = (f"{value:.{digits}f}".replace("-", "−") for value in (min(values), max(values)))
    return first if first == last else f"{first} to {last}"


def _check_claims(records: Sequence[Record], images: str, preset: str) -> dict[str, tuple[str, str]]:
    """The answer to every claim that can be judged by the runs of a preset on one kind of images."""
    found = [group for group in groups(records) if not group.departure and group.spec.images == images]
    baselines = {group.spec.dataset: group for group in found if group.spec.method == CLASSICAL}
    own = [group for group in found if group.spec.preset == preset]
    by_bits = {bits: {g.spec.dataset: g for g in own if g.spec.bits == bits} for bits in (*bits_of(preset), 5, 10)}
    most = {name: group for name, group in by_bits[max(bits_of(preset))].items() if name in baselines}
    answers: dict[str, tuple[str, str]] = {}

    def whether(key: str, holds: bool, evidence: str, otherwise: str = _FAILS) -> None:
        answers[key] = (_HOLDS if holds else otherwise), evidence

    means = [by_bits[bits]["digits"].mean(TEST) for bits in bits_of(preset) if "digits" in by_bits[bits]]
    if len(means) == len(bits_of(preset)):
        evidence = " → ".join(f"{mean:.1f}" for mean in means) + " %"
        if max(means) - means[0] < 1:
            answers["grows"] = _BETTER, f"{evidence}, the fewest are enough"
        else:
            whether("grows", all(a < b for a, b in itertools.pairwise(means)), evidence)
    if "digits" in most:
        ours, theirs = most["digits"], baselines["digits"]
        gain = ours.mean(TEST) - theirs.mean(TEST)
        whether("accuracy", gain > 0, f"{signed(gain)} points")
        entropies = [group.mean("final_loss") for group in (ours, theirs)]
        whether("entropy", entropies[0] < entropies[1], "{:.3f} against {:.3f}".format(*entropies))
    if by_bits[5]:
        means = [group.mean(TEST) for group in by_bits[5].values()]
        whether("five_bits", max(means) <= 40, f"{_from_to(means)} % test accuracy", _BETTER)
    gains = {name: g.mean(TEST) - baselines[name].mean(TEST) for name, g in by_bits[10].items() if name in baselines}
    if gains:
        name = min(gains, key=lambda name: gains[name])
        whether("ten_bits", gains[name] >= -10, f"at worst {signed(gains[name])} points, {dataset_title(name)}")
    chances = {name: compare_pairs(most[name], baselines[name])[1] for name in PAPER_SIGNIFICANT if name in most}
    if len(chances) == len(PAPER_SIGNIFICANT) and not any(map(math.isnan, chances.values())):
        evidence = ", ".join(f"{dataset_title(name)} p {p_text(p)}" for name, p in chances.items())
        whether("significant", max(chances.values()) < 0.05, evidence)
    shares = [group.mean("raising_percent") for group in own if group.values("raising")]
    if shares:
        low, high = PAPER_RAISING_PERCENT
        evidence = "none do" if max(shares) == 0 else f"{_from_to(shares)} % do"
        within = low <= min(shares) and max(shares) <= high
        whether("raising", within, evidence, _BETTER if max(shares) < low else _FAILS)
    ratios = [group.mean("seconds") / baselines[name].mean("seconds") for name, group in most.items()]
    if ratios:
        whether("seconds", min(ratios) >= 100, f"{_from_to(ratios, 1)} × its time", _BETTER)
    return answers


def agreement_rows(records: Sequence[Record]) -> list[Row]:
    """How many of the paper's percentages come out, and how close recalls are: by study, images, and preset if any."""
    kinds: dict[tuple[str, str, str | None], list[Group]] = {}
    for group in groups(records):
        kinds.setdefault((main_table(group.spec), group.spec.images, group.spec.preset), []).append(group)
    compared = [name for name, _, *kind in layouts()["benchmark"]["columns"] if kind == ["compared"]]
    rows = []
    for (study, images, preset), members in kinds.items():
        cells = [(group.cell(name), 100 if name in SCORES else 1) for group in members for name in compared]
        points = [scale * abs(cell.difference) for cell, scale in cells if cell.difference is not None]
        if not points:
            continue
        deviations = [
            abs(cell.difference) / cell.paper_spread for cell, _ in cells if cell.difference and cell.paper_spread
        ]
        row = {
            "study": Cell(study.capitalize()),
            "method": Cell("QUBO" if preset else method_title(CLASSICAL)),
            "preset": Cell(preset or "–"),
            "images": Cell(images),
            "percentages": count_cell(len(points)),
            "within_2.5": count_cell(sum(point <= 2.5 for point in points)),
            "within_5": count_cell(sum(point <= NEAR_POINTS for point in points)),
        }
        if deviations:
            row["within_2_std"] = count_cell(sum(deviation <= 2 for deviation in deviations))
        if recalls := [pairs for pairs in map(recall_pairs, members) if pairs]:
            pairs = [pair for own in recalls for pair in own]
            row |= recall_cells(pairs) | {"recalls": count_cell(len(pairs))}
            correlations = [fit[1] for fit in map(fit_of_recalls, recalls) if not math.isnan(fit[1])]
            row["recall_correlation"] = Cell(_from_to(correlations, 2) if correlations else "–")
        rows.append(row)
    return rows


def side_by_side(
    found: Sequence[Group], prefixes: Mapping[str, str], columns: Mapping[str, str]
) -> dict[tuple[str, str | None], Row]:
    """A row for each data set and model, with these columns of each method behind its prefix."""
    rows: dict[tuple[str, str | None], Row] = {}
    for group in found:
        names = group.names()
        row = rows.setdefault((group.data, group.spec.model), names)
        row["runs"] = min(row["runs"], names["runs"], key=lambda cell: float(cell.text))
        row |= {prefixes[group.spec.method] + name: group.cell(column) for name, column in columns.items()}
    return rows


def all_tables(records: Sequence[Record], asked: Collection[RunSpec] = ()) -> list[Table]:
    """Every table that has rows, in the order of `tables.toml`; `asked` are the runs that should be there."""
    from annealfit.studies import evidence, family  # which are made of the groups of this module

    columns = {"test_percent": "test_accuracy_percent", "loss": "loss", "seconds": "seconds"}
    of_filters = side_by_side(groups(records, "filters"), {name: f"{name}_" for name in NETWORK_METHODS}, columns)
    errors = [(record.run.id, record.error) for record in records if record.error is not None]
    rows = {
        **dict(_group_rows(records)),
        "claims": claim_rows(records),
        "agreement": agreement_rows(records),
        "settings": _settings_rows(records),
        "sizes": [*_size_rows(compared=True)],
        "hardware": [*_size_rows(compared=False)],
        "filters": [*of_filters.values()],
        "evidence": evidence.rows(records),
        "family": family.rows(records),
        "failures": [{"run": Cell(run), "error": Cell(error)} for run, error in errors],
    }
    notes = {"evidence": evidence.notes(records) if rows["evidence"] else []}
    return [
        make_table(name, rows[name], (*_coverage(layout.get("runs", ()), records, asked), *notes.get(name, ())))
        for name, layout in layouts().items()
        if rows[name]
    ]


def _coverage(tables: Sequence[str], records: Sequence[Record], asked: Collection[RunSpec]) -> list[str]:
    """What is missing of the runs of these tables that were asked for, preset by preset."""
    found = {record.run: record.error is None for record in records}
    own = {spec for spec in {*asked, *found} if main_table(spec) in tables}
    notes = []
    for title, (images, preset) in READINGS.items():
        planned = {spec for spec in own if spec.images == images and spec.preset in (None, preset)}
        lost, broken = len(planned - {*found}), sum(not found.get(spec, True) for spec in planned)
        if lost or broken:
            notes.append(f"{title}: of {len(planned)} runs, {lost} are missing and {broken} failed.")
    return notes


def to_values(table: Table) -> list[dict[str, Any]]:
    """The rows as plain data; after a compared column come its spread, the paper's number and the difference."""
    rows = []
    for row in table.rows:
        rows.append(values := dict[str, Any]())
        for column, cell in zip(table.columns, row, strict=True):
            values[column.name] = cell.value if column.numeric else cell.text
            if column.compared:
                numbers = {"std": cell.spread, "paper": cell.paper, "difference": cell.difference}
                values |= {f"{column.name}_{part}": number for part, number in numbers.items()}
    return list(without_nan(rows))


def to_csv(table: Table) -> str:
    """The rows of `to_values` as CSV."""
    return csv_text(to_values(table))
