"""Named image data sets, and a user's own images and tables."""

from annealfit.data.datasets.catalogue import DATASETS, Source
from annealfit.data.datasets.fetching import data_directory, fetch, is_available, read_local
from annealfit.data.datasets.formats import (
    CorruptFileError,
    DataWarning,
    DigestError,
    DownloadError,
    MissingDataError,
    StorageError,
    TruncatedFileError,
    UnsafeArchiveError,
)
from annealfit.data.datasets.images import GREY_WEIGHTS, RESIZE_METHODS, ImagePreparation, read_image
from annealfit.data.datasets.loading import Dataset, Size, load_dataset, load_table
from annealfit.data.datasets.own_data import image_files, is_feature_table

__all__ = [
    "DATASETS",
    "GREY_WEIGHTS",
    "RESIZE_METHODS",
    "CorruptFileError",
    "DataWarning",
    "Dataset",
    "DigestError",
    "DownloadError",
    "ImagePreparation",
    "MissingDataError",
    "Size",
    "Source",
    "StorageError",
    "TruncatedFileError",
    "UnsafeArchiveError",
    "data_directory",
    "fetch",
    "image_files",
    "is_available",
    "is_feature_table",
    "load_dataset",
    "load_table",
    "read_image",
    "read_local",
]
