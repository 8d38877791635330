"""An encoder that raises or returns something else than descriptors, as one clear line."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from cairn.encoders import reason
from cairn.encoders.protocol import Encoder, Learned
from cairn.errors import CairnError
from cairn.images.names import shown
from cairn.systems.disk import no_space


@contextlib.contextmanager
def encoder_errors(encoder_name: str, what: str) -> Iterator[None]:
    """Inside, whatever an encoder raises becomes a CairnError naming it and `what` it was doing.

    Cairn's own errors and a full disk pass.
    """
    try:
        yield
    except CairnError:
        raise
    except (Exception, SystemExit) as error:  # an encoder may raise anything
        if no_space(error):
            raise
        raise CairnError(f"encoder {encoder_name}: {what} failed ({reason(error)})") from error


def checked_descriptors(
    encoder: Encoder,
    encoder_name: str,
    batch: Any,
    names: list[str],
    learned: Learned,
    *,
    texts: bool = False,
) -> np.ndarray:
    """`encoder.describe(batch, learned)`, floating point [len(batch), dim]; of `texts`, describe_texts(batch).

    CairnError, naming the encoder and the first of `names` (of views, one each), where it raises or returns
    anything else.
    """
    first = f"{'query' if texts else 'image'} {shown(names[0])}" + (
        f" and the {len(names) - 1} after it" if len(names) > 1 else ""
    )
    expected = f"one vector of one length each is expected: a float array [{len(batch)}, dim] (at {first})"
    with encoder_errors(encoder_name, f"describe of {first}"):
        if texts:
            found = encoder.describe_texts(batch)  # type: ignore[attr-defined] - an optional part of the protocol
        else:
            found = encoder.describe(batch, learned)
    try:
        array = np.asarray(found)
    except Exception as error:  # rows of several lengths, or an object that cannot be made an array
        raise CairnError(
            f"encoder {encoder_name}: describe returned a {type(found).__name__} ({reason(error)}); {expected}"
        ) from error
    if array.dtype.kind != "f" or array.ndim != 2 or len(array) != len(batch) or not array.shape[1]:
        raise CairnError(
            f"encoder {encoder_name}: describe returned a {type(found).__name__} of type {array.dtype} and "
            f"shape {list(array.shape)}; {expected}"
        )
    return array


def checked_learned(encoder_name: str, learned: Any) -> dict[str, np.ndarray]:
    """What `encoder.learn` returned: arrays by name. CairnError for anything else."""
    if not isinstance(learned, Mapping) or not all(
        isinstance(name, str) and isinstance(array, np.ndarray) and array.dtype.kind in "biuf"
        for name, array in learned.items()
    ):
        raise CairnError(
            f"encoder {encoder_name}: learn returned a {type(learned).__name__} that is not numeric arrays by name"
        )
    return dict(learned)


def encoder_key(encoder: Encoder, encoder_name: str) -> dict[str, Any]:
    """`encoder.key()`. CairnError where it raises or is not plain JSON."""
    import json

    with encoder_errors(encoder_name, "key"):
        key = encoder.key()
        json.dumps(key, sort_keys=True, allow_nan=False)
    return key
