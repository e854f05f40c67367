"""Rows of features with labels and weights, in memory, streamed or on Dask: everything else sees sums over rows."""

from annealfit.data.rows.chunks import Chunk, DenseChunk, SingleChunk, SparseChunk
from annealfit.data.rows.on_dask import DaskRows
from annealfit.data.rows.rows import ARITHMETICS, ChunkedRows, InMemoryRows, Rows, rows_of, thinning
from annealfit.data.rows.tables import MappedTable, NpyTable, Selection, SlicedTable, is_dask, is_out_of_core

__all__ = [
    "ARITHMETICS",
    "Chunk",
    "ChunkedRows",
    "DaskRows",
    "DenseChunk",
    "InMemoryRows",
    "MappedTable",
    "NpyTable",
    "Rows",
    "Selection",
    "SingleChunk",
    "SlicedTable",
    "SparseChunk",
    "is_dask",
    "is_out_of_core",
    "rows_of",
    "thinning",
]
