"""The systems in docs/encoders.md are valid, and it names every encoder and preset."""

import re
from pathlib import Path

import pytest
import yaml

from cairn.encoders import checked_parameters, known_encoders, load_encoder_module
from cairn.encoders.presets import PRESETS
from cairn.parameters import SYSTEM_KEYS

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "encoders.md").read_text("utf-8")
[BLOCK] = re.findall(r"```yaml\n(.*?)```", TEXT, re.S)
SYSTEMS = yaml.safe_load(BLOCK)["systems"]


@pytest.mark.parametrize(
    "name", [name for name, entry in SYSTEMS.items() if "python:" not in entry["encoder"]]
)
def test_every_system_in_the_page_is_valid(name: str):
    entry = SYSTEMS[name]
    own = {key: value for key, value in entry.items() if key not in SYSTEM_KEYS}
    settings = checked_parameters(entry["encoder"], load_encoder_module(entry["encoder"]), own, name)
    assert set(own) <= set(settings)


def test_the_page_names_every_network_and_preset():
    # Classical encoders and features from files have pages of their own.
    for name in known_encoders():
        module = load_encoder_module(name)
        if "precision" in module.Parameters.model_fields:
            assert f"encoder: {name}\n" in BLOCK or f"encoder: {name} " in BLOCK, name
    for name in PRESETS:
        assert f"| `{name}` |" in TEXT


def test_the_module_in_the_page_works():
    import numpy as np

    [code] = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    names: dict = {}
    exec(code, names)
    made = names["build"]({})
    image = np.zeros((4, 5, 3), np.uint8)
    assert made.describe([made.prepare(image)], {}).shape == (1, 3)
    [row] = made.describe([made.prepare(image + np.uint8(90))], {})
    assert np.linalg.norm(row) == pytest.approx(1)  # as the protocol asks
