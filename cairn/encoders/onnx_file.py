"""The encoder `onnx`: a user's own network as an ONNX file, run by ONNX Runtime, with its preprocessing declared."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.encoders.network import NetworkEncoder
from cairn.encoders.user_network import FileParameters, check_output
from cairn.encoders.weights import Weights, external_model, file_weights
from cairn.errors import InputError, ParameterError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LEARNING_KEYS = ()
FEATURE_MODULES = ()
EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"


class Parameters(FileParameters):
    """Keys of `onnx`. The network takes normalised float32 [n, 3, height, width] and gives [n, dim]."""

    output: str | None = None
    """Which of its outputs; null for the first."""


@dataclass
class Session:
    """The network in ONNX Runtime. Half precision is a matter of the file: no autocast applies."""

    session: Any
    output: str | None
    device: "torch.device"
    where: str

    def images(self, pixels: "Tensor") -> "Tensor":
        """[n, dim] from normalised pixels."""
        import torch

        given = self.session.get_inputs()[0]
        names = [output.name for output in self.session.get_outputs()]
        if self.output is not None and self.output not in names:
            raise InputError(f"{self.where}: no output {self.output!r}; there are: {', '.join(names)}")
        try:
            found = self.session.run([self.output or names[0]], {given.name: pixels.cpu().numpy()})[0]
        except Exception as error:  # ONNX Runtime raises its own for each cause
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"{self.where}: failed on pixels {list(pixels.shape)} (its input is {given.shape}): {reason}"
            ) from None
        return check_output(torch.from_numpy(found), len(pixels), self.where)


def external(settings: dict, benchmark: str) -> dict[str, str]:
    """The user's own paths that decide the descriptors: name → path."""
    return external_model(settings["model"])


def create(parameters: Parameters) -> NetworkEncoder:
    """The encoder with these parameters."""

    def load(weights: Weights, device: "torch.device") -> Session:
        try:
            import onnxruntime
        except ImportError:
            raise ParameterError("encoder onnx: pip install 'cairn-retrieval[onnx]'") from None
        wanted = ["CUDAExecutionProvider"] if device.type == "cuda" else []
        there = onnxruntime.get_available_providers()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        providers = [p for p in wanted if p in there] + ["CPUExecutionProvider"]
        try:
            # Tensors in other files are looked for where there are none: nobody would hash those files.
            with tempfile.TemporaryDirectory() as empty:
                options.add_session_config_entry(EXTERNAL_FOLDER, empty)
                session = onnxruntime.InferenceSession(
                    weights.path.read_bytes(), options, providers=providers
                )
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            if "External data" in reason:
                raise InputError(
                    f"{weights.path}: keeps tensors in other files, which are not read; save it as one file"
                ) from None
            raise InputError(f"{weights.path}: not an ONNX file ({type(error).__name__}: {reason})") from None
        return Session(session, parameters.output, device, str(weights.path))

    return NetworkEncoder(
        "onnx", parameters, lambda: file_weights(parameters.model, Path()), load, ("onnxruntime",)
    )
