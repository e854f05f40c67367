"""What the paper says in words, checked against the records; and what the page says in its first sentence and plot."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from annealfit.studies.paper_tables import BITS, OUR_BITS
from annealfit.studies.records import CLASSICAL, Record
from annealfit.studies.report import tables
from annealfit.studies.report.tables import Cell, Column, Group, Table, dataset_title, most_bits, presets_of, signed

_TEST = "test_accuracy_percent"
_HOLDS, _BETTER, _FAILS, _NOT_RUN = "holds", "better", "does not hold", "not run"
_VERDICTS = {_HOLDS: "near", _BETTER: "better", _FAILS: "far", _NOT_RUN: ""}
_Found = dict[tuple[str, str | None, str], Group]  # by data set, preset and label
_Answer = tuple[str, str] | None  # one of these words and the evidence; None where it was not run


def claims_table(records: Sequence[Record]) -> Table:
    """What the paper says in words, and whether it holds here under each preset."""
    found = {(g.spec.dataset, g.spec.preset, g.spec.label): g for g in tables.groups(records) if not g.departure}
    presets = presets_of(records)
    rows = []
    for claim, papers, check in _CLAIMS if presets else ():
        row = {"claim": tables.text_cell(claim), "paper": tables.text_cell(papers)}
        for preset in presets:
            word, evidence = check(found, preset) or (_NOT_RUN, "")
            row[preset] = Cell(f"{word}: {evidence}" if evidence else word, word, verdict=_VERDICTS[word])
        rows.append(row)
    return tables.make_table("claims", rows, [Column(preset, preset) for preset in presets])


def _whether(holds: bool, evidence: str) -> _Answer:
    return _HOLDS if holds else _FAILS, evidence


def _from_to(values: Sequence[float], digits: int = 0) -> str:
    """The least and the greatest value; a single number where they read the same.

    >>> _from_to([0.1, 0.2]), _from_to([1.04, 2.5], 1)
    ('0', '1.0 to 2.5')
    """
    first, last = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return first if first == last else f"{first} to {last}"


def _pairs(found: _Found, preset: str, label: str | None = None) -> dict[str, tuple[Group, Group]]:
    """Data set → (the preset's most bits or the method named, the classical baseline), where both were run."""
    label = label or f"qubo_{most_bits(preset)}"
    return {
        dataset: (group, found[dataset, None, CLASSICAL])
        for (dataset, a_preset, a_label), group in found.items()
        if (a_preset, a_label) == (preset, label) and (dataset, None, CLASSICAL) in found
    }


def _grows_with_bits(found: _Found, preset: str) -> _Answer:
    bits = OUR_BITS if preset == "annealfit" else BITS
    means = [found[key].mean(_TEST) for k in bits if (key := ("digits", preset, f"qubo_{k}")) in found]
    if len(means) < len(bits):
        return None
    evidence = " → ".join(f"{mean:.1f}" for mean in means) + " %"
    if max(means) - means[0] < 1:
        return _BETTER, f"{evidence}, the fewest are enough"
    return _whether(all(a < b for a, b in itertools.pairwise(means)), evidence)


def _beats_classical_on_digits(found: _Found, preset: str) -> _Answer:
    pair = _pairs(found, preset).get("digits")
    if pair is None:
        return None
    gain = pair[0].mean(_TEST) - pair[1].mean(_TEST)
    return _whether(gain > 0, f"{signed(gain)} points")


def _lower_loss_on_digits(found: _Found, preset: str) -> _Answer:
    pair = _pairs(found, preset).get("digits")
    if pair is None:
        return None
    ours, theirs = (group.mean("cross_entropy") for group in pair)
    return _whether(ours < theirs, f"{ours:.3f} against {theirs:.3f}")


def _five_bits_fail(found: _Found, preset: str) -> _Answer:
    means = [group.mean(_TEST) for (_, a, label), group in found.items() if (a, label) == (preset, "qubo_5")]
    if not means:
        return None
    return _HOLDS if max(means) <= 40 else _BETTER, f"{_from_to(means)} % test accuracy"


def _ten_bits_compete(found: _Found, preset: str) -> _Answer:
    pairs = _pairs(found, preset, "qubo_10")
    if not pairs:
        return None
    gain, name = min((ours.mean(_TEST) - theirs.mean(_TEST), name) for name, (ours, theirs) in pairs.items())
    return _whether(gain >= -10, f"at worst {signed(gain)} points, {dataset_title(name)}")


def _significant_wins(found: _Found, preset: str) -> _Answer:
    pairs = _pairs(found, preset)
    chances = {
        name: tables.paired_p(*tables.paired_accuracies(*pairs[name]))
        for name in tables.PAPER_SIGNIFICANT
        if name in pairs
    }
    if len(chances) < len(tables.PAPER_SIGNIFICANT) or any(map(math.isnan, chances.values())):
        return None
    evidence = ", ".join(f"{dataset_title(name)} p {tables.p_text(p)}" for name, p in chances.items())
    return _whether(all(p < 0.05 for p in chances.values()), evidence)


def _updates_raise_the_loss(found: _Found, preset: str) -> _Answer:
    own = [group for (_, a, _), group in found.items() if a == preset and group.values("raising")]
    shares = [group.mean("raising_percent") for group in own]
    if not shares:
        return None
    low, high = tables.PAPER_RAISING_PERCENT
    evidence = "none do" if max(shares) == 0 else f"{_from_to(shares)} % do"
    if max(shares) < low:
        return _BETTER, evidence
    return _whether(low <= min(shares) and max(shares) <= high, evidence)


def _slower_than_classical(found: _Found, preset: str) -> _Answer:
    ratios = [ours.mean("seconds") / theirs.mean("seconds") for ours, theirs in _pairs(found, preset).values()]
    if not ratios:
        return None
    return _HOLDS if min(ratios) >= 100 else _BETTER, f"{_from_to(ratios, 1)} × its time"


_CLAIMS: tuple[tuple[str, str, Callable[[_Found, str], _Answer]], ...] = (
    ("Test accuracy on digits grows with every step of bits", "33.0 → 77.4 → 80.0 → 81.5 %", _grows_with_bits),
    ("The most bits beat the classical baseline on digits", "+1.7 points", _beats_classical_on_digits),
    ("The most bits end at a lower cross-entropy on digits", "0.671 against 0.872", _lower_loss_on_digits),
    ("5 bits fail on every data set (40 % or less)", "14 to 37 % test accuracy", _five_bits_fail),
    ("10 bits come within 10 points of the baseline everywhere", "at worst −9.1 points, KMNIST", _ten_bits_compete),
    ("The gain on MNIST and Fashion-MNIST is significant", "p < 0.05 on both", _significant_wins),
    ("43 to 46 % of updates raise the loss", "43 to 46 %", _updates_raise_the_loss),
    ("QUBO training is 100 or more times slower than SGD", "100 to 400 × its time", _slower_than_classical),
)


@dataclass(frozen=True)
class Dot:
    """Test accuracies in percent of one method on one data set: ours over seeds, and the paper's where it has one."""

    method: str
    preset: str | None
    bits: int  # 0 for a method without
    mean: float
    lowest: float
    highest: float
    paper: float | None


def dots_by_dataset(records: Sequence[Record]) -> dict[str, list[Dot]]:
    """The classical baseline and each preset's most bits, for every data set."""
    found: dict[str, list[Dot]] = {}
    for group in tables.groups(records):
        spec, percents = group.spec, group.values(_TEST)
        if spec.method == CLASSICAL or group.has_most_bits:
            ends = min(percents), max(percents)
            theirs, _ = tables.paper_numbers().get((spec.dataset, spec.label, _TEST), (None, None))
            dot = Dot(
                tables.method_title(spec.label),
                spec.preset,
                spec.bits or 0,
                group.mean(_TEST),
                *ends,
                theirs,
            )
            found.setdefault(spec.dataset, []).append(dot)
    return found


def opening_sentence(records: Sequence[Record]) -> str:
    """What a reader should take away, counted from the records."""
    sets, presets = list(dots_by_dataset(records).values()), presets_of(records)
    means = [{dot.preset: dot.mean for dot in dots} for dots in sets]
    better = [own["annealfit"] > own[None] for own in means if "annealfit" in own and None in own]
    parts = []
    if better:
        parts.append(f"with {most_bits('annealfit')} bits each they test better than SGD on {_counted(better)}")
    printed = []
    for preset in presets:
        compared = [dot for dots in sets for dot in dots if dot.preset == preset and dot.paper is not None]
        close = [abs(dot.mean - (dot.paper or 0)) <= tables.NEAR_POINTS for dot in compared]
        if close and preset != "annealfit":
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
