"""The elementwise family in one place; each op is defined in the file of its kind."""

from __future__ import annotations

from modelcc.ir.op import Op
from modelcc.ops import arithmetic, comparison, logic, transcendental
from modelcc.ops.arithmetic import Add as Add
from modelcc.ops.arithmetic import BitCast as BitCast
from modelcc.ops.arithmetic import Cast as Cast
from modelcc.ops.arithmetic import Ceil as Ceil
from modelcc.ops.arithmetic import Div as Div
from modelcc.ops.arithmetic import Floor as Floor
from modelcc.ops.arithmetic import Identity as Identity
from modelcc.ops.arithmetic import Mod as Mod
from modelcc.ops.arithmetic import Mul as Mul
from modelcc.ops.arithmetic import Neg as Neg
from modelcc.ops.arithmetic import Round as Round
from modelcc.ops.arithmetic import Sub as Sub
from modelcc.ops.comparison import Abs as Abs
from modelcc.ops.comparison import ClipTensor as ClipTensor
from modelcc.ops.comparison import Equal as Equal
from modelcc.ops.comparison import Greater as Greater
from modelcc.ops.comparison import GreaterOrEqual as GreaterOrEqual
from modelcc.ops.comparison import IsInf as IsInf
from modelcc.ops.comparison import IsNaN as IsNaN
from modelcc.ops.comparison import Less as Less
from modelcc.ops.comparison import LessOrEqual as LessOrEqual
from modelcc.ops.comparison import Max as Max
from modelcc.ops.comparison import Min as Min
from modelcc.ops.comparison import NotEqual as NotEqual
from modelcc.ops.comparison import Sign as Sign
from modelcc.ops.comparison import Where as Where
from modelcc.ops.logic import And as And
from modelcc.ops.logic import BitShift as BitShift
from modelcc.ops.logic import BitwiseAnd as BitwiseAnd
from modelcc.ops.logic import BitwiseNot as BitwiseNot
from modelcc.ops.logic import BitwiseOr as BitwiseOr
from modelcc.ops.logic import BitwiseXor as BitwiseXor
from modelcc.ops.logic import Not as Not
from modelcc.ops.logic import Or as Or
from modelcc.ops.logic import Xor as Xor
from modelcc.ops.transcendental import Acos as Acos
from modelcc.ops.transcendental import Acosh as Acosh
from modelcc.ops.transcendental import Asin as Asin
from modelcc.ops.transcendental import Asinh as Asinh
from modelcc.ops.transcendental import Atan as Atan
from modelcc.ops.transcendental import Atanh as Atanh
from modelcc.ops.transcendental import Cos as Cos
from modelcc.ops.transcendental import Cosh as Cosh
from modelcc.ops.transcendental import Erf as Erf
from modelcc.ops.transcendental import Exp as Exp
from modelcc.ops.transcendental import Exp2 as Exp2
from modelcc.ops.transcendental import Expm1 as Expm1
from modelcc.ops.transcendental import Log as Log
from modelcc.ops.transcendental import Log1p as Log1p
from modelcc.ops.transcendental import Pow as Pow
from modelcc.ops.transcendental import Reciprocal as Reciprocal
from modelcc.ops.transcendental import Rsqrt as Rsqrt
from modelcc.ops.transcendental import Sigmoid as Sigmoid
from modelcc.ops.transcendental import Sin as Sin
from modelcc.ops.transcendental import Sinh as Sinh
from modelcc.ops.transcendental import Sqrt as Sqrt
from modelcc.ops.transcendental import Tan as Tan
from modelcc.ops.transcendental import Tanh as Tanh

OPS: tuple[type[Op], ...] = (*arithmetic.OPS, *comparison.OPS, *logic.OPS, *transcendental.OPS)
