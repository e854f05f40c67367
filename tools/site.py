"""Build the documentation site: `python tools/site.py FOLDER`. Everything is made afresh, and a warning is an error.

The pages are those of docs/; the notebooks, which are run for their results; and a reference made of the docstrings, a
page for each room of the package. A page that is in no list of docs/index.md is an error too, so none is forgotten.
"""

from __future__ import annotations

import ast
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PACKAGE = "annealfit"


def rooms() -> dict[str, list[str]]:
    """The rooms of the package, each a package or a module by itself, with their modules that define something public.

    >>> list(rooms())[0]
    'annealfit.arrays'
    """
    found: dict[str, list[str]] = {}
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        parts = [part for part in path.relative_to(SOURCE).with_suffix("").parts if part != "__init__"]
        if not any(part.startswith("_") for part in parts) and any(public_names(path)):
            in_a_package = path.name == "__init__.py" or len(parts) > 2
            room = ".".join(parts if path.name == "__init__.py" else parts[:-1] if in_a_package else parts)
            found.setdefault(room, []).append(".".join(parts))
    return dict(sorted(found.items()))


def public_names(path: Path) -> Iterator[str]:
    """The classes and functions that a module defines, without those that begin with an underscore."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name


def write_reference(folder: Path) -> None:
    """A page for each room, and all of them in the list of the reference's first page."""
    for room, modules in rooms().items():
        body = "\n\n".join(_module_text(module, alone=len(modules) == 1) for module in modules)
        (folder / f"{room}.md").write_text(f"# {room}\n\n{body}\n", encoding="utf-8")
    index = folder / "index.md"
    listed = "\n".join(rooms())
    text = index.read_text(encoding="utf-8")
    index.write_text(f"{text}\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{listed}\n```\n", encoding="utf-8")


def _module_text(module: str, *, alone: bool) -> str:
    heading = "" if alone else f"## {module}\n\n"
    names = ", ".join(public_names(_path(module)))
    return f"{heading}```{{eval-rst}}\n.. automodule:: {module}\n   :members: {names}\n```"


def _path(module: str) -> Path:
    path = SOURCE / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def keep_places(index: Path) -> None:
    """Take pages that are not written yet from the lists, where they have a place already."""
    lines, in_list = [], False
    for line in index.read_text(encoding="utf-8").splitlines():
        in_list = line.startswith("```{toctree}") or (in_list and line != "```")
        is_page = in_list and line and not line.startswith(("```", ":"))
        if not is_page or (index.parent / f"{line}.md").exists():
            lines.append(line)
    index.write_text("\n".join(lines) + "\n", encoding="utf-8")


def build(target: Path) -> int:
    """Build the site in a folder, which is replaced; returns Sphinx's exit code."""
    from notebook_pages import write_notebook_pages
    from sphinx.cmd.build import build_main

    sys.path.insert(0, str(SOURCE))  # the package of this very tree
    with tempfile.TemporaryDirectory() as scratch:
        pages = Path(scratch) / "pages"
        shutil.copytree(ROOT / "docs", pages)
        write_notebook_pages(ROOT / "notebooks", pages / "notebooks")
        keep_places(pages / "index.md")
        write_reference(pages / "api")
        shutil.rmtree(target, ignore_errors=True)
        code = build_main(["-q", "-W", "--keep-going", "-b", "html", str(pages), str(target)])
    shutil.rmtree(target / ".doctrees", ignore_errors=True)
    for page in target.rglob("*.html"):
        mend_headings(page)
    return int(code)


def mend_headings(page: Path) -> None:
    """Give the captions of the navigation the level that their role as a heading asks for; Sphinx does not."""
    text = page.read_text(encoding="utf-8")
    caption = '<p class="caption" role="heading"'
    page.write_text(text.replace(f"{caption}>", f'{caption} aria-level="2">'), encoding="utf-8")


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site")
    code = build(folder)
    if code == 0:
        print(f"Open {folder / 'index.html'}")
    raise SystemExit(code)
