"""Scored answers as a submission to QOBLIB: per instance a summary, the best solution and the objective over time.

Its guidelines (CONTRIBUTING.md of ZIB-AOPT/QOBLIB) name the files and the columns. What only the submitter knows is
left empty: names, affiliations, the reference, the workflow and the hardware.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from annealfit._support.files import replacing, write_json
from annealfit.problems.export import file_offset
from annealfit.studies.instances import Score, make_problem

COLUMNS = (
    *("Problem", "Submitter", "Affiliation", "Date", "Reference", "Best Objective Value", "Optimality Bound"),
    *("Modeling Approach", "# Decision Variables", "# Binary Variables", "# Integer Variables"),
    *("# Continuous Variables", "# Non-Zero Coefficients", "Coefficients Type", "Coefficients Range", "Workflow"),
    *("Algorithm Type", "Paradigm", "# Runs", "# Feasible Runs", "# Successful Runs", "Success Threshold"),
    *("Hardware Specifications", "Total Runtime", "Time to Solution", "CPU Runtime", "GPU Runtime", "QPU Runtime"),
    *("Other HW Runtime", "Remarks"),
)
UNKNOWN = "N/A"


def write_submission(score: Score, folder: Path, within: float) -> Path:
    """Write the files of one instance below a folder, and return their folder.

    A read is a run, which ended after its `seconds`. Runs are successful within this share of the best of them.
    """
    name, place = score.instance.name, folder / score.instance.name
    row = summary(score, within)
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    table.writeheader()
    table.writerow(row)
    with replacing(place / f"{name}_summary.csv") as file:
        file.write(text.getvalue().encode())
    with replacing(place / f"{name}_solution.txt") as file:
        file.write("\n".join(score.best_bits).encode() + b"\n")
    if score.seconds is not None:
        times = zip(score.seconds.tolist(), score.energies.tolist(), strict=True)
        series = [[{"Time": seconds, "Incumbent": energy}] for seconds, energy in times]
        write_json(place / f"{name}_objective_time_series.json", series)
    return place


def summary(score: Score, within: float) -> Mapping[str, Any]:
    """Return the row of the summary; columns that are not in it are the submitter's."""
    problem = make_problem(score.instance)
    quadratic, _ = problem.to_qubo()
    coefficients = np.triu(quadratic)[np.triu(quadratic) != 0]
    best = score.best_energy
    seconds = UNKNOWN if score.seconds is None else float(score.seconds.mean())
    reached = score.energies <= best + within * abs(best)
    to_solution = UNKNOWN if score.seconds is None else float(score.seconds[score.energies == best].min())
    return {
        "Problem": score.instance.name,
        "Date": date.today().isoformat(),
        "Best Objective Value": best,
        "Optimality Bound": UNKNOWN,
        "Modeling Approach": "QUBO",
        "# Decision Variables": problem.n_variables,
        "# Binary Variables": problem.n_variables,
        "# Integer Variables": 0,
        "# Continuous Variables": 0,
        "# Non-Zero Coefficients": len(coefficients),
        "Coefficients Type": "continuous",
        "Coefficients Range": f"{coefficients.min()!s} to {coefficients.max()!s}",
        "# Runs": len(score.energies),
        "# Feasible Runs": len(score.energies),
        "# Successful Runs": int(reached.sum()),
        "Success Threshold": within,
        "Total Runtime": seconds,
        "Time to Solution": to_solution,
        **dict.fromkeys(("CPU Runtime", "GPU Runtime", "QPU Runtime", "Other HW Runtime"), UNKNOWN),
        "Remarks": f"The objective value contains the ObjectiveOffset {file_offset(problem, 'qs')!r} of the qs file.",
    }
