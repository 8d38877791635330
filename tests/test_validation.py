"""Wrong parameters are told by key, value and what is allowed."""

from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, Field

from cairn.errors import ParameterError
from cairn.validation import validated


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    words: Annotated[int, Field(ge=1)] = 5


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Inner | None = None
    needed: int


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"needed": 1, "inner": {"wrods": 2}},
            ["system.inner.wrods", "did you mean 'words'", "allowed: words"],
        ),
        ({"needed": 1, "x": 2}, ["system.x is not a known key", "allowed: inner, needed"]),
        ({}, ["system.needed is missing"]),
        ({"needed": 1, "inner": {"words": 0}}, ["system.inner.words = 0", "greater than or equal to 1"]),
        ({"needed": "many"}, ["system.needed = 'many'", "integer"]),
        ([1], ["system = [1]", "mapping"]),
    ],
)
def test_errors_name_the_key(values, told):
    with pytest.raises(ParameterError) as error:
        validated(Outer, values, "system")
    assert all(part in str(error.value) for part in told), str(error.value)
    assert "\n" not in str(error.value)


def test_defaults_are_filled_in():
    assert validated(Outer, {"needed": 1, "inner": {}}, "system").inner == Inner(words=5)
