"""Run the tests in an environment of the lowest versions that pyproject.toml allows.

    python tools/lowest_versions.py [pytest arguments]

Makes `.venv-lowest` with pip, each requirement pinned to its lower bound; what is missing for the machine's Python is
said by pip. CI runs this in a job of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-lowest"
TESTS = ("tests/compatibility", "tests/training", "tests/samplers", "tests/test_classifier.py", "tests/test_export.py")


def lowest(requirements: list[str]) -> list[str]:
    """Each requirement at its lower bound; extras of our own are left to the extras themselves.

    >>> lowest(["numpy>=2.0", "annealfit[plot]"])
    ['numpy==2.0']
    """
    pins = (re.fullmatch(r"([A-Za-z0-9_.-]+)>=([0-9][^,;]*)(?:,.*)?", requirement) for requirement in requirements)
    return [f"{found[1]}=={found[2]}" for found in pins if found]


def main() -> int:
    """Install and test."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    of_extras = [one for name, many in extras.items() if name not in ("all", "dev") for one in many]
    pins = sorted({*lowest(project["dependencies"]), *lowest(of_extras)})
    print("\n".join(pins))
    subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    python = FOLDER / "bin" / "python"
    install = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*install, *pins, "pytest", "hypothesis"], check=True)
    subprocess.run([*install, "--no-deps", "--editable", ROOT], check=True)
    return subprocess.run([python, "-m", "pytest", "-q", *(sys.argv[1:] or TESTS)], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
