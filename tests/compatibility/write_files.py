"""Write a sample of every file format with the annealfit that is installed: run once per format version.

    python tests/compatibility/write_files.py tests/compatibility/files-0.1.0

A folder is named by the release that wrote it, or by the format version where there was no release.

What the models answer and where the training would have gone is stored beside them, in `expected.npz`.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris

import annealfit
from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset
from annealfit.models.image_classifier import ImageClassifier
from annealfit.samplers import SimulatedAnnealer
from annealfit.studies.execute import execute
from annealfit.studies.records import RunSpec, Store


def write(folder: Path) -> None:
    folder.mkdir(parents=True)
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    expected = {}
    three = AnnealedClassifier(bits=2, max_iter=5, random_state=1).fit(X, names)
    three.save(folder / "three-classes.safetensors")
    expected["three_classes"] = three.predict_proba(X)
    two = AnnealedClassifier(bits=2, max_iter=5, random_state=1, sampler=SimulatedAnnealer(num_sweeps=50))
    two.fit(X[y > 0], y[y > 0])
    two.save(folder / "two-classes.safetensors")
    expected["two_classes"] = two.predict_proba(X)
    settings = {"bits": 2, "random_state": 1, "tol": 0.0}
    checkpoint = folder / "checkpoint.safetensors"
    AnnealedClassifier(max_iter=5, checkpoint=checkpoint, **settings).fit(X, y)
    expected["resumed"] = AnnealedClassifier(max_iter=10, **settings).fit(X, y).coef_
    data = load_dataset("digits", seed=42)
    features = RandomConvFeatures(random_state=42)
    head = AnnealedClassifier(bits=1, max_iter=3, random_state=42).fit(
        features.fit_transform(data.X_train), data.y_train
    )
    model = ImageClassifier(features, head, data.class_names)
    model.save(folder / "images.safetensors")
    expected["images"] = model.predict_proba(data.X_test)
    if hasattr(annealfit, "AnnealedConvNet"):  # from format version 2 on
        net = annealfit.AnnealedConvNet(n_filters=2, max_iter=9, validation_fraction=0.2, random_state=42)
        net.set_params(checkpoint=folder / "network-checkpoint.safetensors")
        net.fit(data.X_train[:200], data.y_train[:200]).save(folder / "network.safetensors")
        expected["network"] = net.predict_proba(data.X_test)
    record = execute(RunSpec("digits", "qubo", 42, "matched", 5, max_iter=3))
    Store(folder).save(record)
    expected["record_loss"] = np.array(record.loss)
    np.savez_compressed(folder / "expected.npz", allow_pickle=False, **expected)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    write(Path(sys.argv[1]))
