"""Tables as CSV and as LaTeX."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

from annealfit.studies.report.cells import Table


def to_csv(table: Table) -> str:
    """Raw numbers at full precision; after a compared column come its spread, the paper's number and the difference."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = []
    for column in table.columns:
        header += [column.name]
        if column.compared:
            header += [f"{column.name}_{part}" for part in ("std", "paper", "difference")]
    writer.writerow(header)
    for row in table.rows:
        fields: list[Any] = []
        for column, cell in zip(table.columns, row, strict=True):
            fields.append(_csv_value(cell.value if column.numeric else cell.text))
            if column.compared:
                fields += [_csv_value(value) for value in (cell.spread, cell.paper, cell.difference)]
        writer.writerow(fields)
    return text.getvalue()


def to_values(table: Table) -> list[dict[str, Any]]:
    """The rows as plain data with the names that the CSV has; None where there is no number."""
    rows = []
    for row in table.rows:
        values: dict[str, Any] = {}
        for column, cell in zip(table.columns, row, strict=True):
            values[column.name] = _finite(cell.value) if column.numeric else cell.text
            if column.compared:
                numbers = {"std": cell.spread, "paper": cell.paper, "difference": cell.difference}
                values |= {f"{column.name}_{part}": _finite(value) for part, value in numbers.items()}
        rows.append(values)
    return rows


def _finite(value: float | str | None) -> float | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv_value(value: float | str | None) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    # A spreadsheet would run text that starts like a formula.
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "±": r"$\pm$", "×": r"$\times$", "÷": r"$\div$", "−": "$-$",
    "≤": r"$\le$", "δ": r"$\delta$", "α": r"$\alpha$", "λ": r"$\lambda$", "✓": "(T)", "✗": "(F)", "–": "--",
    "·": r"$\cdot$", "→": r"$\to$",
}  # fmt: skip


def escape_latex(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> print(escape_latex("50 % of a_b"))
    50 \% of a\_b
    """
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def to_latex(table: Table) -> str:
    """A booktabs table; the paper's number stands in brackets after ours."""
    alignment = "".join("r" if column.numeric else "l" for column in table.columns)
    lines = [
        "% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape_latex(table.title)}. {escape_latex(table.caption)} The paper's number is in brackets.}}"
        if any(column.compared for column in table.columns)
        else rf"\caption{{{escape_latex(table.title)}. {escape_latex(table.caption)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        " & ".join(escape_latex(column.title) for column in table.columns) + r" \\",
        r"\midrule",
    ]
    for row in table.rows:
        texts = [cell.text + (f" [{cell.paper_text}]" if cell.paper_text else "") for cell in row]
        # A row that begins with a bracket would be read as an argument of the line break before it.
        lines.append("{}" * texts[0].startswith("[") + " & ".join(map(escape_latex, texts)) + r" \\")
    lines += [
        r"\bottomrule",
        r"\end{tabular}",
        *(f"\\par {escape_latex(note)}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"
