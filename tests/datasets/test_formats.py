"""Bytes that are not trusted: gzip, archives, IDX and CIFAR-10."""

import gzip
import io
import struct
import tarfile
import zipfile

import numpy as np
import pytest

from annealfit.data.datasets import CorruptFileError, TruncatedFileError, UnsafeArchiveError, formats
from annealfit.data.datasets.formats import decompress, parse_cifar10, parse_idx, read_members, read_payload


def idx(array: np.ndarray, code: int = 0x08) -> bytes:
    return bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_comes_back_plain_or_gzipped(tmp_path, suffix):
    path = tmp_path / f"images{suffix}"
    path.write_bytes(gzip.compress(idx(IMAGES)) if suffix else idx(IMAGES))
    np.testing.assert_array_equal(parse_idx(read_payload(path), "images", 3), IMAGES)


@pytest.mark.parametrize(
    ("payload", "error", "message"),
    [
        (b"", TruncatedFileError, "0 bytes, its header alone needs 16"),
        (idx(IMAGES)[:10], TruncatedFileError, "10 bytes"),
        (idx(IMAGES)[:-1], TruncatedFileError, "39 bytes, 2 × 3 × 4 values need 40"),
        (idx(IMAGES) + b"\0", CorruptFileError, "1 bytes too many"),
        (b"\x89PNG" + idx(IMAGES), CorruptFileError, "not an IDX file: it starts with 89 50 4e 47"),
        (idx(IMAGES, 0x07), CorruptFileError, "not an IDX file"),
        (idx(IMAGES[0]) + b"\0" * 8, CorruptFileError, "2 dimensions, 3 are needed"),
    ],
)
def test_bad_idx(payload, error, message):
    with pytest.raises(error, match=message):
        parse_idx(payload, "images", 3)


def test_gzip_cut_short_at_any_byte_is_truncated():
    whole = gzip.compress(idx(IMAGES))
    for length in range(2, len(whole)):
        with pytest.raises(TruncatedFileError, match="cut short"):
            decompress(io.BytesIO(whole[:length]), "images.gz")


def test_gzip_with_a_changed_byte_is_corrupt():
    damaged = bytearray(gzip.compress(bytes(range(256)) * 20))
    damaged[-6] ^= 1  # in the check sum
    with pytest.raises(CorruptFileError, match="corrupt"):
        decompress(io.BytesIO(damaged), "images.gz")


def test_a_decompression_bomb_is_refused(monkeypatch):
    monkeypatch.setattr(formats, "MAX_PAYLOAD_BYTES", 1000)
    with pytest.raises(CorruptFileError, match="more than 1000 bytes"):
        decompress(io.BytesIO(gzip.compress(bytes(10_000))), "bomb.gz")


def test_cifar_planes_become_channels():
    record = bytes([3]) + bytes([10]) * 1024 + bytes([20]) * 1024 + bytes(range(32)) * 32
    images, labels = parse_cifar10(record * 2, "batch")
    assert labels.tolist() == [3, 3]
    assert images.shape == (2, 32, 32, 3)
    assert images[1, 5, 7].tolist() == [10, 20, 7]  # red, green, and blue that is the column


@pytest.mark.parametrize(
    ("payload", "error", "message"),
    [
        (b"", TruncatedFileError, "0 bytes"),
        (bytes(3073 + 5), TruncatedFileError, "3078 bytes, records of 3073 bytes need 6146"),
        (bytes([10]) + bytes(3072), CorruptFileError, "label 10, CIFAR-10 has 0 to 9"),
    ],
)
def test_bad_cifar(payload, error, message):
    with pytest.raises(error, match=message):
        parse_cifar10(payload, "batch")


# Archives


def zip_of(path, *members, link=False):
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("wanted", *members):
            info = zipfile.ZipInfo(name)
            if link and name != "wanted":
                info.external_attr = 0o120777 << 16
            archive.writestr(info, b"content")


def tar_of(path, *members, kind=tarfile.REGTYPE):
    with tarfile.open(path, "w:gz") as archive:
        for name in ("wanted", *members):
            info = tarfile.TarInfo(name)
            info.size = len(b"content")
            if name != "wanted" and kind != tarfile.REGTYPE:
                info.type, info.linkname, info.size = kind, "/etc/passwd", 0
            archive.addfile(info, io.BytesIO(b"content"))


