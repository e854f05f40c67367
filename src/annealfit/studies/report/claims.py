"""What the paper says in words, checked against the records; and what the page says in its first sentence and plot."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from annealfit.studies.paper_tables import bits_of
from annealfit.studies.records import CLASSICAL, IMAGES, Record
from annealfit.studies.report import tables
from annealfit.studies.report.tables import Cell, Group, Row, dataset_title, signed

_TEST = "test_accuracy_percent"
_HOLDS, _BETTER, _FAILS = "holds", "better", "does not hold"
_VERDICTS = {_HOLDS: "near", _BETTER: "better", _FAILS: "far"}
_Answers = dict[str, tuple[str, str]]  # by the claim's key: one of these words, and the evidence


def claim_rows(records: Sequence[Record]) -> list[Row]:
    """What the paper says in words, and whether it holds here under each preset."""
    there = {(record.run.images, record.run.preset) for record in records}
    readings = {name: reading for name, reading in tables.READINGS.items() if reading in there}
    answers = {name: _check_claims(records, *reading) for name, reading in readings.items()}
    rows: list[Row] = []
    for key, claim, papers in tables.layouts()["claims"]["rows"] if answers else ():
        rows.append(row := {"claim": Cell(claim), "paper": Cell(papers)})
        for name, own in answers.items():
            word, evidence = own.get(key, ("not run", ""))
            row[name] = Cell(f"{word}: {evidence}" if evidence else word, word, verdict=_VERDICTS.get(word, ""))
    return rows


def _from_to(values: Sequence[float], digits: int = 0) -> str:
    """The least and the greatest value; a single number where they read the same."""
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
        entropies = [group.mean("final_loss") for group in (ours, theirs)]
        whether("entropy", entropies[0] < entropies[1], "{:.3f} against {:.3f}".format(*entropies))
    if by_bits[5]:
        means = [group.mean(_TEST) for group in by_bits[5].values()]
        whether("five_bits", max(means) <= 40, f"{_from_to(means)} % test accuracy", _BETTER)
    gains = {name: g.mean(_TEST) - baselines[name].mean(_TEST) for name, g in by_bits[10].items() if name in baselines}
    if gains:
        name = min(gains, key=lambda name: gains[name])
        whether("ten_bits", gains[name] >= -10, f"at worst {signed(gains[name])} points, {dataset_title(name)}")
    chances = {
        name: tables.compare_pairs(most[name], baselines[name])[1] for name in tables.PAPER_SIGNIFICANT if name in most
    }
    if len(chances) == len(tables.PAPER_SIGNIFICANT) and not any(map(math.isnan, chances.values())):
        evidence = ", ".join(f"{dataset_title(name)} p {tables.p_text(p)}" for name, p in chances.items())
        whether("significant", max(chances.values()) < 0.05, evidence)
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


def agreement_rows(records: Sequence[Record]) -> list[Row]:
    """How many of the paper's percentages come out, and how close recalls are: by study, images, and preset if any."""
    kinds: dict[tuple[str, str, str | None], list[Group]] = {}
    for group in tables.groups(records):
        kinds.setdefault((tables.main_table(group.spec), group.spec.images, group.spec.preset), []).append(group)
    compared = [name for name, _, *kind in tables.layouts()["benchmark"]["columns"] if kind == ["compared"]]
    rows = []
    for (study, images, preset), members in kinds.items():
        cells = [(group.cell(name), 100 if name in tables.SCORES else 1) for group in members for name in compared]
        points = [scale * abs(cell.difference) for cell, scale in cells if cell.difference is not None]
        if not points:
            continue
        deviations = [
            abs(cell.difference) / cell.paper_spread for cell, _ in cells if cell.difference and cell.paper_spread
        ]
        row = {
            "study": Cell(study.capitalize()),
            "method": Cell("QUBO" if preset else tables.method_title(CLASSICAL)),
            "preset": Cell(preset or "–"),
            "images": Cell(images),
            "percentages": tables.count_cell(len(points)),
            "within_2.5": tables.count_cell(sum(point <= 2.5 for point in points)),
            "within_5": tables.count_cell(sum(point <= tables.NEAR_POINTS for point in points)),
        }
        if deviations:
            row["within_2_std"] = tables.count_cell(sum(deviation <= 2 for deviation in deviations))
        if recalls := [pairs for pairs in map(tables.recall_pairs, members) if pairs]:
            pairs = [pair for own in recalls for pair in own]
            row |= tables.recall_cells(pairs) | {"recalls": tables.count_cell(len(pairs))}
            correlations = [fit[1] for fit in map(tables.fit_of_recalls, recalls) if not math.isnan(fit[1])]
            row["recall_correlation"] = Cell(_from_to(correlations, 2) if correlations else "–")
        rows.append(row)
    return rows


def opening_sentences(records: Sequence[Record]) -> list[str]:
    """The page's first sentences, counted from the records; one whose runs are missing is left out."""
    words, close = tables.layouts()["agreement"]["opening"], agreement_rows(records)
    told = [words["claim"]]
    for images in IMAGES:
        counts = [
            f"{row['method' if row['preset'].text == '–' else 'preset'].text} "
            f"{row['within_5'].text} of {row['percentages'].text}"
            for row in close
            if (row["study"].text, row["images"].text) == ("Benchmark", images)
        ]
        if counts:
            told.append(words[images].format(counts=", ".join(counts)))
    sets = leading_groups(records)
    shown = [group for group in tables.groups(records) if group.data in sets and not group.departure]
    means = {(group.data, group.spec.preset, group.spec.bits): group.mean(_TEST) for group in shown}
    digits = {
        preset: " → ".join(f"{mean:.1f}" for key, mean in means.items() if "digits" in key[0] and key[1] == preset)
        for preset in ("literal", "matched")
    }
    if all(digits.values()):
        told.append(words["temperature"].format(**digits))
    gains = [means[data, "annealfit", 1] - means[data, None, None] for data in sets if (data, "annealfit", 1) in means]
    if gains:
        better = f"{sum(gain > 0 for gain in gains)} of {len(gains)}"
        told.append(words["one_bit"].format(better=better, least=signed(min(gains)), most=signed(max(gains))))
    return told
