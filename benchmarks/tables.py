"""A plain table, and an exponent: for benchmarks that use all processors as well."""

from collections.abc import Sequence

import numpy as np


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]
    print(f"\n{title}")
    for row in (headings, ["-" * width for width in widths], *rows):
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)), flush=True)


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The slope of the logarithms: 1 is proportional, 0 is no growth."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
