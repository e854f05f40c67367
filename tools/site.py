"""Build the documentation site: `python tools/site.py FOLDER`. Everything is made afresh, and a warning is an error.

The pages are those of docs/, the notebooks, which are run for their results, and a reference made of the docstrings
with a page for each package. A page that is in no list of docs/index.md is an error too, so none is forgotten.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PACKAGE = "annealfit"
# Pages of earlier versions, and where their readers are sent.
MOVED = {
    "annealer": "samplers",
    "exact": "samplers",
    "features": "datasets",
    "gallery": "notebooks/gallery",
    "qpu": "hardware",
    "report": "reproduce",
    "threads": "large",
    "tracking": "guide",
    "tutorial": "guide",
}
LINK = re.compile(r"{py:obj}`(?:([^<`]+) <)?([\w.]+)>?`")  # in docs/api/index.md


def packages() -> dict[str, list[str]]:
    """Return the packages, and the modules at the top level, with their modules that define something public.

    >>> packages()["annealfit.problems"][0]
    'annealfit.problems.bounds'
    """
    found: dict[str, list[str]] = {}
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        parts = [part for part in path.relative_to(SOURCE).with_suffix("").parts if part != "__init__"]
        if not any(part.startswith("_") for part in parts) and any(public_names(path)):
            in_a_package = path.name == "__init__.py" or len(parts) > 2
            package = ".".join(parts if path.name == "__init__.py" else parts[:-1] if in_a_package else parts)
            found.setdefault(package, []).append(".".join(parts))
    return dict(sorted(found.items()))


def public_names(path: Path) -> Iterator[str]:
    """Yield the public classes and functions that a module defines."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name


def write_reference(folder: Path) -> None:
    """Write a page for each package, all of them listed on the reference's first page."""
    for package, modules in packages().items():
        body = "\n\n".join(_module_text(module, alone=len(modules) == 1) for module in modules)
        (folder / f"{package}.md").write_text(f"# {package}\n\n{body}\n", encoding="utf-8")
    index = folder / "index.md"
    listed = "\n".join(packages())
    text = LINK.sub(_linked, index.read_text(encoding="utf-8"))
    index.write_text(f"{text}\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{listed}\n```\n", encoding="utf-8")


def definition(name: str) -> str:
    """Return where a public name is defined, which is where the reference has it.

    >>> definition("annealfit.Encoding")
    'annealfit.problems.encoding.Encoding'
    """
    module, _, attribute = name.rpartition(".")
    thing = getattr(import_module(module), attribute)
    return f"{thing.__module__}.{thing.__qualname__}"


def _linked(link: re.Match[str]) -> str:
    shown, name = link.groups()
    return f"{{py:obj}}`{shown or name} <{definition(name)}>`"


def _module_text(module: str, *, alone: bool) -> str:
    heading = "" if alone else f"## {module}\n\n"
    names = ", ".join(public_names(_path(module)))
    return f"{heading}```{{eval-rst}}\n.. automodule:: {module}\n   :members: {names}\n```"


def _path(module: str) -> Path:
    path = SOURCE / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def keep_places(index: Path) -> None:
    """Remove pages that do not exist yet from the lists."""
    lines, in_list = [], False
    for line in index.read_text(encoding="utf-8").splitlines():
        in_list = line.startswith("```{toctree}") or (in_list and line != "```")
        is_page = in_list and line and not line.startswith(("```", ":"))
        if not is_page or (index.parent / f"{line}.md").exists():
            lines.append(line)
    index.write_text("\n".join(lines) + "\n", encoding="utf-8")


def build(target: Path) -> int:
    """Build the site in a folder, which is replaced, and return Sphinx's exit code."""
    from notebook_pages import write_notebook_pages
    from sphinx.cmd.build import build_main

    sys.path.insert(0, str(SOURCE))  # the package of this source tree
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
    for old, new in MOVED.items():
        write_redirect(target / f"{old}.html", f"{new}.html")
    return int(code)


def write_redirect(page: Path, address: str) -> None:
    """Write a page that sends its readers to another."""
    page.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Moved</title>'
        f'<meta http-equiv="refresh" content="0; url={address}"><p>This page is now <a href="{address}">{address}</a>.',
        encoding="utf-8",
    )


def mend_headings(page: Path) -> None:
    """Add the heading level that Sphinx leaves out of the navigation's captions."""
    text = page.read_text(encoding="utf-8")
    caption = '<p class="caption" role="heading"'
    page.write_text(text.replace(f"{caption}>", f'{caption} aria-level="2">'), encoding="utf-8")


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site")
    code = build(folder)
    if code == 0:
        print(f"Open {folder / 'index.html'}")
    raise SystemExit(code)
