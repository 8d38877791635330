"""`.cairn/local.yaml`: how this machine computes, which decides no result and is therefore no tracked parameter.

```yaml
executor: ray          # local (the default) | ray
device: cuda           # of exact search: cpu (the default) | cuda
ray:
  address: auto        # of a cluster; without it one is started on this machine
  workers: 8           # processes that each do a part; without it one per GPU, or per processor where there is none
  cpus: 4              # processors of each
```

CAIRN_EXECUTOR, CAIRN_DEVICE and CAIRN_RAY_ADDRESS in the environment come before the file.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cairn.errors import ParameterError
from cairn.validation import validated

FILE = Path(".cairn") / "local.yaml"


class RaySettings(BaseModel):
    """`ray` of the local settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str | None = None
    """Of the cluster's head (`auto`, `HOST:6379` or `ray://HOST:10001`); null starts one here."""
    workers: Annotated[int, Field(ge=1, le=100_000)] | None = None
    cpus: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Processors of each worker; null for 1, or for its share of the processors where workers have a GPU each."""


class LocalSettings(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    executor: Literal["local", "ray"] = "local"
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"
    ray: RaySettings = RaySettings()


def local_settings(root: Path) -> LocalSettings:
    """The settings of the project at `root`. ParameterError naming the key and what is allowed."""
    import yaml

    path = Path(root) / FILE
    values: Any = {}
    try:
        values = yaml.safe_load(path.read_text("utf-8")) or {}
    except FileNotFoundError:
        pass
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ParameterError(f"{FILE}: not valid YAML ({str(error).splitlines()[0]})") from None
    if not isinstance(values, dict) or not isinstance(values.get("ray") or {}, dict):
        raise ParameterError(f"{FILE}: a mapping is expected, such as `executor: ray`")
    values = {**values, "ray": dict(values.get("ray") or {})}
    where = str(FILE)
    for name, variable in (("executor", "CAIRN_EXECUTOR"), ("device", "CAIRN_DEVICE")):
        if asked := os.environ.get(variable):
            values[name], where = asked, f"{FILE} or the environment"
    if address := os.environ.get("CAIRN_RAY_ADDRESS"):
        values["ray"]["address"] = address
    return validated(LocalSettings, values, where)
