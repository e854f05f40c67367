"""Run all benchmarks: `python -m benchmarks [--quick]`."""

import argparse
import platform

from benchmarks import annealing, large, qpu, versions


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the sizes that take minutes")
    quick = parser.parse_args().quick
    print(
        f"Python {platform.python_version()}, {platform.processor() or platform.machine()}; times are least of several"
    )
    for benchmark in (annealing, qpu, large, versions):
        benchmark.run(quick=quick)


if __name__ == "__main__":
    main()
