"""What the paper says in words, put to the records."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from annealfit.studies.paper_tables import BITS, OUR_BITS
from annealfit.studies.records import CLASSICAL, Record
from annealfit.studies.report.cells import (
    Cell,
    Column,
    Group,
    Table,
    dataset_title,
    groups,
    presets_of,
    signed,
    text_cell,
)
from annealfit.studies.report.comparisons import (
    PAPER_RAISING_PERCENT,
    PAPER_SIGNIFICANT,
    contender_bits,
    p_text,
    paired_accuracies,
    paired_p,
    raising_shares,
)


def claims_table(records: Sequence[Record]) -> Table:
    """What the paper says in words, and whether it holds here under each preset."""
    found = {
        (group.spec.dataset, group.spec.preset, group.spec.label): group
        for group in groups(records)
        if not group.departure
    }
    presets = presets_of(records)
    rows = []
    for claim, papers, check in _CLAIMS:
        cells = []
        for preset in presets:
            word, evidence = check(found, preset)
            text = f"{word}: {evidence}" if evidence else word
            cells.append(Cell(text, word, verdict=_VERDICTS[word]))
        rows.append((text_cell(claim), text_cell(papers), *cells))
    columns = (Column("claim", "Claim"), Column("paper", "Paper"), *(Column(name, name) for name in presets))
    caption = (
        "What the paper says in words, computed from these runs. 20 bits stand for literal and matched, 3 bits for "
        "annealfit's own settings, which the paper does not have. ✓ holds here too; ✗ does not hold; ↑ does not hold, "
        "and that is good news; – was not run."
    )
    return Table("claims", "The paper's claims", caption, columns, tuple(rows) if presets else ())


_Found = dict[tuple[str, str | None, str], Group]
_HOLDS, _BETTER, _FAILS, _NOT_RUN = "holds", "better", "does not hold", "not run"
_VERDICTS = {_HOLDS: "near", _BETTER: "better", _FAILS: "far", _NOT_RUN: ""}
_Answer = tuple[str, str]  # one of these words, and the evidence


def _whether(holds: bool, evidence: str) -> _Answer:
    return _HOLDS if holds else _FAILS, evidence


def _from_to(low: float, high: float, digits: int = 0) -> str:
    """A span in words; a single number where its ends read the same.

    >>> _from_to(0.1, 0.2), _from_to(1.04, 2.5, 1)
    ('0', '1.0 to 2.5')
    """
    first, last = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return first if first == last else f"{first} to {last}"


def _test_percent(group: Group) -> float:
    return 100 * float(np.mean([record.test["accuracy"] for record in group.records]))


def _pairs(found: _Found, preset: str, label: str | None = None) -> dict[str, tuple[Group, Group]]:
    """Data set → (the preset's contender or the method named, the classical baseline), where both were run."""
    label = label or f"qubo_{contender_bits(preset)}"
    return {
        dataset: (group, found[dataset, None, CLASSICAL])
        for (dataset, a_preset, a_label), group in found.items()
        if a_preset == preset and a_label == label and (dataset, None, CLASSICAL) in found
    }


def _grows_with_bits(found: _Found, preset: str) -> _Answer:
    bits = OUR_BITS if preset == "annealfit" else BITS
    steps = [found.get(("digits", preset, f"qubo_{k}")) for k in bits]
    means = [_test_percent(group) for group in steps if group is not None]
    if len(means) < len(bits):
        return _NOT_RUN, ""
    evidence = " → ".join(f"{mean:.1f}" for mean in means) + " %"
    if max(means) - means[0] < 1:
        return _BETTER, f"{evidence}, the fewest are enough"
    return _whether(all(a < b for a, b in itertools.pairwise(means)), evidence)


def _beats_classical_on_digits(found: _Found, preset: str) -> _Answer:
    pair = _pairs(found, preset).get("digits")
    if pair is None:
        return _NOT_RUN, ""
    gain = _test_percent(pair[0]) - _test_percent(pair[1])
    return _whether(gain > 0, f"{signed(gain)} points")


def _lower_loss_on_digits(found: _Found, preset: str) -> _Answer:
    pair = _pairs(found, preset).get("digits")
    if pair is None:
        return _NOT_RUN, ""
    ours, theirs = (float(np.mean([record.cross_entropy for record in group.records])) for group in pair)
    return _whether(ours < theirs, f"{ours:.3f} against {theirs:.3f}")


def _five_bits_fail(found: _Found, preset: str) -> _Answer:
    means = [_test_percent(group) for (_, a, label), group in found.items() if a == preset and label == "qubo_5"]
    if not means:
        return _NOT_RUN, ""
    evidence = f"{_from_to(min(means), max(means))} % test accuracy"
    return (_HOLDS if max(means) <= 40 else _BETTER), evidence


def _ten_bits_compete(found: _Found, preset: str) -> _Answer:
    pairs = _pairs(found, preset, "qubo_10")
    gains = {name: _test_percent(ours) - _test_percent(theirs) for name, (ours, theirs) in pairs.items()}
    if not gains:
        return _NOT_RUN, ""
    worst = min(gains, key=gains.__getitem__)
    return _whether(gains[worst] >= -10, f"at worst {signed(gains[worst])} points, {dataset_title(worst)}")


def _significant_wins(found: _Found, preset: str) -> _Answer:
    pairs = _pairs(found, preset)
    chances = {name: paired_p(*paired_accuracies(*pairs[name])) for name in PAPER_SIGNIFICANT if name in pairs}
    if len(chances) < len(PAPER_SIGNIFICANT) or any(map(math.isnan, chances.values())):
        return _NOT_RUN, ""
    evidence = ", ".join(f"{dataset_title(name)} p {p_text(p)}" for name, p in chances.items())
    return _whether(all(p < 0.05 for p in chances.values()), evidence)


def _updates_raise_the_loss(found: _Found, preset: str) -> _Answer:
    shares = [
        100 * float(np.mean(s)) for (_, a, _), group in found.items() if a == preset and (s := raising_shares(group))
    ]
    if not shares:
        return _NOT_RUN, ""
    low, high = PAPER_RAISING_PERCENT
    evidence = "none do" if max(shares) == 0 else f"{_from_to(min(shares), max(shares))} % do"
    if max(shares) < low:
        return _BETTER, evidence
    return _whether(low <= min(shares) and max(shares) <= high, evidence)


def _slower_than_classical(found: _Found, preset: str) -> _Answer:
    ratios = [
        float(np.mean([r.seconds for r in ours.records]) / np.mean([r.seconds for r in theirs.records]))
        for ours, theirs in _pairs(found, preset).values()
    ]
    if not ratios:
        return _NOT_RUN, ""
    evidence = f"{_from_to(min(ratios), max(ratios), 1)} × its time"
    return (_HOLDS if min(ratios) >= 100 else _BETTER), evidence


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
