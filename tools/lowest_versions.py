"""Run the tests in an environment of the lowest versions that pyproject.toml allows.

    python tools/lowest_versions.py [--venv FOLDER] [pytest arguments]

Makes the folder (`.venv-lowest`) with pip, each requirement pinned to its lower bound; what is missing for the
machine's Python is said by pip. CI runs this in a job of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = (
    *("tests/compatibility", "tests/datasets", "tests/features", "tests/objectives", "tests/report", "tests/rows"),
    *("tests/samplers", "tests/training", "tests/test_classifier.py", "tests/test_cli.py", "tests/problems"),
    "tests/test_image_classifier.py",
)
TEST_TOOLS = ("pytest", "pytest-xdist", "autograd", "hypothesis", "h5py", "selenium", "axe-core-python")
_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+(?:\[[a-z,]+\])?)>=([0-9][^,;]*)(?:,.*)?")


def lowest(requirements: list[str]) -> list[str]:
    """Each requirement at its lower bound; extras of our own are left to the extras themselves.

    >>> lowest(["numpy>=2.0,<3", "dask[array]>=2024.8", "annealfit[plot]"])
    ['numpy==2.0', 'dask[array]==2024.8']
    """
    found = map(_REQUIREMENT.fullmatch, requirements)
    return [f"{match[1]}=={match[2]}" for match in found if match]


def main() -> int:
    """Install and test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv-lowest")
    options, tests = parser.parse_known_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    of_extras = [one for name, many in extras.items() if name not in ("all", "docs", "dev") for one in many]
    pins = sorted({*lowest(project["dependencies"]), *lowest(of_extras)})
    print("\n".join(pins), flush=True)
    subprocess.run([sys.executable, "-m", "venv", options.venv], check=True)
    python = options.venv.absolute() / "bin" / "python"
    install = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*install, *pins, *TEST_TOOLS], check=True)
    subprocess.run([*install, "--no-deps", "--editable", ROOT], check=True)
    # Compiled code of its own: other versions of numba write to the same places.
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(options.venv.absolute() / "numba")}
    command = [python, "-m", "pytest", "-q", *(tests or TESTS)]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
