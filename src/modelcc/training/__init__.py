"""Training: a step as one compiled program, and loops over data."""

from modelcc.training.batches import Batches
from modelcc.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from modelcc.training.finite import NonFiniteError
from modelcc.training.logs import JsonLines, Record, TensorBoard, TrainingLog
from modelcc.training.progress import EarlyStopping, Progress
from modelcc.training.step import TrainStep
from modelcc.training.trainer import Trainer

__all__ = [
    "Batches",
    "Checkpoint",
    "EarlyStopping",
    "JsonLines",
    "NonFiniteError",
    "Progress",
    "Record",
    "TensorBoard",
    "TrainStep",
    "Trainer",
    "TrainingLog",
    "read_checkpoint",
    "write_checkpoint",
]
