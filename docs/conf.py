"""The documentation site: `make docs`.

Sphinx, because it is what this field's readers know and what will be kept; MyST, because the pages are Markdown that
reads as well on its own; Furo, because it fits a phone, has dark colours, and fetches nothing from elsewhere.
`tools/site.py` builds it and adds the reference, a page for each package.
"""

import re
from typing import Any

from docutils.nodes import SkipNode, math_block
from docutils.utils.math.latex2mathml import math, parse_latex_math

import annealfit
from annealfit.studies.report.drawing import FONT, NUMBERS_FONT, PAGE

project = "annealfit"
author = "The annealfit developers"
project_copyright = author
version = release = annealfit.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_inline", "dollarmath"]
html_math_renderer = "mathml"
suppress_warnings = ["ref.python"]  # words of a parameter's type are words, not names to link to
exclude_patterns = ["conf.py"]
nitpicky = False
smartquotes = False  # they make a dash of the two hyphens of an option

autodoc_typehints = "none"  # docstrings have the shapes, which say more
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
add_module_names = False
napoleon_google_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = "annealfit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_baseurl = ""
highlight_language = "none"  # a block that names no language has none
templates_path: list[str] = []


def _theme(which: str) -> dict[str, str]:
    """Furo in the colours and fonts of the report page and the plots."""
    colour = {name: getattr(value, which) for name, value in PAGE.items()}
    return {
        "font-stack": FONT,
        "font-stack--monospace": NUMBERS_FONT,
        "color-foreground-primary": colour["ink"],
        "color-foreground-secondary": colour["soft"],
        "color-foreground-muted": colour["soft"],
        "color-background-primary": colour["paper"],
        "color-background-secondary": colour["panel"],
        "color-background-border": colour["line"],
        "color-brand-primary": colour["link"],
        "color-brand-content": colour["link"],
        "color-brand-visited": colour["link"],
        "color-api-name": colour["link"],
        "color-api-pre-name": colour["soft"],
        "color-code-background": colour["panel"],
        "color-inline-code-background": colour["panel"],
    }


html_theme_options = {
    "light_css_variables": _theme("light"),
    "dark_css_variables": _theme("dark"),
    "top_of_page_buttons": [],
}


_SPECIAL = re.compile(r"(?<!\\)([*|]|(?<=\w)_(?!\w))")


def _plain(line: str) -> str:
    """A line of a docstring as reStructuredText: code stays code, and nothing else is markup."""
    parts = line.split("`")
    if len(parts) % 2 == 0:  # a backtick that has no partner
        return _SPECIAL.sub(r"\\\1", line.replace("`", r"\`"))
    return "".join(f"``{part}``" if place % 2 else _SPECIAL.sub(r"\\\1", part) for place, part in enumerate(parts))


def _columns_kept(lines: list[str]) -> list[str]:
    """The lines, with paragraphs that are set in columns shown as they are."""
    kept: list[str] = []
    for paragraph in "\n".join(lines).split("\n\n"):
        in_columns = any(re.search(r"\S {3,}\S|^ ", line) for line in paragraph.split("\n"))
        if in_columns and not paragraph.lstrip().startswith(">>>"):
            kept += ["::", "", *(f"    {line}" for line in paragraph.split("\n")), ""]
        else:
            kept += [*paragraph.split("\n"), ""]
    return kept


def read_docstring(app: object, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text with `code` in it; Sphinx would read them as reStructuredText."""
    if what == "module":
        lines[:] = _columns_kept(lines)
    in_doctest = False
    for place, line in enumerate(lines):
        in_doctest = line.lstrip().startswith(">>>") or (in_doctest and bool(line.strip()))
        # A line of a parameter, `name : type`, is napoleon's to read; a literal asterisk in it would be markup too.
        as_it_is = in_doctest or (what == "module" and line.startswith("    "))
        if not as_it_is and not re.fullmatch(r"\s*[-=]+\s*", line):
            lines[place] = _plain(line)
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # a comment: else napoleon takes what is before a colon in the first line for a type


def skip_requests(app: object, what: str, name: str, thing: object, skip: bool, options: object) -> bool | None:
    """Leave out what scikit-learn adds to every estimator with a `sample_weight`: set_fit_request and its like."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def show_formula(writer: Any, node: Any) -> None:
    """Write a formula as MathML, which browsers render without a script: docutils' own translation of LaTeX."""
    display = isinstance(node, math_block)
    tree = math(display="block") if display else math()
    writer.body.append(parse_latex_math(tree, node.astext()).toxml())
    raise SkipNode


def setup(app: Any) -> None:
    """Read docstrings before napoleon does, and show formulas."""
    app.add_html_math_renderer("mathml", (show_formula, None), (show_formula, None))
    app.connect("autodoc-process-docstring", read_docstring, priority=400)
    app.connect("autodoc-skip-member", skip_requests)
