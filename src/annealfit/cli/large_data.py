"""Data to train on that may be larger than memory, or work that is done elsewhere."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import annealfit
from annealfit._support.description import describe
from annealfit._support.errors import InvalidInputError, choose, require
from annealfit._support.threads import free_memory
from annealfit.cli.display import errors, plain
from annealfit.cli.preparing import Job, network_job
from annealfit.data.datasets import Dataset, is_feature_table, load_dataset, load_table

if TYPE_CHECKING:
    from annealfit.data.rows import DaskRows
    from annealfit.studies import Prepared, TrainingRun
    from annealfit.training.loop import Callback

_SHARE_OF_MEMORY = 0.25  # images, or features, of more than that are kept on a disk
_CHUNKS_PER_WORKER = 8  # so that one that is faster has more to do


@dataclass(frozen=True)
class Asked:
    """The data that a training was asked for."""

    dataset: str
    labels: str | None
    size: int
    color: bool
    resize: str
    subset: dict[str, Any]  # n_train and n_test, where they are given
    download: bool
    seed: int

    def config(self) -> dict[str, Any]:
        """What the run's configuration says of it."""
        told = {name: value for name, value in asdict(self).items() if name not in ("size", "subset", "download")}
        return {**told, "image_size": self.size, **self.subset}

    def images(self, *, lazy: bool = False) -> Dataset:
        """The images; those of a lazy one are read when they are asked for."""
        options: dict[str, Any] = {"seed": self.seed, "size": self.size, "color": self.color, "resize": self.resize}
        return load_dataset(self.dataset, download=self.download, lazy=lazy, **options, **self.subset)


@dataclass(frozen=True)
class Where:
    """What is trained, where features are kept, and who works on them."""

    train_filters: bool
    on_disk: bool
    scheduler: str | None
    baselines: bool | None

    def check(self, asked: Asked) -> None:
        """Raise where the options contradict each other."""
        is_table = is_feature_table(Path(asked.dataset))
        if self.train_filters and (is_table or self.on_disk or self.scheduler is not None):
            raise InvalidInputError(
                "--train-filters needs images in memory, and makes their features anew at every step: leave out "
                "--on-disk and --scheduler, and give images instead of a table"
            )
        if asked.labels is not None and not is_table:
            raise InvalidInputError(
                "--labels are for tables of features; images are labelled by their folders or files"
            )


@contextmanager
def opened_job(asked: Asked, sizes: dict[str, Any], classifier: Any, where: Where) -> Iterator[Job]:
    """The training that was asked for, its data at hand; what was written or connected to for it is gone afterwards."""
    where.check(asked)
    if where.train_filters:
        yield network_job(asked.images(), sizes, classifier)
        return
    with tempfile.TemporaryDirectory(prefix="annealfit-") as folder:
        prepare = _table if is_feature_table(Path(asked.dataset)) else _images
        prepared = prepare(asked, sizes, Path(folder), on_disk=where.on_disk)
        with _on_cluster(where.scheduler, prepared) as rows:
            yield _job(prepared, classifier, where.baselines, rows)


def _job(prepared: Prepared, classifier: Any, baselines: bool | None, rows: DaskRows | None) -> Job:
    X, y = (prepared.X_train, prepared.dataset.y_train) if rows is None else (rows, None)

    def run(callbacks: Sequence[Callback]) -> TrainingRun:
        beside = prepared.is_in_memory if baselines is None else baselines
        return annealfit.studies.run_training(prepared, classifier, callbacks, baselines=beside, rows=(X, y))

    def notes(run: TrainingRun) -> list[str]:
        return [] if rows is None else [_told(rows, run.classifier.n_iter_)]

    features = None if prepared.features is None else describe(prepared.features.get_params())
    return Job(prepared.dataset, classifier, X, y, features, run, notes)


def _told(rows: DaskRows, iterations: int) -> str:
    """What was sent, for the reader of the run."""
    traffic, per = rows.traffic, max(iterations, 1)
    there, back = traffic.bytes_of_terms / per / 1024, traffic.bytes_of_sums / per / 1024
    return (
        f"Dask: per iteration {traffic.passes / per:.1f} passes over the rows, {there:.1f} KiB to every worker and "
        f"{back:.1f} KiB back."
    )


def _table(asked: Asked, sizes: dict[str, Any], folder: Path, *, on_disk: bool) -> Prepared:
    choose("--standardize (of a table)", sizes["standardize"], ("none", "features"))
    n_train, n_test = asked.subset.get("n_train"), asked.subset.get("n_test")
    path = Path(asked.dataset)
    dataset = load_table(path, asked.labels, folder, seed=asked.seed, n_train=n_train, n_test=n_test)
    if sizes["standardize"] == "none":
        return annealfit.studies.Prepared.of_rows(dataset)
    return annealfit.studies.Prepared.of(dataset, annealfit.data.features.RowScaler())


def _images(asked: Asked, sizes: dict[str, Any], folder: Path, *, on_disk: bool) -> Prepared:
    features = annealfit.RandomConvFeatures(**sizes, random_state=asked.seed)
    images = asked.images(lazy=True)
    needed = _bytes_of_features(images, features)
    if on_disk or needed > _SHARE_OF_MEMORY * (free_memory() or np.inf):
        errors.print(
            plain(f"Features are kept in a temporary file ({needed / 2**31:.2f} GiB), and read from there."),
            soft_wrap=True,
        )
        return annealfit.studies.Prepared.on_disk(images, features, folder)
    in_memory = replace(images, X_train=images.X_train[:], X_test=images.X_test[:])
    return annealfit.studies.Prepared.of(in_memory, features)


def _bytes_of_features(images: Dataset, features: annealfit.RandomConvFeatures) -> int:
    """Of both parts, in double precision, or of the images themselves where they are larger."""
    values = max(features.fit(images.X_train[:2]).n_features_out_, int(np.prod(images.X_train.shape[1:])))
    return 8 * values * (len(images.y_train) + len(images.y_test))


@contextmanager
def _on_cluster(address: str | None, prepared: Prepared) -> Iterator[DaskRows | None]:
    """The training rows on the workers of a cluster; None without one."""
    if address is None:
        yield None
        return
    distributed = require("distributed", extra="dask", purpose="working on a Dask cluster")
    try:
        client = distributed.Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"--scheduler {address}: no Dask scheduler answers there ({error})") from error
    with client:
        workers = max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
        size = max(1, -(-len(prepared.dataset.y_train) // (workers * _CHUNKS_PER_WORKER)))
        yield annealfit.data.rows.DaskRows(_as_dask_array(prepared.X_train, size), prepared.dataset.y_train)


def _as_dask_array(table: Any, size: int) -> Any:
    """Rows in memory are sent, once; what is in a file the workers read themselves."""
    arrays = require("dask.array", extra="dask", purpose="working on a Dask cluster")
    from dask import delayed

    if isinstance(table, np.ndarray):
        return arrays.from_array(table, chunks=(size, table.shape[1]))
    parts = [table.part(first, min(first + size, len(table))) for first in range(0, len(table), size)]
    read = delayed(_whole, pure=False)
    return arrays.concatenate(
        [arrays.from_delayed(read(delayed(part, traverse=False)), part.shape, part.dtype) for part in parts]
    )


def _whole(table: Any) -> Any:
    return table[0 : len(table)]
