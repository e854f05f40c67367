"""What the paper says in words, checked against the records; and what the page says in its first sentence and plot."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from annealfit.studies.paper_tables import bits_of
from annealfit.studies.records import CLASSICAL, IMAGES, Record
from annealfit.studies.report import tables
from annealfit.studies.report.tables import Cell, Column, Group, Row, Table, dataset_title, signed

_TEST = "test_accuracy_percent"
_HOLDS, _BETTER, _FAILS = "holds", "better", "does not hold"
_VERDICTS = {_HOLDS: "near", _BETTER: "better", _FAILS: "far"}
_CLAIM = (
    "The paper trains the last layer of a small convolutional network by annealing and reports that 5 bits per weight "
    "fail, 10 nearly work, and 15 and 20 match or beat gradient descent."
)
_READINGS = {"published": "inferred from its recalls", "stated": "that its text names"}
_Answers = dict[str, tuple[str, str]]  # by the claim's key: one of these words, and the evidence


def claims_table(records: Sequence[Record]) -> Table:
    """What the paper says in words, and whether it holds here under each preset."""
    readings = tables.readings_of(records)
    answers = {name: _check_claims(records, *reading) for name, reading in readings.items()}
    rows: list[Row] = []
    for key, claim, papers in tables.layouts()["claims"]["rows"] if readings else ():
        row = {"claim": Cell(claim), "paper": Cell(papers)}
        for name in readings:
            word, evidence = answers[name].get(key, ("not run", ""))
            row[name] = Cell(f"{word}: {evidence}" if evidence else word, word, verdict=_VERDICTS.get(word, ""))
        rows.append(row)
    return tables.make_table("claims", rows, [Column(name, name) for name in readings])


def _from_to(values: Sequence[float], digits: int = 0) -> str:
    """The least and the greatest value; a single number where they read the same.

    >>> _from_to([0.1, 0.2]), _from_to([1.04, 2.5], 1)
    ('0', '1.0 to 2.5')
    """
    first, last = (f"{value:.{digits}f}".replace("-", "−") for value in (min(values), max(values)))
    return first if first == last else f"{first} to {last}"


def _check_claims(records: Sequence[Record], images: str, preset: str) -> _Answers:
    """The answer to every claim that can be judged by the runs of a preset on one kind of images."""
    found = [group for group in tables.groups(records) if not group.departure and group.spec.images == images]
    baselines = {group.spec.dataset: group for group in found if group.spec.method == CLASSICAL}
    own = [group for group in found if group.spec.preset == preset]
    by_bits = {bits: {g.spec.dataset: g for g in own if g.spec.bits == bits} for bits in (*bits_of(preset), 5, 10)}
    most = {name: group for name, group in by_bits[max(bits_of(preset))].items() if name in baselines}
    answers: _Answers = {}

    def whether(key: str, holds: bool, evidence: str, otherwise: str = _FAILS) -> None:
        answers[key] = (_HOLDS if holds else otherwise), evidence

    means = [by_bits[bits]["digits"].mean(_TEST) for bits in bits_of(preset) if "digits" in by_bits[bits]]
    if len(means) == len(bits_of(preset)):
        evidence = " → ".join(f"{mean:.1f}" for mean in means) + " %"
        if max(means) - means[0] < 1:
            answers["grows"] = _BETTER, f"{evidence}, the fewest are enough"
        else:
            whether("grows", all(a < b for a, b in itertools.pairwise(means)), evidence)
    if "digits" in most:
        ours, theirs = most["digits"], baselines["digits"]
        gain = ours.mean(_TEST) - theirs.mean(_TEST)
        whether("accuracy", gain > 0, f"{signed(gain)} points")
        entropies = [group.mean("cross_entropy") for group in (ours, theirs)]
        whether("entropy", entropies[0] < entropies[1], "{:.3f} against {:.3f}".format(*entropies))
    if by_bits[5]:
        means = [group.mean(_TEST) for group in by_bits[5].values()]
        whether("five_bits", max(means) <= 40, f"{_from_to(means)} % test accuracy", _BETTER)
    gains = [
        (g.mean(_TEST) - baselines[name].mean(_TEST), name) for name, g in by_bits[10].items() if name in baselines
    ]
    if gains:
        gain, name = min(gains)
        whether("ten_bits", gain >= -10, f"at worst {signed(gain)} points, {dataset_title(name)}")
    chances = [
        (name, tables.paired_p(tables.paired_gains(most[name], baselines[name])))
        for name in tables.PAPER_SIGNIFICANT
        if name in most
    ]
    if len(chances) == len(tables.PAPER_SIGNIFICANT) and not any(math.isnan(p) for _, p in chances):
        evidence = ", ".join(f"{dataset_title(name)} p {tables.p_text(p)}" for name, p in chances)
        whether("significant", all(p < 0.05 for _, p in chances), evidence)
    shares = [group.mean("raising_percent") for group in own if group.values("raising")]
    if shares:
        low, high = tables.PAPER_RAISING_PERCENT
        evidence = "none do" if max(shares) == 0 else f"{_from_to(shares)} % do"
        within = low <= min(shares) and max(shares) <= high
        whether("raising", within, evidence, _BETTER if max(shares) < low else _FAILS)
    ratios = [group.mean("seconds") / baselines[name].mean("seconds") for name, group in most.items()]
    if ratios:
        whether("seconds", min(ratios) >= 100, f"{_from_to(ratios, 1)} × its time", _BETTER)
    return answers


def leading_groups(records: Sequence[Record]) -> dict[str, list[Group]]:
    """The classical baseline and each preset's most bits, for every data set; the published images if there are any."""
    found = [g for g in tables.groups(records) if g.spec.method == CLASSICAL or g.has_most_bits]
    first = next((images for images in IMAGES if any(group.spec.images == images for group in found)), "")
    return tables.by_dataset([group for group in found if group.spec.images == first])


