"""Carry out one of the paper's runs: load, extract features, train, measure."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from annealfit.classifier import AnnealedConvNet
from annealfit.datasets import Dataset, DataWarning, load_dataset
from annealfit.experiments.measure import Fitted, environment, fit_annealed, fit_optimum, fit_sgd, measure
from annealfit.experiments.network_run import (
    FittedNetwork,
    fit_frozen_network,
    fit_network,
    fit_network_by_adam,
    measure_network,
)
from annealfit.experiments.prepared import Prepared
from annealfit.experiments.records import Record
from annealfit.experiments.spec import (
    ADAM_NETWORK,
    CLASSICAL,
    FROZEN_NETWORK,
    NETWORK_METHODS,
    OPTIMUM,
    RunSpec,
)
from annealfit.features import RandomConvFeatures
from annealfit.threads import blas_threads
from annealfit.training.loop import is_interrupt

REGULARIZATION = 1e-3  # the paper's λ, for every method
_SIZES: dict[str, Any] = {"n_filters": 2, "kernel_size": 3, "pool_size": 2}  # of the paper's network


def execute(spec: RunSpec, data_dir: str | None = None) -> Record:
    """The record of a run; an error becomes a record too, so that the other runs go on.

    Linear algebra is kept to one thread: runs are what is done in parallel, and a sum's last bits must not depend
    on how many processors a worker has.
    """
    try:
        with blas_threads(0), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # how far a run came is in its record
            prepared = _prepare(spec.dataset, spec.seed, data_dir)
            if spec.method in NETWORK_METHODS:
                return measure_network(prepared.dataset, spec.label, _fit_network(spec, prepared.dataset), spec)
            return measure(prepared, spec.label, _fit(spec, prepared), spec)
    except Exception as error:
        if is_interrupt(error):  # not a fault of the run
            raise KeyboardInterrupt from error
        return Record(spec.label, spec, error=f"{type(error).__name__}: {error}", environment=environment())


def _fit(spec: RunSpec, prepared: Prepared) -> Fitted:
    if spec.method == CLASSICAL:
        return fit_sgd(prepared, REGULARIZATION, spec.seed)
    if spec.method == OPTIMUM:
        return fit_optimum(prepared, REGULARIZATION)
    return fit_annealed(prepared, spec.classifier())


def _fit_network(spec: RunSpec, dataset: Dataset) -> FittedNetwork:
    net = AnnealedConvNet(**_SIZES, regularization=REGULARIZATION, random_state=spec.seed)
    if spec.method == ADAM_NETWORK:
        return fit_network_by_adam(dataset, net)
    return (fit_frozen_network if spec.method == FROZEN_NETWORK else fit_network)(dataset, net)


@lru_cache(maxsize=8)  # the methods of one data set and seed share images and features
def _prepare(dataset: str, seed: int, data_dir: str | None) -> Prepared:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # the command line says it once, for all runs
        images = load_dataset(dataset, seed=seed, data_dir=data_dir)
    return Prepared.of(images, RandomConvFeatures(**_SIZES, random_state=seed))
