"""The errors Cairn raises on purpose: one type per cause, saying what, where, and what would be right."""

from cairn.images.names import one_line


class CairnError(Exception):
    """Base of every expected error: the command line prints it on one line and exits with `exit_code`."""

    exit_code = 1


class ParameterError(CairnError):
    """A key of `params.yaml` is unknown, missing or out of range."""


class _OutsideError(CairnError):
    """Its message may quote names from outside: they cannot break its line or steer the terminal."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class InputError(_OutsideError):
    """A file from outside (CSV, ground truth, run file, descriptor file) breaks its format."""


class ImageError(_OutsideError):
    """An image is missing, corrupt, too large, or not the one the manifest recorded."""


class UnrecordedImageError(ImageError):
    """An image whose file cannot be read, or is another than the manifest recorded: no fault of the image's."""


class SourceError(_OutsideError):
    """A download, archive or checksum is not what it should be."""


class ArtifactError(CairnError):
    """A file between steps is missing, damaged or does not fit its neighbours."""


class LineageError(CairnError):
    """A number, artifact or hash cannot be followed."""


class UsageError(CairnError):
    """The command line was used in a way that cannot work."""

    exit_code = 2
