"""What the paper says in words, checked against the records; and what the page says in its first sentence and plot."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from annealfit.studies.paper_tables import bits_of
from annealfit.studies.records import CLASSICAL, Record
from annealfit.studies.report import tables
from annealfit.studies.report.tables import Cell, Column, Group, Row, Table, dataset_title, presets_of, signed

_TEST = "test_accuracy_percent"
_HOLDS, _BETTER, _FAILS = "holds", "better", "does not hold"
_VERDICTS = {_HOLDS: "near", _BETTER: "better", _FAILS: "far"}
_Answers = dict[str, tuple[str, str]]  # by the claim's key: one of these words, and the evidence


def claims_table(records: Sequence[Record]) -> Table:
    """What the paper says in words, and whether it holds here under each preset."""
    presets = presets_of(records)
    answers = {preset: _check_claims(records, preset) for preset in presets}
    rows: list[Row] = []
    for key, claim, papers in tables.layouts()["claims"]["rows"] if presets else ():
        row = {"claim": Cell(claim), "paper": Cell(papers)}
        for preset in presets:
            word, evidence = answers[preset].get(key, ("not run", ""))
            row[preset] = Cell(f"{word}: {evidence}" if evidence else word, word, verdict=_VERDICTS.get(word, ""))
        rows.append(row)
    return tables.make_table("claims", rows, [Column(preset, preset) for preset in presets])


def _from_to(values: Sequence[float], digits: int = 0) -> str:
    """The least and the greatest value; a single number where they read the same.

    >>> _from_to([0.1, 0.2]), _from_to([1.04, 2.5], 1)
    ('0', '1.0 to 2.5')
    """
    first, last = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return first if first == last else f"{first} to {last}"


def _check_claims(records: Sequence[Record], preset: str) -> _Answers:
    """The answer to every claim that can be judged by the runs of a preset."""
    found = [group for group in tables.groups(records) if not group.departure]
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
    """The classical baseline and each preset's most bits, for every data set."""
    found = tables.groups(records)
    return tables.by_dataset([group for group in found if group.spec.method == CLASSICAL or group.has_most_bits])


def opening_sentence(records: Sequence[Record]) -> str:
    """What a reader should take away, counted from the records."""
    sets = list(leading_groups(records).values())
    means = [{group.spec.preset: group.mean(_TEST) for group in found} for found in sets]
    better = [own["annealfit"] > own[None] for own in means if "annealfit" in own and None in own]
    parts, printed = [], []
    if better:
        parts.append(f"with {max(bits_of('annealfit'))} bits each they test better than SGD on {_counted(better)}")
    for preset in presets_of(records):
        cells = [group.cell(_TEST) for found in sets for group in found if group.spec.preset == preset]
        close = [abs(cell.difference) <= tables.NEAR_POINTS for cell in cells if cell.difference is not None]
        if close:
            printed.append(f"{_counted(close)} ({preset})")
    if printed:
        within = f"the paper's 20 bits come within {tables.NEAR_POINTS:g} points of its own test accuracy"
        parts.append(f"{within} on {' and '.join(printed)}")
    told = "; ".join(parts)
    return f"Image classifiers whose weights are found by annealing{': ' + told if told else ''}."


def _counted(answers: Sequence[bool]) -> str:
    """How many are true, in words.

    >>> _counted([True, False]), _counted([True, True]), _counted([False]), _counted([True])
    ('1 of 2 data sets', 'all 2 data sets', '0 of 1 data set', 'the one data set that was run')
    """
    if list(answers) == [True]:
        return "the one data set that was run"
    noun = "data set" if len(answers) == 1 else "data sets"
    return f"all {len(answers)} {noun}" if all(answers) else f"{sum(answers)} of {len(answers)} {noun}"
