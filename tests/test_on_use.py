"""What people wait for before anything happens: `import annealfit` and every `--help` import only what they need."""

import subprocess
import sys

import pytest

import annealfit
import annealfit.quantization
import annealfit.samplers
import annealfit.studies
from annealfit._support.lazy import lazy_exports

HEAVY = ("dimod", "jinja2", "joblib", "matplotlib", "numba", "onnx", "pandas", "scipy", "sklearn")
PACKAGES = (annealfit, annealfit.samplers, annealfit.studies, annealfit.quantization)
HELPS = (
    "--help",
    "train --help",
    "predict --help",
    "export --help",
    "reproduce --help",
    "report --help",
    "hardware --help",
    "compare-samplers --help",
    "datasets fetch --help",
    "instances check --help",
    "quantize --help",
)


def modules_after(program: str) -> set[str]:
    """The top-level modules that a program of Python has imported when it ends."""
    ending = "import atexit, sys; atexit.register(lambda: print(*{m.partition('.')[0] for m in sys.modules}))\n"
    command = [sys.executable, "-c", ending + program]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return set(result.stdout.splitlines()[-1].split())


def test_importing_the_package_imports_nothing_else():
    assert modules_after("import annealfit").isdisjoint({*HEAVY, "numpy", "rich", "typer"})
    assert "sklearn" in modules_after("from annealfit import AnnealedClassifier")  # or the test above says nothing


@pytest.mark.parametrize("arguments", HELPS)
def test_help_imports_nothing_heavy(arguments):
    program = f"import sys; sys.argv[1:] = {arguments.split()!r}\nfrom annealfit.cli import main; main()"
    assert modules_after(program).isdisjoint(HEAVY)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_public_name_is_there(package):
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert getattr(package, name) is vars(package)[name]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_modules_of_a_package_are_found_without_an_import_of_their_own():
    program = "import annealfit; print(annealfit.samplers.ExactSolver, annealfit.problems.export.FORMATS)"
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0


def test_a_name_is_looked_up_once():
    get, _ = lazy_exports("annealfit", {"Encoding": "encoding"})
    assert get("Encoding") is annealfit.problems.encoding.Encoding
    assert vars(annealfit)["Encoding"] is annealfit.problems.encoding.Encoding


def test_a_function_and_the_module_it_lives_in_have_different_names():
    # Importing the module would put it in the function's place.
    for package in PACKAGES:
        modules = {name for name in package.__all__ if f"{package.__name__}.{name}" in sys.modules}
        assert modules == set()
