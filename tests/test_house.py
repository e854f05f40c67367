"""The house keeps its rooms small and its names apart; what is longer than it likes is known by name."""

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("house", Path(__file__).parent.parent / "tools" / "house.py")
house = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(house)

# Parameters of estimators are documented where they are defined; a device has as many settings.
LONG_FILES = {
    "annealfit/classifier/estimator.py",
    "annealfit/classifier/conv_net.py",
    "annealfit/samplers/dwave/qpu.py",
}
# Options of commands, settings of a network, a loop that has to be one function to be compiled, docstrings.
LONG_FUNCTIONS = {
    "__init__",
    "compare",
    "hardware",
    "quantize",
    "train",
    "anneal_group",
    "load_dataset",
    "quantize_layer",
}


def test_no_two_things_share_a_name():
    assert house.shared_names(house.modules()) == {}


def test_files_and_functions_are_short_or_known_to_be_long():
    lengths = {
        str(path.relative_to(house.SOURCE)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (house.SOURCE / house.PACKAGE).rglob("*.py")
    }
    assert {name for name, length in lengths.items() if length > house.LONG_FILE} <= LONG_FILES
    long = {place.split()[-1] for length, place in house.functions() if length > house.LONG_FUNCTION}
    assert long <= LONG_FUNCTIONS


def test_the_listing_is_printed(capsys):
    house.main()
    printed = capsys.readouterr().out
    assert all(room in printed for room in ("samplers.protocol", "objectives", "rows", "training"))
    assert "The longest of" in printed


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import annealfit.problem", ["annealfit.problem"]),
        ("from annealfit import bounds, nothing", ["annealfit.bounds", "annealfit"]),
        ("from annealfit.problem import QuadraticProblem", ["annealfit.problem"]),
        ("if TYPE_CHECKING:\n    import annealfit.problem", []),
        ("def f():\n    from annealfit import bounds", ["annealfit.bounds"]),
        ("import numpy", []),
    ],
)
def test_what_counts_as_an_import(source, expected):
    known = {"annealfit", "annealfit.problem", "annealfit.bounds"}
    assert list(house.imports_of(house.ast.parse(source), known)) == expected
