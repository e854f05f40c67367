"""What several commands begin with: images and their features, and the classifier of a preset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import annealfit
from annealfit.cli.options import Preset
from annealfit.datasets import load_dataset

if TYPE_CHECKING:
    from annealfit.classifier import AnnealedClassifier
    from annealfit.experiments import Prepared


def prepare(
    dataset: str, filters: int, kernel: int, pool: int, standardize: str, size: int, download: bool, seed: int
) -> Prepared:
    """The images of a data set and their random convolution features, all decided by the seed."""
    features = annealfit.RandomConvFeatures(
        n_filters=filters, kernel_size=kernel, pool_size=pool, standardize=standardize, random_state=seed
    )
    return annealfit.experiments.Prepared.of(load_dataset(dataset, seed=seed, size=size, download=download), features)


def make_classifier(preset: Preset, bits: int | None, max_iter: int | None, seed: int) -> AnnealedClassifier:
    """The classifier of a preset; None takes the preset's own bits or iterations."""
    if preset == Preset.annealfit:
        classifier = annealfit.AnnealedClassifier()
        if bits is not None:
            classifier.set_params(bits=bits)
    else:
        classifier = annealfit.AnnealedClassifier.from_paper(20 if bits is None else bits, preset=preset)
    if max_iter is not None:
        classifier.set_params(max_iter=max_iter)
    return classifier.set_params(random_state=seed)
