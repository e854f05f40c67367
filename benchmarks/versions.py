"""This version against an earlier one, in one run: `python -m benchmarks.versions [REVISION]`.

The earlier version is taken from the repository's own history. Both run the same program in turns, so that what else
the machine does falls on both; a figure is the least of all turns. Then the same with one and two BLAS threads, alone
and beside processes that keep every core busy.
"""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from benchmarks.timing import print_table

ROOT = Path(__file__).parent.parent
EARLIER = "be1ab65"  # 0.1.0 as it was before the loop was opened to any objective
SHARED_CORES = ("d=18, 3 bits", "d=72, matched, 20 bits", "d=512, 5000 rows, 3 bits")


@contextlib.contextmanager
def source_of(revision):
    """A folder with the package as it was at a revision, or None if the history does not go back so far."""
    archive = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, capture_output=True)
    if archive.returncode:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as file:
            file.extractall(folder, filter="data")
        yield Path(folder) / "src"


@contextlib.contextmanager
def busy(processes):
    """So many processes that do nothing but keep a core busy."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def time_fits(source, threads, seconds, names=()):
    """Milliseconds per iteration of each case, by the package in a folder, with so many BLAS threads."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment.pop(variable, None)
    if threads is not None:
        environment["OPENBLAS_NUM_THREADS"] = environment["MKL_NUM_THREADS"] = str(threads)
    program = [sys.executable, str(ROOT / "benchmarks" / "timed_fits.py"), str(seconds), *names]
    return json.loads(subprocess.run(program, env=environment, check=True, capture_output=True, text=True).stdout)


def least_of_turns(sources, turns, **options):
    """The least of several turns of each source, which take them by turns."""
    found = [{} for _ in sources]
    for _ in range(turns):
        for least, source in zip(found, sources, strict=True):
            for name, value in time_fits(source, **options).items():
                least[name] = min(value, least.get(name, value))
    return found


def run(*, quick, revision=EARLIER):
    with source_of(revision) as earlier:
        if earlier is None:
            print(f"\nThe history does not go back to {revision}: no comparison of versions")
            return
        sources, turns = (earlier, ROOT / "src"), 3 if quick else 12
        old, new = least_of_turns(sources, turns, threads=1, seconds=0.4)
        rows = [[name, f"{old[name]:.2f}", f"{new[name]:.2f}", f"{new[name] / old[name]:.2f}×"] for name in new]
        print_table(
            f"ms per iteration, one BLAS thread: {revision} and now", ["training", "then", "now", "ratio"], rows
        )
        cores = os.cpu_count() or 1
        for load in (0, cores):
            with busy(load):
                rows = []
                for threads in (1, cores):
                    then, now = least_of_turns(
                        sources, 1 if quick else 4, threads=threads, seconds=1.0, names=SHARED_CORES
                    )
                    rows += [
                        [name, str(threads), f"{then[name]:.2f}", f"{now[name]:.2f}", f"{now[name] / then[name]:.2f}×"]
                        for name in now
                    ]
            beside = f"beside {load} busy processes" if load else "alone"
            print_table(
                f"ms per iteration, {beside}, with 1 and {cores} BLAS threads allowed",
                ["training", "threads", "then", "now", "ratio"],
                sorted(rows),
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("revision", nargs="?", default=EARLIER)
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    given = parser.parse_args()
    run(quick=given.quick, revision=given.revision)
