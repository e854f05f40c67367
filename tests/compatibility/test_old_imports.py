"""Import paths that 0.2.0 documented still work, with a warning that names the new one."""

import importlib
import sys

import pytest

from annealfit._support.lazy import MOVED

DOCUMENTED = {
    "annealfit.experiments": ["Prepared"],
    "annealfit.experiments.execute": ["execute"],
    "annealfit.experiments.paper": ["paper_table"],
    "annealfit.experiments.sampler_study": ["compare_samplers"],
    "annealfit.experiments.spec": ["RunSpec"],
    "annealfit.instances": ["best_known", "find_instance", "make_problem", "read_answers", "score_answers"],
    "annealfit.report.drawing": ["dress", "use_logarithm"],
    "annealfit.report.html": ["write_report"],
    "annealfit.report.palette": ["FONT", "MAP", "NUMBERS_FONT", "PAGE", "SERIES"],
    "annealfit.report.tables": ["all_tables"],
}


@pytest.mark.parametrize("path", DOCUMENTED)
def test_documented_names_are_found_under_their_old_paths(path):
    sys.modules.pop(path, None)
    with pytest.warns(DeprecationWarning, match=f"{path} is now annealfit.studies"):
        module = importlib.import_module(path)
    assert all(hasattr(module, name) for name in DOCUMENTED[path])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_moved_module_is_there():
    for path in MOVED:
        importlib.import_module(path)
