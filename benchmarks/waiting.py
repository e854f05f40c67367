"""How long people wait: for `annealfit --help`, for `import annealfit`, for `annealfit train digits` and its pictures.

`python -m benchmarks.waiting [SOURCE]` prints processor seconds, the least of three tries, which a busy machine
disturbs less than a clock; with the source folder of another version, of both in turn, and their ratio.
"""

import math
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

TRIES = 3
COMMANDS = {
    "annealfit --help": ["-m", "annealfit", "--help"],
    "import annealfit": ["-c", "import annealfit"],
    "train digits": ["-m", "annealfit", "train", "digits", "--out"],
    "train digits --no-plots": ["-m", "annealfit", "train", "digits", "--no-plots", "--out"],
}
NOT_KNOWN = 2  # the exit code of an option that a version does not have


def processor_seconds(source: Path, arguments: list[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *arguments, *([f"{folder}/run"] if arguments[-1] == "--out" else [])]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = {**os.environ, "PYTHONPATH": str(source)}
        code = subprocess.run(command, capture_output=True, cwd=folder, env=environment).returncode
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code == NOT_KNOWN:
        return math.nan
    assert code == 0, command
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    sources = [Path(__file__).parent.parent / "src", *(Path(argument).resolve() for argument in sys.argv[1:2])]
    print("Processor seconds, the least of three tries: here" + ", there, there ÷ here" * (len(sources) > 1))
    for name, arguments in COMMANDS.items():
        for source in sources:
            processor_seconds(source, arguments)  # compiled files and caches
        tries = [[processor_seconds(source, arguments) for source in sources] for _ in range(TRIES)]
        least = [min(column) for column in zip(*tries, strict=True)]
        ratio = [f"{least[1] / least[0]:.1f}"] if len(least) > 1 else []
        print(f"{name:25}", *(f"{seconds:.2f}".replace("nan", "–") for seconds in least), *ratio, flush=True)


if __name__ == "__main__":
    main()
