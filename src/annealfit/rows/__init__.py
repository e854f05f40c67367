"""Rows of features with their labels and weights, of which everybody else sees sums only."""

from annealfit.rows.base import Chunk, Rows
from annealfit.rows.in_memory import DenseChunk, InMemoryRows, SparseChunk

__all__ = ["Chunk", "DenseChunk", "InMemoryRows", "Rows", "SparseChunk"]
