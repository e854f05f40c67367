"""Milliseconds per iteration of several versions: `python -m benchmarks.speed_history [--turns N] [--page]`.

All versions, taken from the repository's history, train by turns with one BLAS thread; a figure is the least of all
turns. The results are stored in benchmarks/speed_history.json, one entry per run; docs/speed.md and its picture are
made from this file alone, by `--page` without a measurement. Figures of different runs are not mixed: the page has the
last. A page that is new has to be listed in docs/index.md.
"""

import argparse
import json
import platform
from contextlib import ExitStack
from datetime import date
from importlib.metadata import version
from pathlib import Path

from benchmarks.versions import ROOT, least_of_turns, source_of

from annealfit.studies.report.drawing import MARKERS, SERIES, dress, make_figure, save_figure, use_logarithm

VERSIONS = {"0.1.0": "be1ab65", "0.2.0": "0b7a8bc", "now": "HEAD"}
STORED = ROOT / "benchmarks" / "speed_history.json"
DOCS = ROOT / "docs"
PAGE = """# Speed by version

Milliseconds per iteration; in brackets the ratio to the version before.

{table}

![Milliseconds per iteration of each training, by version](images/speed.png)

{date}, {processor}, {software}; the least of {turns} turns on one thread, all versions in one run
(`python -m benchmarks.speed_history`).
"""


def measured(turns: int) -> dict:
    """A run: when, on what, and the milliseconds of each training by version."""
    with ExitStack() as stack:
        sources = {name: stack.enter_context(source_of(revision)) for name, revision in VERSIONS.items()}
        if None in sources.values():
            raise SystemExit(f"the history does not go back to {', '.join(VERSIONS.values())}; fetch all of it")
        times = least_of_turns([*sources.values()], turns, threads=1, seconds=0.4)
    libraries = (f"{name} {version(name)}" for name in ("numpy", "numba", "scikit-learn"))
    return {
        "date": str(date.today()),
        "processor": processor(),
        "software": ", ".join([f"Python {platform.python_version()}", *libraries]),
        "turns": turns,
        "milliseconds": dict(zip(VERSIONS, times, strict=True)),
    }


def processor() -> str:
    """The processor's name, which `platform` does not know on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def table(times: dict[str, dict[str, float]]) -> str:
    """A row per training and a column per version, as Markdown."""
    lines = [f"| training | {' | '.join(times)} |", "|---" * (len(times) + 1) + "|"]
    for training in times["now"]:
        cells, before = [], None
        for found in times.values():
            now = found[training]
            cells.append(f"{now:.2f}" if before is None else f"{now:.2f} ({now / before:.2f}×)")
            before = now
        lines.append(f"| {training} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(times: dict[str, dict[str, float]]) -> None:
    """Draw a line of marks for each training, one per version."""
    figure = make_figure(figsize=(8, 4))
    axes, trainings = figure.subplots(), list(times["now"])
    for (name, found), colour, marker in zip(times.items(), SERIES, MARKERS, strict=False):
        axes.plot([found[training] for training in trainings], trainings, marker, color=colour, label=name)
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="Milliseconds per iteration")
    dress(axes)
    use_logarithm(axes, "x")
    axes.legend(frameon=False)
    save_figure(figure, DOCS / "images" / "speed.png")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed_history", description=__doc__)
    parser.add_argument("--turns", type=int, default=6, help="of every version")
    parser.add_argument("--page", action="store_true", help="make the page from the stored results, measure nothing")
    given = parser.parse_args()
    runs = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else []
    if not given.page:
        runs.append(measured(given.turns))
        STORED.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    if not runs:
        raise SystemExit(f"{STORED} has no results; run without --page first")
    last = runs[-1]
    draw(last["milliseconds"])
    (DOCS / "speed.md").write_text(PAGE.format(table=table(last["milliseconds"]), **last), encoding="utf-8")


if __name__ == "__main__":
    main()
