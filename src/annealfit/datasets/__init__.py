"""Named image data sets."""

from annealfit.datasets.catalogue import DATASETS
from annealfit.datasets.loading import Dataset, load_dataset

__all__ = ["DATASETS", "Dataset", "load_dataset"]