@dataclass(frozen=True)
class Agreement:
    """How close the runs of a study come to the paper's numbers: the baseline's, or those of a preset."""

    study: str
    images: str
    preset: str | None  # None is the baseline
    differences: list[float]  # of percentages, in points
    deviations: list[float]  # the same in the paper's standard deviations, where it gives them
    recalls: list[list[tuple[float, float]]]  # of each data set and method: our recall of a class and the paper's

    @property
    def name(self) -> str:
        """What the runs are called."""
        return self.preset or tables.method_title(CLASSICAL)

    def within(self, points: float) -> int:
        """How many percentages are so close."""
        return sum(abs(difference) <= points for difference in self.differences)


def agreements(records: Sequence[Record]) -> list[Agreement]:
    """The agreement of every study, kind of images, and preset or baseline that the paper has numbers for."""
    kinds: dict[tuple[str, str, str | None], list[Group]] = {}
    for group in tables.groups(records):
        kinds.setdefault((tables.main_table(group.spec), group.spec.images, group.spec.preset), []).append(group)
    found = []
    for kind, members in kinds.items():
        cells = [(group.cell(name), scale) for group in members for name, scale in tables.PERCENTAGES.items()]
        points = [
            (scale * c.difference, scale * (c.paper_spread or 0)) for c, scale in cells if c.difference is not None
        ]
        if points:
            differences, deviations = [d for d, _ in points], [d / spread for d, spread in points if spread]
            recalls = [pairs for pairs in map(tables.recall_pairs, members) if pairs]
            found.append(Agreement(*kind, differences, deviations, recalls))
    return found


def agreement_table(records: Sequence[Record]) -> Table:
    """How many of the paper's percentages come out, and how close recalls are."""
    rows = []
    for own in agreements(records):
        row = {
            "study": Cell(own.study.capitalize()),
            "method": Cell("QUBO" if own.preset else own.name),
            "preset": Cell(own.preset or "–"),
            "images": Cell(own.images),
            "percentages": tables.count_cell(len(own.differences)),
            "within_2.5": tables.count_cell(own.within(2.5)),
            "within_5": tables.count_cell(own.within(tables.NEAR_POINTS)),
        }
        if own.deviations:
            row["within_2_std"] = tables.count_cell(sum(abs(deviation) <= 2 for deviation in own.deviations))
        if own.recalls:
            pairs = [pair for pairs in own.recalls for pair in pairs]
            difference, _ = tables.fit_of_recalls(pairs)
            row["recalls"] = tables.count_cell(len(pairs))
            row["recall_difference"] = Cell(f"{difference:.1f}", difference)
            correlations = [tables.fit_of_recalls(pairs)[1] for pairs in own.recalls]
            shown = [correlation for correlation in correlations if not math.isnan(correlation)]
            row["recall_correlation"] = Cell(_from_to(shown, 2) if shown else "–")
        rows.append(row)
    return tables.make_table("agreement", rows)


def opening_sentences(records: Sequence[Record]) -> list[str]:
    """What the paper claims, whether its tables come out and under which reading, what decides, what one bit does.

    All but the first is counted from the records; a sentence is left out where its runs are missing.
    """
    told, close = [_CLAIM], [own for own in agreements(records) if own.study == "benchmark"]
    for images, reading in _READINGS.items():
        own = [found for found in close if found.images == images]
        counts = [f"{found.name} {found.within(tables.NEAR_POINTS)} of {len(found.differences)}" for found in own]
        if counts:
            within = f"percentages of its benchmark within {tables.NEAR_POINTS:g} points"
            told.append(f"With the images and filters {reading} ({images}), {within}: {', '.join(counts)}.")
    sets = leading_groups(records)
    shown = [group for group in tables.groups(records) if group.data in sets and not group.departure]
    means = {(group.data, group.spec.preset, group.spec.bits): group.mean(_TEST) for group in shown}
    digits = {
        preset: " → ".join(
            f"{mean:.1f}" for (data, own, _), mean in means.items() if "digits" in data and own == preset
        )
        for preset in ("literal", "matched")
    }
    if all(digits.values()):
        told.append(
            "The precision that it asks for is a matter of temperature: on digits 5 to 20 bits test at "
            f"{digits['literal']} % as printed (literal) and at {digits['matched']} % with a colder anneal (matched)."
        )
    gains = [means[data, "annealfit", 1] - means[data, None, None] for data in sets if (data, "annealfit", 1) in means]
    if gains:
        better = f"{sum(gain > 0 for gain in gains)} of {len(gains)}"
        told.append(
            "With this library's settings (annealfit) one bit is enough: it tests better than SGD on "
            f"{better} data sets, by {signed(min(gains))} to {signed(max(gains))} points."
        )
    return told
