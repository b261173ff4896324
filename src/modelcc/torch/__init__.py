"""PyTorch's models in modelcc: the backend of ``torch.compile``, and a report of what it compiles.

>>> import modelcc.torch, torch                                   # doctest: +SKIP
>>> fast = torch.compile(model, backend="modelcc")                # doctest: +SKIP
>>> print(modelcc.torch.explain(model, *inputs))                  # doctest: +SKIP
"""

from modelcc.torch.dynamo import backend
from modelcc.torch.explanation import Explanation, explain

__all__ = ["Explanation", "backend", "explain"]
