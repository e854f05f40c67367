"""Print how large annealfit is and how much code a reader of one call crosses: `make size`.

python tools/size.py                        this source tree
python tools/size.py --source OTHER/src     another version beside this one

A call is run once to load and compile what it needs, and once under `sys.setprofile`. Counted are the Python functions
of the package that it enters, the files that define them, and the most frames of the package on the stack at a time.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGE = "annealfit"
OUTSIDE = ("studies", "cli")  # what the library does not import
SHORT_FILE = 60
SHOWN = 8  # longest functions


def main() -> None:
    """Print the table, the longest functions and the import rules."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", type=Path, help="source folder of another version, printed as the first column")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)  # how this program calls itself
    options = parser.parse_args()
    if options.measure:
        return print(json.dumps({**sizes(options.measure), **parameters(), **crossings(options.measure)}))
    sources = [source.resolve() for source in (options.source, ROOT / "src") if source]
    print_table([measure_apart(source) for source in sources])
    for source in sources:
        print(f"\nThe longest functions of {source}")
        for length, place in sorted(functions(source / PACKAGE), reverse=True)[:SHOWN]:
            print(f"{length:6d}  {place}")
    print("\nImport rules, checked by import-linter in make lint:")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in settings["tool"]["importlinter"]["contracts"]:
        print(f"  {contract['name']}")
        for layer in contract.get("layers", []):
            print(f"    {layer}")


def measure_apart(source: Path) -> dict[str, Any]:
    """Measure the package of a source folder in a process that imports that package."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(source), "ANNEALFIT_CACHE": folder, "MPLBACKEND": "agg"}
        command = [sys.executable, "-W", "ignore", __file__, "--measure", str(source)]
        result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"{source} could not be measured:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


def print_table(columns: list[dict[str, Any]]) -> None:
    """Print a line per measurement and a column per version."""
    for name in columns[-1]:
        cells = [column.get(name, "") for column in columns]
        texts = [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells]
        print((f"{name:40s}" + "".join(f"{text:>14s}" for text in texts)).rstrip())


def sizes(source: Path) -> dict[str, int]:
    """Count lines, by package too, files and words."""
    package, lengths, parts = source / PACKAGE, list[int](), Counter[str]()
    for path in sorted(package.rglob("*.py")):
        lengths.append(len(path.read_text(encoding="utf-8").splitlines()))
        parts[path.relative_to(package).parts[0]] += lengths[-1]
    pages = [source.parent / "README.md", *(source.parent / "docs").glob("*.md")]
    entries = [path for path in package.iterdir() if path.suffix in ("", ".py") and path.name[:2] != "__"]
    return {
        "lines": sum(lengths),
        **{f"  {part}": length for part, length in parts.items()},
        f"  without {' and '.join(OUTSIDE)}": sum(lengths) - sum(parts[part] for part in OUTSIDE),
        "files": len(lengths),
        "packages and modules at the top level": len(entries),
        f"files below {SHORT_FILE} lines": sum(length < SHORT_FILE for length in lengths),
        "words of docs/*.md and README": sum(len(page.read_text(encoding="utf-8").split()) for page in pages),
    }


def functions(package: Path) -> Iterator[tuple[int, str]]:
    """Yield length and place of every function."""
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                yield length, f"{path.relative_to(package)}:{node.lineno} {node.name}"


def parameters() -> dict[str, int]:
    """Count the named parameters of the two estimators."""
    import annealfit

    classes = [annealfit.AnnealedClassifier, annealfit.AnnealedConvNet]
    return {f"parameters of {found.__name__}": len(named_parameters(found)) for found in classes}


def named_parameters(estimator: type) -> list[str]:
    """Return the parameters of a constructor, without those that only collect old keywords."""
    known = inspect.signature(estimator).parameters.values()
    return [each.name for each in known if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]


def crossings(source: Path) -> dict[str, str]:
    """Count what typical calls cross, in this package and for comparison in scikit-learn's."""
    import sklearn
    from sklearn.linear_model import LogisticRegression

    counted = {"files, functions, frames crossed by": ""}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for name, call in calls():
            counted[f"  {name}"] = crossed(call, source / PACKAGE)
        X, y = digits_features()
        model = LogisticRegression(max_iter=1)
        beside = crossed(lambda: model.fit(X, y), Path(sklearn.__file__).parent)
        counted["  scikit-learn's LogisticRegression.fit"] = beside
    return counted


def digits_features() -> tuple[Any, Any]:
    """Return the features of the digits that `annealfit train digits` trains on, and their labels."""
    from annealfit import RandomConvFeatures, load_dataset

    data = load_dataset("digits", seed=42)
    return RandomConvFeatures(random_state=42).fit_transform(data.X_train), data.y_train


def calls() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the calls that are measured, by name."""
    from annealfit import AnnealedClassifier
    from annealfit.quantization import quantize_layer
    from annealfit.samplers import MockQPU, QPUSampler

    X, y = digits_features()
    model = AnnealedClassifier(max_iter=1, random_state=0)
    paper = AnnealedClassifier.from_paper(bits=5, preset="literal").set_params(max_iter=1, random_state=0)
    training = ("train", "digits", "--max-iter", "1")
    yield "annealfit train digits --max-iter 1", lambda: command(*training, "--out", tempfile.mkdtemp(dir="."))
    yield "fit, one iteration", lambda: model.fit(X, y)
    yield "from_paper, one iteration", lambda: paper.fit(X, y)
    command("reproduce", "digits", "--preset", "annealfit", "--seeds", "42", "--out", "records")
    yield "record -> report", lambda: command("report", "records", "-o", "report.html")
    yield "quantize_layer", lambda: quantize_layer(model.coef_.T, inputs=X, bits=2)
    problems = AnnealedClassifier(bits=1, random_state=0).problems(X, y)
    with QPUSampler(MockQPU("Z12", seed=0), num_reads=10) as sampler:
        yield "problem -> mock QPU", lambda: sampler.solve(problems[:1], [0])


def command(*words: str) -> None:
    """Run a command of the program in this process."""
    from annealfit.cli import main as program

    arguments, sys.argv = sys.argv, ["annealfit", *words]
    try:
        program()
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"{' '.join(words)} ended with {ended.code}") from ended
    finally:
        sys.argv = arguments


def crossed(call: Callable[[], object], package: Path) -> str:
    """Return files, functions and the most frames of a package that a call crosses."""
    seen: set[tuple[str, int, str]] = set()
    deepest = 0

    def watch(frame: Any, event: str, argument: object) -> None:
        nonlocal deepest
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(f"{package}{os.sep}"):
            return
        seen.add((code.co_filename, code.co_firstlineno, code.co_name))
        depth = 0
        while frame is not None:
            depth += frame.f_code.co_filename.startswith(f"{package}{os.sep}")
            frame = frame.f_back
        deepest = max(deepest, depth)

    call()
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return f"{len({place for place, _, _ in seen})}, {len(seen)}, {deepest}"


if __name__ == "__main__":
    main()
