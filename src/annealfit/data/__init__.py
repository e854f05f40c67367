"""Data sets, feature extractors, and rows of features in memory, streamed or on Dask."""
