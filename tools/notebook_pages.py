"""Notebooks as pages of the site: their words, their code, and what the code prints and draws when it is run here."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any


def write_notebook_pages(notebooks: Path, folder: Path) -> None:
    """Run every notebook of a folder, and write a page with its results, and its pictures, to another."""
    os.environ["MPLBACKEND"] = "agg"  # no window; `plt.show()` says so
    warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
    folder.mkdir()
    for notebook in sorted(notebooks.glob("*.ipynb")):
        page = notebook_page(notebook, folder)
        (folder / f"{notebook.stem}.md").write_text(page, encoding="utf-8")


def notebook_page(notebook: Path, pictures: Path) -> str:
    """The page of one notebook, as Markdown; its figures are saved in the folder `pictures`."""
    parts: list[str] = []
    names: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):  # for what the notebook writes
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] != "code":
                parts.append(source.replace("](../docs/", "](../"))  # of the site, docs/ is the root
                continue
            parts.append(f"```python\n{source}\n```")
            if printed := run_cell(source, names):
                parts.append(f"```text\n{printed}```")
            figures = save_figures(pictures, f"{notebook.stem}-{len(parts)}")
            parts += [f"![What the lines above draw]({name})" for name in figures]
    parts.append(f"*The notebook itself: `notebooks/{notebook.name}`.*")
    return "\n\n".join(parts) + "\n"


def run_cell(source: str, names: dict[str, Any]) -> str:
    r"""Run a cell among the names of those before it; returns what it prints, and the value of its last line.

    >>> run_cell("x = 2\nprint(x)\nx + 1", {})
    '2\n3\n'
    """
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
            if value is not None:
                print(repr(value))
    return printed.getvalue()


def save_figures(folder: Path, stem: str) -> list[str]:
    """Save what pyplot has open, and close it; returns the names of the files."""
    from matplotlib import pyplot

    saved = []
    for number in pyplot.get_fignums():
        name = f"{stem}-{number}.png"
        pyplot.figure(number).savefig(folder / name, dpi=110)
        saved.append(name)
    pyplot.close("all")
    return saved
