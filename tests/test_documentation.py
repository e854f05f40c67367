"""Every example in README and docs runs: Python blocks one after another, and the program's own commands."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    return [code for found, code in BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]


@pytest.mark.long
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda page: page.name)
def test_python_examples(page, tmp_path):
    program = tmp_path / "examples.py"
    program.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    result = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr


@pytest.mark.long
@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks(notebook, tmp_path):
    document = json.loads(notebook.read_text(encoding="utf-8"))
    code = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)  # kept without results
    program = tmp_path / f"{notebook.stem}.py"
    program.write_text("\n".join("".join(cell["source"]) for cell in code), encoding="utf-8")
    result = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "MPLBACKEND": "agg"},
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.long
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "console")], ids=lambda page: page.name)
def test_console_examples(page, tmp_path):
    commands = [line[2:] for block in blocks(page, "console") for line in block.splitlines() if line.startswith("$ ")]
    assert commands
    for command in commands:
        program, *arguments = shlex.split(command, comments=True)
        if program == "make":  # the Makefile's targets are what runs this test
            targets = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{arguments[0]}:", targets, re.MULTILINE)
        elif program == "annealfit" and "fetch" not in arguments:  # fetching needs the network
            result = subprocess.run(
                [sys.executable, "-m", "annealfit", *arguments],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=300,
                env={**os.environ, "COLUMNS": "100"},
            )
            assert result.returncode == 0, f"{command}: {result.stderr}"
        else:
            assert program in {"pip", "annealfit"}, f"{command} is not checked by anything"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target
