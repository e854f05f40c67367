"""ImageClassifier: features and classifier together, as one file that takes images."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.errors import FileFormatError
from annealfit._support.files import StrPath, read_tensors, write_tensors
from annealfit.data.datasets import GREY_WEIGHTS, RESIZE_METHODS, ImagePreparation, read_image
from annealfit.data.features import OnnxFeatures, RandomConvFeatures
from annealfit.models import AnnealedClassifier

_KIND = "image classifier"


@dataclass(frozen=True, eq=False)
class ImageClassifier:
    """A fitted feature extractor, a fitted classifier on its features, and the names of the classes."""

    features: RandomConvFeatures | OnnxFeatures
    classifier: AnnealedClassifier
    class_names: tuple[str, ...]  # in the order of `classifier.classes_`
    preparation: ImagePreparation = field(default_factory=ImagePreparation)  # of the images it was trained on

    def predict_proba(self, images: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of shape (N, C) of images with values in [0, 1]."""
        return self.classifier.predict_proba(self.features.transform(images))

    def save(self, path: StrPath) -> None:
        """Write one safetensors file."""
        tensors: dict[str, NDArray[Any]] = {}
        manifest: dict[str, Any] = {
            "class_names": list(self.class_names),
            "preparation": {name: getattr(self.preparation, name) for name in ("color", "resize", "grey")},
        }
        for part in ("features", "classifier"):
            part_tensors, manifest[part] = getattr(self, part).to_tensors()
            tensors.update({f"{part}.{name}": tensor for name, tensor in part_tensors.items()})
        write_tensors(path, _KIND, tensors, manifest)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read a file written by `save`; corrupt, truncated or foreign files are refused."""
        tensors, manifest = read_tensors(path, _KIND)
        kinds: dict[str, Any] = {"onnx": OnnxFeatures, "random convolution": RandomConvFeatures}
        kind = manifest["features"].get("kind")  # earlier versions had but one, and did not name it
        features = (RandomConvFeatures if kind is None else kinds[kind.one_of(kinds)]).from_tensors(
            tensors.under("features."), manifest["features"]
        )
        classifier = AnnealedClassifier.from_tensors(tensors.under("classifier."), manifest["classifier"])
        tensors.real("classifier.coef", (None, features.n_features_out_))  # the numbers of features agree
        names = tuple(name.text() for name in manifest["class_names"].items())
        if len(names) < len(classifier.classes_):
            manifest["class_names"].refuse(f"a name for each of {len(classifier.classes_)} classes")
        preparation, stored = ImagePreparation(), manifest.get("preparation")
        if stored is not None:  # 0.1.0 stored none: its command line always resized by area, without colour
            grey = stored.get("grey")  # 0.2.0 had one conversion, and did not name it
            preparation = ImagePreparation(
                color=stored["color"].flag(),
                resize=stored["resize"].one_of(RESIZE_METHODS),
                grey="luma" if grey is None else grey.one_of(GREY_WEIGHTS),
            )
        return cls(features, classifier, names, preparation)

    def read_image(self, path: StrPath) -> NDArray[np.float64]:
        """Read an image file and prepare it as the training images were: grey conversion and size."""
        height, width, channels = self.features.image_shape_
        if channels not in (1, 3):
            raise FileFormatError(f"the model takes images of {channels} channels; image files have 1 or 3")
        preparation = replace(self.preparation, size=(height, width), color=channels == 3)
        return preparation(read_image(path)[None]).reshape(height, width, channels)
