class TorchDynamoException(RuntimeError): ...  # noqa: N818 - the name PyTorch has

class BackendCompilerFailed(TorchDynamoException):
    inner_exception: Exception
