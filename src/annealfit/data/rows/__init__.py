"""Rows of features with their labels and weights, of which everybody else sees sums only."""

from annealfit.data.rows.base import Chunk, Rows, cut_grams
from annealfit.data.rows.chunked import ChunkedRows, rows_of
from annealfit.data.rows.in_memory import DenseChunk, InMemoryRows, SparseChunk
from annealfit.data.rows.on_dask import DaskRows, is_dask
from annealfit.data.rows.tables import MappedTable, NpyTable, Selection, SlicedTable, TableChunk, is_out_of_core

__all__ = [
    "Chunk",
    "ChunkedRows",
    "DaskRows",
    "DenseChunk",
    "InMemoryRows",
    "MappedTable",
    "NpyTable",
    "Rows",
    "Selection",
    "SlicedTable",
    "SparseChunk",
    "TableChunk",
    "cut_grams",
    "is_dask",
    "is_out_of_core",
    "rows_of",
]
