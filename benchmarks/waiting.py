"""How long people wait: for help, imports, the first fit of a process, and a training where nothing is compiled yet.

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
_IMPORTS = "from sklearn.datasets import load_iris; from annealfit import AnnealedClassifier"
_NEW_MACHINE = "train digits, new machine"  # with an empty cache of compiled code
COMMANDS = {
    "annealfit --help": ["-m", "annealfit", "--help"],
    "import annealfit": ["-c", "import annealfit"],
    "import of an estimator": ["-c", _IMPORTS],
    "that, and its first fit": ["-c", f"{_IMPORTS}; AnnealedClassifier(max_iter=10).fit(*load_iris(return_X_y=True))"],
    "train digits": ["-m", "annealfit", "train", "digits", "--out"],
    "train digits --no-plots": ["-m", "annealfit", "train", "digits", "--no-plots", "--out"],
    _NEW_MACHINE: ["-m", "annealfit", "train", "digits", "--out"],
}
NOT_KNOWN = 2  # the exit code of an option that a version does not have


def processor_seconds(source: Path, arguments: list[str], *, compiled: bool = True) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *arguments, *([f"{folder}/run"] if arguments[-1] == "--out" else [])]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = {**os.environ, "PYTHONPATH": str(source)} | ({} if compiled else {"NUMBA_CACHE_DIR": folder})
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
        compiled = name != _NEW_MACHINE
        tries = [[processor_seconds(source, arguments, compiled=compiled) for source in sources] for _ in range(TRIES)]
        least = [min(column) for column in zip(*tries, strict=True)]
        ratio = [f"{least[1] / least[0]:.1f}"] if len(least) > 1 else []
        print(f"{name:25}", *(f"{seconds:.2f}".replace("nan", "–") for seconds in least), *ratio, flush=True)


if __name__ == "__main__":
    main()
