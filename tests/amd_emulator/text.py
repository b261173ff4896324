"""LLVM text of kernels for AMD's GPUs as text for the host, on whose processor threads take turns.

Instructions stay as they are.  What only a GPU has becomes calls of ``threads.c``, each with the
number of its line; so does each access to memory that is not the thread's own, in front of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_SHARED = re.compile(r"(@[\w.]+) = internal addrspace\(3\) global \[(\d+) x (\w+)\] poison, (.*)")
_KERNEL = re.compile(r"define amdgpu_kernel void @([\w.]+)\((.*)\) #0 .*!\{(.*)\} \{")
_MFMA = re.compile(r"declare (<4 x \w+>) @llvm\.amdgcn\.mfma\.([\w.]+)\((.*?), \1")
_WMMA = re.compile(r"declare (<8 x \w+>) @llvm\.amdgcn\.wmma\.([\w.]+)\((.*)\)")
_RESULT = re.compile(r"(%[\w.]+) = (\w+) (.*)")
_ACCESS = re.compile(
    r"(?:(?:%[\w.]+ = )?(?:load (?:atomic )?(?P<load>[^,]+), |atomicrmw \w+ |cmpxchg )ptr|"
    r"store (?:atomic )?(?P<store><[^>]*>|\w+) .*, ptr) (?P<at>%[\w.]+|@[\w.]+)(?P<rest>.*)"
)
_TOUCHES = re.compile(r"(^|= )\s*(load|store|atomicrmw|cmpxchg) ")
_VECTOR = re.compile(r"<(\d+) x (\w+)>")
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64, "i1": 8}

_ELEMENTS = {
    "f32": (0, 4),
    "f16": (1, 2),
    "bf16": (2, 2),
    "i8": (3, 1),
    "fp8": (4, 1),
    "bf8": (5, 1),
    "u8": (6, 1),
}
"""As ``enum element`` numbers them, and bytes."""

_LAST = re.compile(r"(bf16|f16|f32|i8|fp8|bf8)(?:\.1k)?$")
"""The type of a matrix instruction's right operand, in its name."""

_OF_WMMA = re.compile(r"16x16x16\.(f16|bf16|iu8|fp8|bf8)\.")
"""The type of the left operand; that of the right one is the same."""

_MFMA_LAYOUT, _RDNA3, _RDNA4 = range(3)
"""As ``enum layout`` numbers them."""

_CALLED = """declare i32 @amd_workitem_id_x()
declare i32 @amd_workitem_id_y()
declare i32 @amd_workitem_id_z()
declare i32 @amd_workgroup_id_x()
declare i32 @amd_workgroup_id_y()
declare i32 @amd_workgroup_id_z()
declare i32 @amd_mbcnt_lo(i32, i32)
declare i32 @amd_mbcnt_hi(i32, i32)
declare float @amd_exp2_f32(float)
declare i32 @amd_ds_bpermute(i32, i32, i32)
declare void @amd_s_barrier(i32)
declare i32 @amd_permlanex16_i32(i32, i32, i32, i32, i32)
declare i32 @amd_perm(i32, i32, i32)
declare void @amd_product(i32, i32, i32, i32, ptr, ptr, ptr, i32)
declare void @amd_access(ptr, i64, i64, i32)"""
CALLED = tuple(re.findall(r"@(\w+)", _CALLED))
_CONSTANTS = {
    "mfma": ", i32 0, i32 0, i32 0",
    "wmma_i32": ", i1 false",
    "permlanex16": ", i1 false, i1 false",
}
"""The last arguments of instructions, which are not passed on: no broadcast or rotation, sums that
wrap around, inactive threads that are not read."""

_BY_PLACE = ("ds_bpermute", "s_barrier", "permlanex16", "mfma", "wmma")


@dataclass(frozen=True)
class KernelText:
    """A kernel's name, the threads of its groups, and how many pointers and sizes it takes."""

    name: str
    threads: tuple[int, int, int]
    buffers: int
    sizes: int


