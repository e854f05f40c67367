"""What can be wrong with data files, all derived from `AnnealfitError`."""

from __future__ import annotations

from annealfit._support.errors import AnnealfitError, FileFormatError


class MissingDataError(AnnealfitError, FileNotFoundError):
    """Files of a data set are not in the data directory."""


class DownloadError(AnnealfitError, OSError):
    """No address gave the file that was asked for."""


class StorageError(AnnealfitError, OSError):
    """The data directory cannot be written to, or is full."""


class TruncatedFileError(FileFormatError):
    """A file ends before its contents do."""


class CorruptFileError(FileFormatError):
    """The bytes of a file contradict the file's own format or check sum."""


class DigestError(FileFormatError):
    """A file is whole, but it is not the official one."""


class UnsafeArchiveError(FileFormatError):
    """An archive would write outside its folder, through a link, or more than the data set holds."""


class DataWarning(UserWarning):
    """Local files were used although they could not be confirmed as the official ones."""
