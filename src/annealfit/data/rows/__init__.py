"""Rows of features with labels and weights, in memory, streamed or on Dask: everything else sees sums over rows."""

from annealfit.data.rows.chunks import NEIGHBOURS, Chunk, DenseChunk, SingleChunk, SparseChunk
from annealfit.data.rows.on_dask import DaskRows
from annealfit.data.rows.rows import (
    ARITHMETICS,
    ChunkedRows,
    InMemoryRows,
    Rows,
    chunk_bounds,
    is_dask,
    is_out_of_core,
    rows_of,
)
from annealfit.data.rows.tables import MappedTable, NpyTable, Selection, SlicedTable

__all__ = [
    "ARITHMETICS",
    "NEIGHBOURS",
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
    "chunk_bounds",
    "is_dask",
    "is_out_of_core",
    "rows_of",
]
