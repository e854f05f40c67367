"""Named image data sets, and a user's own."""

from annealfit.data.datasets.catalogue import DATASETS, Source
from annealfit.data.datasets.errors import (
    CorruptFileError,
    DataWarning,
    DigestError,
    DownloadError,
    MissingDataError,
    StorageError,
    TruncatedFileError,
    UnsafeArchiveError,
)
from annealfit.data.datasets.feature_tables import is_feature_table, load_table
from annealfit.data.datasets.fetching import fetch
from annealfit.data.datasets.loading import Dataset, load_dataset
from annealfit.data.datasets.local_files import is_available

__all__ = [
    "DATASETS",
    "CorruptFileError",
    "DataWarning",
    "Dataset",
    "DigestError",
    "DownloadError",
    "MissingDataError",
    "Source",
    "StorageError",
    "TruncatedFileError",
    "UnsafeArchiveError",
    "fetch",
    "is_available",
    "is_feature_table",
    "load_dataset",
    "load_table",
]
