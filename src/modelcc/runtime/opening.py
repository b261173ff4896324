"""Compiled models as sessions, of the kind that their interface requires."""

from __future__ import annotations

from modelcc.artifact.file import AnyPath, Artifact, read_artifact
from modelcc.runtime.devices.device_program import DeviceCode, is_for_device
from modelcc.runtime.pool import available_cores
from modelcc.runtime.session import Session
from modelcc.runtime.structured_session import StructuredSession
from modelcc.runtime.values import ValueSession


def load(path: AnyPath, threads: int | None = None, verify: bool = False) -> Session:
    """The compiled model in the file ``path``, ready to run on ``threads`` threads (None: all).

    Sessions with the same number of threads share a pool.  ``verify`` checks the weights' digests.
    """
    count = available_cores() if threads is None else threads
    return session_of(read_artifact(path, verify), count)


def session_of(artifact: Artifact, threads: int = 1, index: int | None = None) -> Session:
    """A session for ``artifact``, on ``threads`` threads, or on device ``index`` (None: the one it
    is compiled for); LoadError if it is not for this machine.

    A model whose arguments are all numeric tensors gets the faster kind.
    """
    code = DeviceCode(artifact, index=index) if is_for_device(artifact) else None
    interface = artifact.manifest.interface
    if interface is None:
        return Session(artifact, threads, code)
    if interface.call is None:
        return ValueSession(artifact, threads, code)
    return StructuredSession(artifact, interface.call, threads, code)
