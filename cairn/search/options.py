"""What may be done around an exact search: database augmentation, query expansion, score normalisation.

Each changes what the ranking's numbers mean, so each is part of the stage's name (`Options.slug`).

Average query expansion (AQE): Chum, Philbin, Sivic, Isard and Zisserman, "Total recall", ICCV 2007: the mean of
the query and its n best images. αQE: Radenović, Tolias and Chum, TPAMI 2019, section 3.4, weights similarity^α.
Database-side augmentation: Turcot and Lowe, "Better matching with fewer features", ICCV workshops 2009; with
descriptors, Arandjelović and Zisserman, CVPR 2012: each image joined with its own neighbours in the same way.
Score normalisation: see `cairn.metrics.normalization`.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Expansion(_Model):
    """`search.expansion`: the query joined with its best images, then searched again in the whole gallery."""

    method: Literal["average", "alpha"] = "alpha"
    """`average`: all weigh 1, as the query does. `alpha`: similarity^alpha, 0 where it is negative."""
    neighbours: Annotated[int, Field(ge=1, le=10_000)] = 10
    alpha: Annotated[float, Field(ge=0, le=100)] = 3.0

    @property
    def slug(self) -> str:
        """`aqe-n10` or `alphaqe-n10-a3`."""
        if self.method == "average":
            return f"aqe-n{self.neighbours}"
        return f"alphaqe-n{self.neighbours}-a{self.alpha:g}"


class Augmentation(_Model):
    """`search.augmentation`: every gallery image joined with its nearest others, before any query is searched.

    It searches the gallery with the whole gallery: the cost grows with its square.
    """

    method: Literal["average", "alpha"] = "alpha"
    neighbours: Annotated[int, Field(ge=1, le=10_000)] = 10
    alpha: Annotated[float, Field(ge=0, le=100)] = 3.0

    @property
    def slug(self) -> str:
        """`dba-n10` or `dba-n10-a3`."""
        return f"dba-n{self.neighbours}" + (f"-a{self.alpha:g}" if self.method == "alpha" else "")


class Normalisation(_Model):
    """`search.normalisation`: from a query's scores, its similarity to the n-th nearest training image is taken."""

    neighbours: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """n: which of the training images."""
    factor: Annotated[float, Field(gt=0, le=100)] = 1.0

    @property
    def slug(self) -> str:
        """`norm-n1-f1`."""
        return f"norm-n{self.neighbours}-f{self.factor:g}"


class Options(_Model):
    """The options of one search; None is off."""

    augmentation: Augmentation | None = None
    expansion: Expansion | None = None
    normalisation: Normalisation | None = None

    @property
    def slug(self) -> str:
        """All that is on, in the order in which it is done; empty where nothing is."""
        chosen = (self.augmentation, self.expansion, self.normalisation)
        return "-".join(option.slug for option in chosen if option is not None)
