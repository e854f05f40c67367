"""Other solvers' answers: read from a file, scored, and refused with the place of the mistake."""

import csv
import json

import numpy as np
import pytest

from annealfit._support.errors import AnnealfitError
from annealfit.studies import instances as library
from annealfit.studies.instances import (
    best_known,
    find_instance,
    make_problem,
    read_answers,
    score_answers,
    write_submission,
)

NAME = "digits-d18-k1-centred-first-c0"
OTHER = "digits-d18-k1-raw-first-c0"
BEST = best_known(find_instance(NAME)).bits
WORSE = "0" * 19


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    return path


def as_array(*texts):
    return np.array([list(map(int, text)) for text in texts])


SAME = {
    "words.csv": f"instance,bits\n# a remark\n{NAME},{BEST}\n\n{NAME}, {WORSE}\n{OTHER},{WORSE}\n",
    "columns.csv": "\n".join(
        f"{name},{','.join(bits)}" for name, bits in ((NAME, BEST), (NAME, WORSE), (OTHER, WORSE))
    ),
    "list.json": json.dumps([
        {"instance": NAME, "bits": BEST}, {"instance": NAME, "bits": [0] * 19}, {"instance": OTHER, "bits": WORSE}
    ]),
    "object.json": json.dumps({NAME: [BEST, [0] * 19], OTHER: [WORSE]}),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_the_same_reads_in_every_kind_of_file(tmp_path, name):
    first, second = read_answers(write(tmp_path, name, SAME[name]))
    assert (first.instance.name, second.instance.name) == (NAME, OTHER)
    assert np.array_equal(first.bits, as_array(BEST, WORSE))
    assert np.array_equal(second.bits, as_array(WORSE))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", f"instance,bits\n{NAME},{BEST}\n{NAME},{BEST}0\n", "line 3: 20 bits; .* has 19 variables"),
        ("a.csv", f"{NAME},{'2' + BEST[1:]}\n", "line 1: the bits hold '2'; bits are 0 or 1"),
        ("a.csv", f"{NAME},{BEST}\n\ndigits-d18-k1-centred-first,{BEST}\n", f"line 3: .*did you mean {NAME}"),
        ("a.csv", f"{NAME}\n", "line 1: 0 bits"),
        ("a.csv", "instance,bits\n", "has no samples"),
        ("a.csv", f"{NAME}{',-1' * 19}\n", r"line 1: the bits hold '-'.*\(1 \+ spin\) / 2"),
        ("a.csv", f"cats,{BEST}\n", "there is no instance 'cats'"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path, name, content, message):
    with pytest.raises(AnnealfitError, match=message):
        read_answers(write(tmp_path, name, content))


def test_reads_in_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", **{NAME: as_array(BEST, WORSE), OTHER: as_array(WORSE)[0]})
    first, second = read_answers(tmp_path / "a.npz")
    assert np.array_equal(first.bits, as_array(BEST, WORSE))
    assert np.array_equal(second.bits, as_array(WORSE))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f'{{"{NAME}": ["{BEST}"], "{NAME}": ["{WORSE}"]}}', f"the key '{NAME}' stands twice"),
        (f'{{"{NAME}": [{[-1] * 19}]}}', r"read 1: the bits hold '-'.*\(1 \+ spin\) / 2"),
        (f'{{"{NAME}": "{BEST}"}}', "a.json: its field"),
        (f'[{{"instance": "{NAME}", "bits": "01"}}]', "entry 1: 2 bits"),
        ("[1]", "a.json: its field"),
        ("{", "is not a JSON file of samples"),
    ],
)
def test_mistakes_in_json(tmp_path, content, message):
    with pytest.raises(AnnealfitError, match=message):
        read_answers(write(tmp_path, "a.json", content))


def test_an_archive_that_unpacks_to_a_thousand_times_its_size_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", **{NAME: np.zeros((3_000_000, 19), np.uint8)})
    with pytest.raises(AnnealfitError, match="which real data do not"):
        read_answers(tmp_path / "a.npz")


def test_no_csv(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"PK\x03\x04\xff no text")
    with pytest.raises(AnnealfitError, match="not a CSV file"):
        read_answers(tmp_path / "a.csv")


def score(tmp_path, *reads):
    (answers,) = read_answers(write(tmp_path, "a.csv", "".join(f"{NAME},{bits}\n" for bits in reads)))
    return score_answers(answers)


def test_scores(tmp_path):
    problem = make_problem(find_instance(NAME))
    found = score(tmp_path, WORSE, BEST, BEST, WORSE)
    assert found.energies.tolist() == problem.energy(as_array(WORSE, BEST, BEST, WORSE)).tolist()
    assert (found.verdict, found.success, found.best_bits) == ("optimal", 0.5, BEST)
    assert abs(found.residual) < 1e-12
    worse = score(tmp_path, WORSE)
    assert (worse.verdict, worse.success) == ("above", 0.0)
    assert worse.residual == pytest.approx(
        (problem.energy(as_array(WORSE)[0]) - found.best_energy) / -found.best_energy
    )


@pytest.mark.parametrize(
    ("proven", "verdict"), [(False, "new best"), (True, "below a proven optimum: please report it")]
)
def test_a_record_beaten(tmp_path, monkeypatch, proven, verdict):
    known = best_known(find_instance(NAME))
    old = type(known)(known.energy / 2, proven, known.found_by, known.bits, known.sha256, known.couplings)
    monkeypatch.setattr(library, "best_known_for", lambda *_: old)
    found = score(tmp_path, BEST)
    assert (found.verdict, found.success) == (verdict, 1.0)
    assert found.residual == pytest.approx(-1)


def test_a_submission_to_qoblib(tmp_path):
    content = f"instance,seconds,bits\n{NAME},0.5,{WORSE}\n{NAME},2,{BEST}\n{NAME},1,{BEST}\n"
    (answers,) = read_answers(write(tmp_path, "timed.csv", content))
    score = score_answers(answers)
    folder = write_submission(score, tmp_path, within=1e-9)
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{NAME}_{end}" for end in ("objective_time_series.json", "solution.txt", "summary.csv")
    ]
    with (folder / f"{NAME}_summary.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert len(row) == 30
    assert list(row)[:6] == ["Problem", "Submitter", "Affiliation", "Date", "Reference", "Best Objective Value"]
    assert {name for name, value in row.items() if not value} == {
        *("Submitter", "Affiliation", "Reference", "Workflow", "Algorithm Type", "Paradigm", "Hardware Specifications")
    }  # what the submitter knows
    assert float(row["Best Objective Value"]) == score.best_energy
    assert [row[f"# {kind} Runs".replace("  ", " ")] for kind in ("", "Feasible", "Successful")] == ["3", "3", "2"]
    assert (float(row["Total Runtime"]), float(row["Time to Solution"])) == (3.5 / 3, 1.0)
    series = json.loads((folder / f"{NAME}_objective_time_series.json").read_text())
    assert [run[-1]["Time"] for run in series] == [0.5, 2.0, 1.0]
    assert min(run[-1]["Incumbent"] for run in series) == score.best_energy
    assert (folder / f"{NAME}_solution.txt").read_text().split() == list(BEST)


def test_seconds_are_numbers(tmp_path):
    with pytest.raises(AnnealfitError, match=r"line 2: seconds"):
        read_answers(write(tmp_path, "a.csv", f"instance,seconds,bits\n{NAME},soon,{BEST}\n"))
