"""Transfers come before the steps that need them, each once, and mean nothing to interpreters."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelcc.ir.index import Index
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.program import Launch, Program, Step, Transfer
from modelcc.ir.program_parser import parse_program
from modelcc.ir.program_text import print_program
from modelcc.ir.program_verifier import verify_program
from modelcc.ir.region import Branch, Carry, Repeat
from modelcc.ir.types import BOOL, F32, TensorType
from modelcc.passes.program.apply_plan import apply_plan
from modelcc.passes.program.place_transfers import place_transfers
from modelcc.passes.program.plan_memory import plan_memory

GROUPED = parse_function("""func @grouped(%x: f32[8], %y: mut f32[8]) {
  grid g in 0 .. 2 {
    thread t in 0 .. 4 {
      store %y[4*g + t] = load %x[4*g + t]
    }
  }
}""")
PLAIN = parse_function("""func @plain(%x: f32[8], %y: mut f32[8]) {
  for i in 0 .. 8 {
    store %y[i] = load %x[i]
  }
}""")
ROW = TensorType((8,), F32)


def device(x: str, y: str, partial: bool = False) -> Launch:
    return Launch("grouped", (x, y), partial=(y,) if partial else ())


def host(x: str, y: str, partial: bool = False) -> Launch:
    return Launch("plain", (x, y), partial=(y,) if partial else ())


def transfers(
    *steps: Step,
    outputs: tuple[str, ...] = ("y",),
    states: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """The steps with their transfers, in short; the program that they make is verified, placed
    and read back."""
    names = ("h", "i", "j", "y", "z", "s", "n", "last")
    types = {**dict.fromkeys(("x", *names), ROW), "go": TensorType((1,), BOOL)}
    named = str(steps)
    kept = {n: t for n, t in types.items() if n in ("x", "go") or repr(n) in named}
    program = Program("p", ("x", "go"), outputs, steps, kept, (GROUPED, PLAIN), states=states)
    program = place_transfers(program)
    verify_program(program)
    placed = apply_plan(program, plan_memory(program))
    verify_program(placed)
    assert parse_program(print_program(placed), {}) == placed
    return _short(program.steps)


def _short(steps: tuple[Step, ...]) -> list[str]:
    found: list[str] = []
    for step in steps:
        match step:
            case Transfer():
                found.append(f"{step.tensor} to {step.to}")
            case Launch():
                found.append(f"{step.callee} {step.arguments[1]}")
            case Branch():
                found += ["if", *_short(step.then), "else", *_short(step.other), "end"]
            case Repeat():
                found += ["loop", *_short(step.body), "end"]
            case _:
                pass
    return found


def test_each_tensor_is_brought_once() -> None:
    """What is on both sides stays there, for several steps and for the caller."""
    found = transfers(device("x", "h"), device("x", "i"), host("h", "j"), host("h", "y"))
    wanted = ["x to device", "grouped h", "grouped i", "h to host", "plain j", "plain y"]
    assert found == wanted


def test_outputs_end_on_the_host() -> None:
    assert transfers(device("x", "y")) == ["x to device", "grouped y", "y to host"]
    assert transfers(host("x", "y")) == ["plain y"]


def test_states_stay_on_the_device() -> None:
    """Unless a step of the host's reads or writes them."""
    kept = {"z": "x"}
    assert transfers(device("x", "z"), outputs=("z",), states=kept) == ["grouped z"]
    found = transfers(device("x", "y"), host("x", "z"), outputs=("y", "z"), states=kept)
    assert found == ["grouped y", "x to host", "plain z", "y to host", "z to device"]


def test_parts_of_a_tensor_by_both_sides_come_together() -> None:
    """The second writer gets what the first one has written."""
    found = transfers(device("x", "y", partial=True), host("x", "y", partial=True))
    assert found == ["x to device", "grouped y", "y to host", "plain y"]


def test_sides_of_a_branch_hand_on_what_is_on_the_device() -> None:
    branch = Branch[Step]("go", ("h",), (device("x", "h"),), (host("x", "h"),))
    found = transfers(branch, host("h", "y"))
    inner = ["if", "x to device", "grouped h", "else", "plain h", "h to device", "end"]
    assert found == [*inner, "h to host", "plain y"]


def test_what_a_loop_reads_is_brought_before_it() -> None:
    """Its states are on the device at the end of each iteration."""
    trips: Index = 3
    loop = Repeat[Step](
        "t", trips, (Carry("s", "x", "n", "last"),), (), (device("x", "i"), host("s", "n"))
    )
    found = transfers(host("x", "z"), loop, outputs=("last", "z"))
    inner = ["loop", "grouped i", "s to host", "plain n", "n to device", "end"]
    assert found == ["plain z", "x to device", *inner, "last to host"]