MAKERS = {"zip": zip_of, "tar": tar_of}
ESCAPES = [
    "../outside",
    "/outside",
    "folder/../../outside",
    "..\\outside",
    "C:\\outside",
    "C:outside",
    "\\\\host\\share\\x",
]


@pytest.fixture(params=sorted(MAKERS))
def packing(request):
    return request.param


def read(path, member="wanted"):
    return read_members(path, [member], "archive")[member]


def test_a_member_is_read(tmp_path, packing):
    MAKERS[packing](tmp_path / "archive", "folder/another")
    assert read(tmp_path / "archive") == b"content"
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_path_that_leads_out_is_refused_even_if_not_wanted(tmp_path, packing, escape):
    MAKERS[packing](tmp_path / "archive", escape)
    with pytest.raises(UnsafeArchiveError, match="outside its folder"):
        read(tmp_path / "archive")


def test_links_and_devices_are_refused(tmp_path):
    zip_of(tmp_path / "zip", "link", link=True)
    with pytest.raises(UnsafeArchiveError, match="'link' is a link"):
        read(tmp_path / "zip")
    for kind, word in ((tarfile.SYMTYPE, "a link"), (tarfile.LNKTYPE, "a link"), (tarfile.FIFOTYPE, "neither")):
        tar_of(tmp_path / "tar", "link", kind=kind)
        with pytest.raises(UnsafeArchiveError, match=word):
            read(tmp_path / "tar")


@pytest.mark.parametrize(("limit", "value"), [("MAX_PAYLOAD_BYTES", 6), ("MAX_ARCHIVE_BYTES", 13)])
def test_too_large_a_member_or_sum_is_refused(tmp_path, packing, monkeypatch, limit, value):
    MAKERS[packing](tmp_path / "archive", "another")
    monkeypatch.setattr(formats, limit, value)
    with pytest.raises(UnsafeArchiveError, match="more than any data set"):
        read(tmp_path / "archive")


def test_a_tar_that_does_not_end_is_refused(tmp_path, monkeypatch):
    tar_of(tmp_path / "tar")  # which tarfile fills with zeros up to 10,240 bytes
    monkeypatch.setattr(formats, "MAX_ARCHIVE_BYTES", 5000)
    with pytest.raises(UnsafeArchiveError, match="unpacks to more than 10000 bytes"):
        read(tmp_path / "tar")


def test_cut_short(tmp_path, packing):
    path = tmp_path / "archive"
    MAKERS[packing](path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(TruncatedFileError, match="cut short"):
        read(path)


def test_not_an_archive(tmp_path):
    (tmp_path / "archive").write_bytes(b"<html>Sorry</html>")
    with pytest.raises(CorruptFileError, match="not a"):
        read(tmp_path / "archive")


def test_a_changed_byte_is_noticed(tmp_path):
    zip_of(tmp_path / "zip")
    damaged = bytearray((tmp_path / "zip").read_bytes())
    damaged[damaged.index(b"content")] ^= 1
    (tmp_path / "zip").write_bytes(damaged)
    with pytest.raises(CorruptFileError, match="CRC"):
        read(tmp_path / "zip")
    tar_of(tmp_path / "tar")
    damaged = bytearray((tmp_path / "tar").read_bytes())
    damaged[-8] ^= 1  # gzip's check sum
    (tmp_path / "tar").write_bytes(damaged)
    with pytest.raises(CorruptFileError, match="CRC"):
        read(tmp_path / "tar")


def test_a_member_that_is_not_there(tmp_path, packing):
    MAKERS[packing](tmp_path / "archive")
    with pytest.raises(CorruptFileError, match="lacks a member.*other"):
        read(tmp_path / "archive", "other")


def test_a_folder_is_not_a_file(tmp_path):
    tar_of(tmp_path / "tar", "folder", kind=tarfile.DIRTYPE)
    with pytest.raises(CorruptFileError, match="not a file"):
        read(tmp_path / "tar", "folder")
