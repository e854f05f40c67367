"""The named data sets, an entry of `DATASETS` each: descriptions, addresses, digests, and how their files are read.

Digests are SHA-256 of a file's *payload*, its bytes after decompression, so that a mirror may compress anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from annealfit.data.datasets.formats import CorruptFileError, parse_cifar10, parse_idx
from annealfit.data.datasets.images import Part, Parts

Payloads = Mapping[str, bytes]  # by path


@dataclass(frozen=True)
class DataFile:
    """A file below the data directory, downloaded from the first address that has it, by itself or in an archive."""

    path: str
    addresses: tuple[str, ...]
    payload_sha256: str | None = None  # None: none is published, and `archive_sha256` is checked instead
    member: str = ""  # its name in the archive; "" where it is downloaded by itself
    archive_sha256: str | None = None
    optional: bool = False  # the data set can be read, smaller, without it


@dataclass(frozen=True)
class Source:
    """A whole data set: where it comes from and how to read it."""

    description: str
    class_names: tuple[str, ...]
    citation: str
    read: Callable[[Payloads], Parts]  # from the payloads of `files`
    files: tuple[DataFile, ...] = ()  # none where it comes with an installed package
    n_train: int = 1000  # subset sizes of the paper
    n_test: int = 500


def _read_digits(payloads: Payloads) -> Parts:
    from sklearn.datasets import load_digits  # slow to import, and not needed to list the data sets

    digits = load_digits()
    return Parts(Part(digits.target.astype(np.intp), digits.images, white=16.0), None, _DIGITS)


def _idx_paths(folder: str, *prefixes: str) -> list[str]:
    """Paths of images and labels of the training part, then of the test part."""
    kinds = ("images-idx3", "labels-idx1")
    return [f"{folder}/{prefix}-{kind}-ubyte.gz" for prefix in prefixes for kind in kinds]


def _read_idx(
    payloads: Payloads,
    *,
    paths: Sequence[str],
    class_names: tuple[str, ...],
    labels_stored: range = range(10),
    transposed: bool = False,
) -> Parts:
    """Read four IDX files, of which the first `len(class_names)` classes are kept."""

    def read_part(images_path: str, labels_path: str) -> Part:
        images = parse_idx(payloads[images_path], images_path, 3)
        labels = parse_idx(payloads[labels_path], labels_path, 1)
        if len(images) != len(labels):
            raise CorruptFileError(
                f"{images_path} has {len(images)} images, {labels_path} has {len(labels)} labels; "
                f"they must be of the same part: get both again"
            )
        unknown = labels[~np.isin(labels, labels_stored)]
        if len(unknown):
            raise CorruptFileError(
                f"{labels_path} has the label {unknown[0]}; its labels go from "
                f"{labels_stored[0]} to {labels_stored[-1]}: get it again"
            )
        classes = labels.astype(np.intp) - labels_stored[0]
        wanted = classes < len(class_names)
        if not wanted.any():
            raise CorruptFileError(f"{images_path} has no image of the classes {', '.join(class_names)}: get it again")
        if not wanted.all():
            images, classes = images[wanted], classes[wanted]
        return Part(classes, images.transpose(0, 2, 1) if transposed else images, white=255.0)

    return Parts(read_part(*paths[:2]), read_part(*paths[2:]), class_names)


def _read_cifar10(payloads: Payloads) -> Parts:
    def read_part(paths: Sequence[str]) -> Part:
        batches = [parse_cifar10(payloads[path], path) for path in paths]
        images, labels = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
        return Part(labels.astype(np.intp), images, white=255.0)

    train = sorted(path for path in payloads if "data_batch" in path)
    return Parts(read_part(train), read_part([path for path in payloads if "test_batch" in path]), _CIFAR10)


def _like_mnist(
    folder: str,
    description: str,
    class_names: tuple[str, ...],
    citation: str,
    mirrors: tuple[str, ...],
    digests: tuple[str, str, str, str],
) -> Source:
    """Describe a data set laid out as MNIST is: four files, each downloaded by itself."""
    paths = _idx_paths(folder, "train", "t10k")
    files = tuple(
        DataFile(path, tuple(mirror + path.partition("/")[2] for mirror in mirrors), digest)
        for path, digest in zip(paths, digests, strict=True)
    )
    return Source(description, class_names, citation, partial(_read_idx, paths=paths, class_names=class_names), files)


_DIGITS = tuple("0123456789")
_LETTERS = tuple("ABCDEFGHIJ")
_FASHION = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_EMNIST_PATHS = _idx_paths("emnist", "emnist-letters-train", "emnist-letters-test")

DATASETS: dict[str, Source] = {
    "digits": Source(
        "8×8 handwritten digits, 1,797 images, shipped with scikit-learn",
        _DIGITS,
        "Alpaydin, Kaynak 1998: Optical Recognition of Handwritten Digits, UCI; CC BY 4.0",
        _read_digits,
        n_test=540,
    ),
    "mnist": _like_mnist(
        "mnist",
        "28×28 handwritten digits, 60,000 training and 10,000 test images",
        _DIGITS,
        "LeCun, Cortes, Burges: The MNIST database of handwritten digits",
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    "fashion_mnist": _like_mnist(
        "fashion_mnist",
        "28×28 articles of clothing, 60,000 training and 10,000 test images",
        _FASHION,
        "Xiao, Rasul, Vollgraf 2017: Fashion-MNIST, arXiv:1708.07747; MIT licence, Zalando Research",
        (
            # The first is plain http; the digest keeps a tampered file out.
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        (
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    "cifar10": Source(
        "32×32 colour photographs of ten kinds of things, 50,000 training and 10,000 test images",
        _CIFAR10,
        "Krizhevsky 2009: Learning Multiple Layers of Features from Tiny Images",
        _read_cifar10,
        tuple(
            DataFile(
                f"cifar10/cifar-10-batches-bin/{batch}.bin",
                ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
                digest,  # of the file, so that a mirror may pack the archive anew
                f"cifar-10-batches-bin/{batch}.bin",
                optional=batch not in ("data_batch_1", "test_batch"),
            )
            for batch, digest in (
                ("data_batch_1", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
                ("data_batch_2", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
                ("data_batch_3", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
                ("data_batch_4", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
                ("data_batch_5", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
                ("test_batch", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
            )
        ),
    ),
    "emnist": Source(
        "28×28 handwritten letters A to J, upper and lower case, from EMNIST letters",
        _LETTERS,
        "Cohen, Afshar, Tapson, van Schaik 2017: EMNIST, arXiv:1702.05373; NIST Special Database 19",
        # Upstream stores images transposed, and labels A to Z as 1 to 26.
        partial(_read_idx, paths=_EMNIST_PATHS, class_names=_LETTERS, labels_stored=range(1, 27), transposed=True),
        tuple(
            DataFile(
                path,
                (
                    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
                    "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip",
                ),
                member=path.replace("emnist/", "gzip/", 1),
                archive_sha256="fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
            )
            for path in _EMNIST_PATHS
        ),
    ),
    "kmnist": _like_mnist(
        "kmnist",
        "28×28 handwritten hiragana of classical Japanese, 60,000 training and 10,000 test images",
        ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
        '"KMNIST Dataset" (created by CODH), adapted from "Kuzushiji Dataset" (created by NIJL and others), '
        "doi:10.20676/00000341; CC BY-SA 4.0",
        ("http://codh.rois.ac.jp/kmnist/dataset/kmnist/",),
        (
            "7112ba9ec422d98de4885262d4a4dff14cc4fefb81c11ace8bf563a8255df5c3",
            "2a16eeae62da984b8bd24fa32e31d47291f01dac3fe84d5594f304f71e7d374b",
            "76fbd229ce87db80dd281af5e6670de4ad0e42fb30a7bd643972994c47c1f42e",
            "a11dc742be8e781a40a92f53d6a4957e7b7d36df2faa097659131ebfd8fd60c6",
        ),
    ),
}
