from enum import Enum
from typing import Any

class InputKind(Enum):
    USER_INPUT = ...
    PARAMETER = ...
    BUFFER = ...
    CONSTANT_TENSOR = ...
    CUSTOM_OBJ = ...
    TOKEN = ...

class OutputKind(Enum):
    USER_OUTPUT = ...
    BUFFER_MUTATION = ...
    PARAMETER_MUTATION = ...

class InputSpec:
    kind: InputKind
    arg: Any
    target: str

class OutputSpec:
    kind: OutputKind
    arg: Any
    target: str | None

class ExportGraphSignature:
    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]
    user_inputs: tuple[str, ...]
    user_outputs: tuple[str, ...]