@dataclass(frozen=True)
class HostText:
    """Text for the host, with a function ``NAME.entry(ptr arguments)`` for each kernel; ``shared``
    are bytes of variables that groups have."""

    text: str
    kernels: Mapping[str, KernelText]
    shared: Mapping[str, int]
    lines: Sequence[str]


def host_text(text: str, triple: str) -> HostText:
    """What runs on the host for a text; a line that it does not know is left as it is."""
    shared: dict[str, int] = {}
    kernels: dict[str, KernelText] = {}
    found: list[str] = []
    own: set[str] = set()
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if match := _SHARED.match(line):
            shared[match[1][1:]] = int(match[2]) * _size(match[3])
            found.append(
                f"{match[1]} = global [{match[2]} x {match[3]}] zeroinitializer, {match[4]}"
            )
        elif match := _KERNEL.match(line):
            own.clear()
            kernel = _kernel(match)
            kernels[kernel.name] = kernel
            found += [_entry(kernel), _head(kernel, match[2])]
        elif match := _MFMA.match(line):
            found.append(_mfma(match[1], match[2], match[3].split(", ")[0]))
        elif match := _WMMA.match(line):
            found.append(_wmma(match[1], match[2], match[3]))
        else:
            found += _instruction(line, number, own)
    head = f'target triple = "{triple}"'
    return HostText("\n".join([head, *found, _CALLED, ""]), kernels, shared, lines)


def _kernel(match: re.Match[str]) -> KernelText:
    x, y, z = (int(word.split(" ")[1]) for word in match[3].split(", "))
    kinds = [parameter.split(" ")[0] for parameter in match[2].split(", ") if parameter]
    assert set(kinds) <= {"ptr", "i64"}, kinds
    return KernelText(match[1], (x, y, z), kinds.count("ptr"), kinds.count("i64"))


def _head(kernel: KernelText, parameters: str) -> str:
    """Threads write what others read, which attributes of parameters deny."""
    names = [parameter.split(" ")[-1] for parameter in parameters.split(", ") if parameter]
    kinds = ["ptr"] * kernel.buffers + ["i64"] * kernel.sizes
    given = ", ".join(f"{kind} {name}" for kind, name in zip(kinds, names, strict=True))
    return f"define void @{kernel.name}({given}) {{"


def _entry(kernel: KernelText) -> str:
    """Calls a kernel with arguments whose addresses stand in a table."""
    kinds = ["ptr"] * kernel.buffers + ["i64"] * kernel.sizes
    lines = [f"define void @{kernel.name}.entry(ptr %t) {{"]
    for n, kind in enumerate(kinds):
        lines.append(f"  %s{n} = getelementptr ptr, ptr %t, i64 {n}")
        lines.append(f"  %v{n} = load {kind}, ptr %s{n}")
    given = ", ".join(f"{kind} %v{n}" for n, kind in enumerate(kinds))
    return "\n".join([*lines, f"  call void @{kernel.name}({given})", "  ret void", "}"])


def _mfma(sums: str, name: str, operand: str) -> str:
    """A matrix instruction as a function of what a thread has."""
    last = _LAST.search(name)
    assert last is not None, name
    element, size = _ELEMENTS[last[1]]
    kinds = f"i32 {_MFMA_LAYOUT}, i32 {element}, i32 {element}, i32 {_size(operand) // size}"
    given = f"{operand} %a, {operand} %b, {sums} %c, i32 %site"
    return _product(f"mfma.{name}", sums, operand, given, kinds)


