"""Packages that import their names when they are first used.

`import annealfit` and `annealfit --help` would otherwise wait for scikit-learn, SciPy and numba, which neither needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def names_on_use(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package (PEP 562): `places` says which of its modules defines which name.

    The package's own modules are found as well: after `import annealfit`, `annealfit.samplers` is there.

    >>> get, names = names_on_use("annealfit", {"Encoding": "encoding"})
    >>> get("Encoding").__name__, "Encoding" in names()
    ('Encoding', True)
    """

    def get(name: str) -> Any:
        if name in places:
            value = getattr(import_module(f"{package}.{places[name]}"), name)
            setattr(sys.modules[package], name, value)  # from now on without this function
            return value
        if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return get, names
