"""The encoder `precomputed`: a user's own features, brought as files, in place of any model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from cairn.encoders.protocol import Learned, Training
from cairn.errors import InputError

LEARNING_KEYS = ()
FEATURE_MODULES = ()
MANIFEST = "manifest"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Side(_Model):
    """Where the features of the gallery, the queries or the training images are."""

    file: str | None = None
    """Below the folder `features`; null where `features` is the file itself."""
    array: str | None = None
    """Name of the array (key, variable, dataset, column); null for the only one, in `.mat` for X and Q."""
    ids: str | None = None
    """Whose rows they are: `manifest` (rows in the order of the manifest, or of the ground truth's queries), the
    name of a file of ids below `features` (`.txt`, `.json`, `.npy`), or the name of an array or column of the
    same file. null: `manifest` in `.mat`, the columns image_id and query_id in Parquet."""
    extra: Literal["refuse", "ignore"] = "refuse"
    """What to do with ids that the benchmark does not have."""

    @field_validator("file")
    @classmethod
    def _stays_below(cls, value: str | None) -> str | None:
        if value is not None and (not value or value.startswith("/") or ".." in PurePosixPath(value).parts):
            raise ValueError("the name of a file below the folder `features` is expected")
        return value


class Facts(_Model):
    """What a reader of the numbers should know of the model behind the features."""

    weights: str = "not declared"
    licence: str = "not declared"
    pretraining: str = "not declared"
    overlap: str = "not declared"


class Parameters(_Model):
    """Keys of `precomputed`; in `features`, `{benchmark}` stands for the benchmark's name."""

    features: Annotated[str, Field(min_length=1)]
    """A file, or a folder with all files; relative to the project, or absolute."""
    images: Side = Side()
    queries: Side = Side()
    training: Side | None = None
    norm: Literal["l2", "none"] | None = None
    """`l2`: rows are L2-normalised; `none`: inner products of the rows as they are; null: they must be unit."""
    dtype: Literal["float16", "float32"] | None = None
    """What is stored; null for float16 where the file has float16, float32 for every other type."""
    facts: Facts = Facts()


@dataclass(frozen=True)
class Precomputed:
    """Stands for the model that made the features: it describes no image."""

    parameters: Parameters
    features = None
    colour = True
    in_workers = True
    learns = False

    def key(self) -> dict[str, Any]:
        """What decides the descriptors besides the files, whose hashes stand in the lineage."""
        return {"encoder": "precomputed", **self.parameters.model_dump(mode="json", exclude={"facts"})}

    def prepare(self, image: np.ndarray) -> NoReturn:
        """InputError: there is no model here."""
        raise InputError("precomputed features describe the images they were made from, and no others")

    def learn(self, training: Training, count: int) -> Learned:
        """Nothing."""
        return {}

    def describe(self, prepared: Sequence[Any], learned: Learned) -> NoReturn:
        """InputError: there is no model here."""
        raise InputError("precomputed features describe the images they were made from, and no others")


def create(parameters: Parameters) -> Precomputed:
    """The encoder with these parameters."""
    return Precomputed(parameters)


def external(settings: Mapping[str, Any], benchmark: str) -> dict[str, str]:
    """The user's own path that a run reads: name → path."""
    return {"features": features_path(settings["features"], benchmark)}


def features_path(template: str, benchmark: str) -> str:
    """`features` with the benchmark's name filled in."""
    return template.replace("{benchmark}", benchmark)
