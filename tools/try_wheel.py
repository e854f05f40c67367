"""Build the wheel and the source archive, install each into an empty environment, and run the quick start there.

`python tools/try_wheel.py` uses the Python it is run with; `--keep FOLDER` leaves the archives, `--tag v0.2.0` refuses
a version that is not the tag's. `--without-source` tries the wheel alone.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Parse, build, try."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--tag")
    parser.add_argument("--without-source", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        archives = build(Path(scratch), ["wheel"] if options.without_source else ["wheel", "sdist"])
        for archive in archives:
            version = re.match(r"annealfit-(\d+\.\d+\.\d+[^-]*?)(\.tar\.gz|-)", archive.name)
            if options.tag and (version is None or options.tag != f"v{version[1]}"):
                raise SystemExit(
                    f"the tag is {options.tag}, and the archive {archive.name}; set __version__ or the tag"
                )
            try_archive(archive, Path(scratch) / archive.suffix.strip("."))
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            for archive in archives:
                shutil.copy(archive, options.keep)


def build(folder: Path, kinds: list[str]) -> list[Path]:
    """Make the archives with hatchling, in an environment of its own."""
    python = _environment(folder / "build")
    _run(python, "-m", "pip", "install", "--quiet", "hatchling")
    for kind in kinds:
        _run(python, "-m", "hatchling", "build", "-t", kind, "-d", str(folder / "dist"), cwd=ROOT)
    return sorted((folder / "dist").iterdir())


def try_archive(archive: Path, folder: Path) -> None:
    """Install the archive with nothing optional, and run the README's first Python example and a training."""
    python = _environment(folder)
    _run(python, "-m", "pip", "install", "--quiet", str(archive))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = re.search(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert example is not None, "README.md has no Python example"
    (folder / "quick_start.py").write_text(example[1], encoding="utf-8")
    _run(python, "quick_start.py", cwd=folder)
    program = python.parent / ("annealfit.exe" if os.name == "nt" else "annealfit")
    _run(program, "--version", cwd=folder)
    _run(program, "train", "digits", "--max-iter", "5", "--no-plots", "--out", "runs/first", cwd=folder)
    print(f"{archive.name} works with {sys.version.split()[0]}")


def _environment(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    alone = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    subprocess.run(list(map(str, command)), check=True, cwd=cwd, env=alone)


if __name__ == "__main__":
    main()
