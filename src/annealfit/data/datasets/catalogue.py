"""The data sets by name: what they are, where upstream keeps them, and how their files are read.

Digests are SHA-256 of a file's *payload*, its bytes after decompression: a mirror may compress anew, and is
still honest. Adding a data set is adding one entry to `DATASETS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from annealfit.data.datasets.errors import CorruptFileError
from annealfit.data.datasets.formats import parse_cifar10, parse_idx
from annealfit.data.datasets.parts import Part, Parts, array_part


@dataclass(frozen=True)
class DataFile:
    """A file below the data directory."""

    path: str
    payload_sha256: str | None = None  # None: no official digest is published for this file
    member: str = ""  # its name inside the archive it is downloaded in
    optional: bool = False  # the data set can be read, smaller, without it


@dataclass(frozen=True)
class Download:
    """One thing to download, from the first address that has it, and the files it yields."""

    addresses: tuple[str, ...]
    files: tuple[DataFile, ...]
    packing: str = "none"  # none, zip or tar: see `unpacking`
    sha256: str | None = None  # of an archive, checked where a file inside has no digest of its own


@dataclass(frozen=True)
class Source:
    """A data set before any subset is taken: where it comes from and how to read it."""

    description: str
    n_train: int  # subset sizes of the paper
    n_test: int
    class_names: tuple[str, ...]
    citation: str
    read: Callable[[Mapping[str, bytes]], Parts]  # from the payloads of `files`, by path
    downloads: tuple[Download, ...] = ()

    @property
    def files(self) -> tuple[DataFile, ...]:
        """Every file of the data set; none where it comes with an installed package."""
        return tuple(file for download in self.downloads for file in download.files)


def _read_digits(payloads: Mapping[str, bytes]) -> Parts:
    from sklearn.datasets import load_digits  # here: the names of data sets are needed without it

    digits = load_digits()
    return Parts(array_part(digits.images, digits.target, white=16.0), None, _DIGITS)


def _idx_reader(
    folder: str,
    parts: Mapping[str, str],
    class_names: tuple[str, ...],
    *,
    labels_stored: range = range(10),
    transposed: bool = False,
) -> Callable[[Mapping[str, bytes]], Parts]:
    """A reader of four IDX files, of which the first `len(class_names)` classes are kept."""

    def read_part(payloads: Mapping[str, bytes], prefix: str) -> Part:
        images_path, labels_path = _idx_paths(folder, prefix)
        images = parse_idx(payloads[images_path], images_path, 3)
        labels = parse_idx(payloads[labels_path], labels_path, 1)
        if len(images) != len(labels):
            raise CorruptFileError(
                f"{images_path} has {len(images)} images, {labels_path} has {len(labels)} labels; "
                f"they must be of the same part: get both again"
            )
        if not np.isin(labels, labels_stored).all():
            raise CorruptFileError(
                f"{labels_path} has the label {int(labels[~np.isin(labels, labels_stored)][0])}; its labels go from "
                f"{labels_stored[0]} to {labels_stored[-1]}: get it again"
            )
        classes = labels.astype(np.intp) - labels_stored[0]
        wanted = classes < len(class_names)
        if not wanted.all():
            images, classes = images[wanted], classes[wanted]
        if not len(classes):
            raise CorruptFileError(f"{images_path} has no image of the classes {', '.join(class_names)}: get it again")
        return array_part(images.transpose(0, 2, 1) if transposed else images, classes, white=255.0)

    def read(payloads: Mapping[str, bytes]) -> Parts:
        return Parts(read_part(payloads, parts["train"]), read_part(payloads, parts["test"]), class_names)

    return read


def _read_cifar10(payloads: Mapping[str, bytes]) -> Parts:
    def read_part(names: list[str]) -> Part:
        batches = [parse_cifar10(payloads[name], name) for name in names]
        images, labels = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
        return array_part(images, labels, white=255.0)

    train = sorted(path for path in payloads if "data_batch" in path)
    return Parts(read_part(train), read_part([_cifar10_path("test_batch")]), _CIFAR10)


def _idx_paths(folder: str, prefix: str) -> tuple[str, str]:
    return f"{folder}/{prefix}-images-idx3-ubyte.gz", f"{folder}/{prefix}-labels-idx1-ubyte.gz"


def _cifar10_path(batch: str) -> str:
    return f"cifar10/cifar-10-batches-bin/{batch}.bin"


def _idx_downloads(folder: str, mirrors: tuple[str, ...], digests: tuple[str, str, str, str]) -> tuple[Download, ...]:
    """The four files of a data set laid out as MNIST is, each downloaded by itself."""
    paths = _idx_paths(folder, "train") + _idx_paths(folder, "t10k")
    return tuple(
        Download(tuple(mirror + path.partition("/")[2] for mirror in mirrors), (DataFile(path, digest),))
        for path, digest in zip(paths, digests, strict=True)
    )


_DIGITS = tuple("0123456789")
_LETTERS = tuple("ABCDEFGHIJ")
_HIRAGANA = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
_FASHION = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_MNIST_PARTS = {"train": "train", "test": "t10k"}
_EMNIST_PARTS = {"train": "emnist-letters-train", "test": "emnist-letters-test"}

DATASETS: dict[str, Source] = {
    "digits": Source(
        "8×8 handwritten digits, 1,797 images, shipped with scikit-learn",
        n_train=1000,
        n_test=540,
        class_names=_DIGITS,
        citation="Alpaydin, Kaynak 1998: Optical Recognition of Handwritten Digits, UCI; CC BY 4.0",
        read=_read_digits,
    ),
    "mnist": Source(
        "28×28 handwritten digits, 60,000 training and 10,000 test images",
        n_train=1000,
        n_test=500,
        class_names=_DIGITS,
        citation="LeCun, Cortes, Burges: The MNIST database of handwritten digits",
        read=_idx_reader("mnist", _MNIST_PARTS, _DIGITS),
        downloads=_idx_downloads(
            "mnist",
            (
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
            (
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ),
    ),
    "fashion_mnist": Source(
        "28×28 articles of clothing, 60,000 training and 10,000 test images",
        n_train=1000,
        n_test=500,
        class_names=_FASHION,
        citation="Xiao, Rasul, Vollgraf 2017: Fashion-MNIST, arXiv:1708.07747; MIT licence, Zalando Research",
        read=_idx_reader("fashion_mnist", _MNIST_PARTS, _FASHION),
        downloads=_idx_downloads(
            "fashion_mnist",
            (
                # The first is plain http; the digest is what keeps a tampered file out.
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
    ),
    "cifar10": Source(
        "32×32 colour photographs of ten kinds of things, 50,000 training and 10,000 test images",
        n_train=1000,
        n_test=500,
        class_names=_CIFAR10,
        citation="Krizhevsky 2009: Learning Multiple Layers of Features from Tiny Images",
        read=_read_cifar10,
        downloads=(
            Download(
                ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
                tuple(
                    DataFile(_cifar10_path(batch), digest, f"cifar-10-batches-bin/{batch}.bin", optional)
                    for batch, digest, optional in (
                        ("data_batch_1", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5", False),
                        ("data_batch_2", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed", True),
                        ("data_batch_3", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67", True),
                        ("data_batch_4", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48", True),
                        ("data_batch_5", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add", True),
                        ("test_batch", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b", False),
                    )
                ),
                packing="tar",
                # Not checked, since every file inside has its digest: a mirror may pack anew. This is the archive
                # whose MD5 upstream prints as c32a1d4ab5d03f1284b67883e8d87530.
                sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        ),
    ),
    "emnist": Source(
        "28×28 handwritten letters A to J, upper and lower case, from EMNIST letters",
        n_train=1000,
        n_test=500,
        class_names=_LETTERS,
        citation="Cohen, Afshar, Tapson, van Schaik 2017: EMNIST, arXiv:1702.05373; NIST Special Database 19",
        # Upstream stores images transposed, and labels A to Z as 1 to 26.
        read=_idx_reader("emnist", _EMNIST_PARTS, _LETTERS, labels_stored=range(1, 27), transposed=True),
        downloads=(
            Download(
                (
                    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
                    "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip",
                ),
                # No digest of the files' payloads is published. The archive's is checked on download, and the
                # digests of what came out of it are kept beside the files: see `local_files.RECORD`.
                tuple(
                    DataFile(path, member=path.replace("emnist/", "gzip/"))
                    for prefix in _EMNIST_PARTS.values()
                    for path in _idx_paths("emnist", prefix)
                ),
                packing="zip",
                sha256="fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
            ),
        ),
    ),
    "kmnist": Source(
        "28×28 handwritten hiragana of classical Japanese, 60,000 training and 10,000 test images",
        n_train=1000,
        n_test=500,
        class_names=_HIRAGANA,
        citation=(
            '"KMNIST Dataset" (created by CODH), adapted from "Kuzushiji Dataset" (created by NIJL and others), '
            "doi:10.20676/00000341; CC BY-SA 4.0"
        ),
        read=_idx_reader("kmnist", _MNIST_PARTS, _HIRAGANA),
        downloads=_idx_downloads(
            "kmnist",
            ("http://codh.rois.ac.jp/kmnist/dataset/kmnist/",),
            (
                "7112ba9ec422d98de4885262d4a4dff14cc4fefb81c11ace8bf563a8255df5c3",
                "2a16eeae62da984b8bd24fa32e31d47291f01dac3fe84d5594f304f71e7d374b",
                "76fbd229ce87db80dd281af5e6670de4ad0e42fb30a7bd643972994c47c1f42e",
                "a11dc742be8e781a40a92f53d6a4957e7b7d36df2faa097659131ebfd8fd60c6",
            ),
        ),
    ),
}