def _wmma(sums: str, name: str, given: str) -> str:
    """The same of 32 threads: bytes are told whether they have signs, and sums wrap around."""
    found = _OF_WMMA.search(name)
    assert found is not None, name
    signed = given.startswith("i1")
    operand = given.split(", ")[1 if signed else 0]
    element, size = (0, 1) if signed else _ELEMENTS[found[1]]
    own = _size(operand) // size
    layout = {16: _RDNA3, 8: _RDNA4}[own]
    taken = f"{operand} %a, {operand} %b, {sums} %c, i32 %site"
    if not signed:
        kinds = f"i32 {layout}, i32 {element}, i32 {element}, i32 {own}"
        return _product(f"wmma.{name}", sums, operand, taken, kinds)
    i8, u8 = _ELEMENTS["i8"][0], _ELEMENTS["u8"][0]
    before = "".join(
        f"  %e{side} = select i1 %s{side}, i32 {i8}, i32 {u8}\n" for side in ("a", "b")
    )
    taken = f"i1 %sa, {operand} %a, i1 %sb, {operand} %b, {sums} %c, i32 %site"
    kinds = f"i32 {layout}, i32 %ea, i32 %eb, i32 {own}"
    return _product(f"wmma.{name}", sums, operand, taken, kinds, before)


def _product(name: str, sums: str, operand: str, given: str, kinds: str, before: str = "") -> str:
    """A function that is ``given`` operands and sums."""
    called = name.replace(".", "_")
    return f"""define internal {sums} @amd_{called}({given}) {{
{before}  %pa = alloca {operand}
  %pb = alloca {operand}
  %pc = alloca {sums}
  store {operand} %a, ptr %pa
  store {operand} %b, ptr %pb
  store {sums} %c, ptr %pc
  call void @amd_product({kinds}, ptr %pa, ptr %pb, ptr %pc, i32 %site)
  %r = load {sums}, ptr %pc
  ret {sums} %r
}}"""


def _instruction(line: str, number: int, own: set[str]) -> Iterator[str]:
    """An instruction, behind the check of what it accesses; ``own`` are pointers to the thread's
    own memory, which this adds to."""
    nothing = line.lstrip().startswith("fence") or "@llvm.amdgcn.sched.barrier" in line
    if nothing or line.startswith(("target triple", "declare")):
        if "amdgcn" not in line and line.startswith("declare"):
            yield line
        return
    if result := _RESULT.match(line.strip()):
        words = re.findall(r"ptr (?:addrspace\(\d\) )?(%[\w.]+)", result[3])
        derived = result[2] in ("getelementptr", "addrspacecast") and own.intersection(words)
        if result[2] == "alloca" or derived:
            own.add(result[1])
    access = _ACCESS.match(line.strip())
    assert access or not _TOUCHES.search(line), line
    if access and access["at"] not in own:
        yield _checked(access, number)
    plain = line.replace(", addrspace(5)", "").replace("addrspacecast", "bitcast")
    yield _called(re.sub(r" addrspace\(\d\)", "", plain), number)


def _checked(access: re.Match[str], number: int) -> str:
    kind = access["load"] or access["store"] or access["rest"].split(" ")[1]
    size = _size(kind)
    align = re.search(r", align (\d+)", access["rest"])
    known = int(align[1]) if align else min(size & -size, 8)
    return f"  call void @amd_access(ptr {access['at']}, i64 {size}, i64 {known}, i32 {number})"


def _called(line: str, number: int) -> str:
    """The line with calls of ``threads.c`` for those that AMD's GPUs alone have."""
    found = re.search(r"@llvm\.amdgcn\.([\w.]+)\((.*)\)", line)
    if found is None:
        return line
    name, given = found[1].replace(".", "_"), found[2]
    for name_of, constants in _CONSTANTS.items():
        if name.startswith(name_of):
            assert given.endswith(constants), line
            given = given.removesuffix(constants)
    if name.startswith(_BY_PLACE):
        given = f"{given}, i32 {number}" if given else f"i32 {number}"
    return f"{line[: found.start()]}@amd_{name}({given})"


def _size(type_: str) -> int:
    """Bytes."""
    vector = _VECTOR.fullmatch(type_.strip())
    count, each = (int(vector[1]), vector[2]) if vector else (1, type_.strip())
    return count * (_BITS.get(each) or int(each[1:])) // 8
