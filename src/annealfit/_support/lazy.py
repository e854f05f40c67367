"""Lazy imports: a package's names load when first used, and modules that moved are found under their old paths.

`import annealfit` and `annealfit --help` would otherwise import scikit-learn, SciPy and numba, which neither needs.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def lazy_exports(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package (PEP 562); `places` maps each name to its submodule.

    Submodules are found as well: after `import annealfit`, `annealfit.samplers` can be used.

    >>> get, names = lazy_exports("annealfit", {"Encoding": "problems.encoding"})
    >>> get("Encoding").__name__, "Encoding" in names()
    ('Encoding', True)
    """

    def get(name: str) -> Any:
        if name in places:
            value = getattr(import_module(f"{package}.{places[name]}"), name)
            setattr(sys.modules[package], name, value)  # the next access does not call this function
            return value
        if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return get, names


# Modules of 0.2.0 that are now in a package, under the same name.
_NOW_IN = {
    "_support": ("errors", "randomness", "schema", "threads"),
    "data": ("convolution", "datasets", "features", "rows"),
    "models": ("baselines", "image_classifier", "metrics"),
    "problems": ("bounds", "coordinates", "encoding", "export", "problem"),
    "studies": ("instances", "report"),
    "training": ("objectives",),
}
# Import paths of 0.2.0 and their modules now. A package's submodules follow it.
MOVED = {f"annealfit.{name}": f"annealfit.{package}.{name}" for package, names in _NOW_IN.items() for name in names} | {
    "annealfit.classifier": "annealfit.models",
    "annealfit.classifier.estimator": "annealfit.models.classifier",
    "annealfit.experiments": "annealfit.studies",
    "annealfit.experiments.paper": "annealfit.studies.paper_tables",
    "annealfit.experiments.spec": "annealfit.studies.records",
    "annealfit.exported": "annealfit.problems.importing",
    "annealfit.persistence": "annealfit._support.files",
    "annealfit.samplers.adapters": "annealfit.samplers",
    "annealfit.studies.report.html": "annealfit.studies.report.page",
    "annealfit.studies.report.palette": "annealfit.studies.report.drawing",
    "annealfit.training.initialization": "annealfit.training.policies",
}


class MovedModules(MetaPathFinder, Loader):
    """Import hook: an old path of `MOVED`, or one below it, gives the module that took its place."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for an old path, None for every other name."""
        place = self._place(fullname)
        return None if place is None else ModuleSpec(fullname, self, origin=place, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Let the module at the old path look up its names in the new one."""
        place = self._place(module.__name__)
        assert place is not None
        warnings.warn(f"{module.__name__} is now {place}", DeprecationWarning, stacklevel=2)
        moved = import_module(place)
        module.__doc__ = moved.__doc__
        vars(module)["__getattr__"] = lambda name: getattr(moved, name)
        vars(module)["__dir__"] = lambda: dir(moved)

    @staticmethod
    def _place(fullname: str) -> str | None:
        if fullname in MOVED:
            return MOVED[fullname]
        parent, _, leaf = fullname.rpartition(".")
        return f"{MOVED[parent]}.{leaf}" if parent in MOVED else None


def find_moved_modules() -> None:
    """Install the import hook, once."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
