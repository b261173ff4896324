"""RegexFullMatch against onnxruntime, which runs RE2 itself."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

import modelcc
from modelcc.frontends.kit.errors import UnsupportedModel
from modelcc.frontends.onnx import import_onnx
from modelcc.frontends.onnx.host.matching import matching_machine
from modelcc.frontends.onnx.host.regular_expression import PatternError
from modelcc.ir.errors import ModelError
from modelcc.runtime.full_match import Automaton, Matcher

ALPHABET = "abAkKsS19_ -\n\t\v.é\u0130ſ\u212aßẞΣσς\u0663\u00a0中"
TEXTS = (
    *("", "a", "b", "aa", "ab", "aaa", "abc", "a\n", "\na", "a b", "a_b", "-", "_", "[", "]", "^"),
    *("{", "}", "a{,2}", "a{01}", "a.b", "a*", "\\", "a-1", "ab-cd", "foo.bar@baz.org"),
    *("2024-02-30",),
    *("a" * 9, "a" * 10, "a" * 1000, "a" * 1001, "K\u212ak", "straße", "STRASSE", "x\x07", "\x00"),
    *ALPHABET,
)  # fmt: skip

PATTERNS = (
    *("", "a", "abc", "a|b|ab", "a*", "a+b?", "(a|b)*c", "a**", "a{2}{3}", "*", "a|*", "(*a)"),
    *("^*a",),
    *("(a", "a)", "()", "(|a)+", "a||b", r"\w+@\w+\.\w+", r"[\w.]+@[\w.]+\.(com|org)"),
    *(r"\d{4}-\d\d-\d\d",),
    *(r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"[\d\s]", r"[^\d\s]", r"[\D]", r"(?i)\w"),
    *(r"(?i)\W",),
    *(".", "(?s).", "a$", "^a$", "(?m)a$", "(?m)^a$\n", "(?m)\n^a", r"\Aa\z", r"a\Z", r"a\n\z"),
    *("$^",),
    *(r"\ba\b", r"\ba.*b\b", r"a\Bb", r"\b", r"\B", r"a\b \bb", r"é\b", r"\bé", r"\B.\B", r"\b*a"),
    *("(?i)a", "(?i)k+", "(?i)straße", "(?i)σ", "(?i)ß", "(?i)[k-s]", "(?i)[^k]", "a(?i)b"),
    *("(?i:A)b",),
    *("(?i)a(?-i)b", "((?i)a)b", "(?ims-U)a", "(?)a", "(?-)a", "(?i-)a", "(?x)a", "(?i", "(?i:a"),
    *("(?:a)",),
    *("a{3}", "a{3,}", "a{2,3}", "a{0}", "a{0,0}", "a{,2}", "a{01}", "a{1,02}", "a{", "a{2"),
    *("a{2,1}",),
    *("a{1000}", "a{1001}", "a{0,1000}", "(a{10}){100}", "(a{10}){101}", "((a{2}){2}){251}"),
    *("a{1,1000}?",),
    *("a{9999999999}", "a*?", "a+?b", "a??", "a{1,2}?", "a*??", "a*+", "(a+)+", "(a*)*"),
    *("(a?){20}a{20}",),
    *("[abc]", "[^abc]", "[a-c]+", "[]a]", "[^]a]", "[]", "[^]", "[a-]", "[-a]", "[a-c-e]"),
    *("[a--]", "[--a]"),
    *("[c-a]", r"[a-\d]", r"[\]\\]", r"[\n\t]", r"[\b]", r"[\x41-\x{43}]", "[a", "[a-", "[\\"),
    *("[[]", "[^-^]"),
    *("[[:alpha:]]", "[[:^alpha:]]", "[[:word:][:space:]]", "[[:foo:]]", "[[:alpha]", "[:alpha:]"),
    *("[[:ascii:]]+",),
    *(r"\pL", r"\PL", r"\p{Lu}", r"\p{^Lu}", r"\P{^Lu}", r"[\pN\pS]", r"[^\pL]", r"(?i)\p{Lu}"),
    *(r"\p{Any}", r"\p{}"),
    *(r"\p", r"\p{L", r"\x41", r"\x{41}", r"\x{10FFFF}", r"\x{110000}", r"\x{}", r"\x4"),
    *(r"\101", r"\0"),
    *(r"\08", r"\1", r"(a)\1", r"\18", r"\a", r"\f\v", r"\_", r"\-", r"\é", r"\e", r"\y", "\\"),
    *(r"\Qa*\E", r"\Qa.b"),
    *(r"\Qab\E*", r"\Q\E*", r"a\Q\E*", "(?P<n>a)", "(?<n>a)", "(?P<n-m>a)", "(?P<n>a", "(?P=n)"),
    *("(?'n'a)",),
    *("(?=a)a", "(?!a)b", "(?<=a)b", "(?<!a)b", "(?>a)", "(?#a)b", "(?>a*)ab", "\\K", "中+"),
    *("[中-亅]", "é*"),
)  # fmt: skip


def automaton(pattern: str) -> Automaton:
    settings: dict[str, Any] = dict(matching_machine(pattern))
    return Automaton(**settings)


def model_of(pattern: str) -> ModelProto:
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], "the_node", pattern=pattern)
    x = helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.BOOL, ["n"])
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def by_onnxruntime(pattern: str, texts: Sequence[str]) -> list[bool] | None:
    """None if RE2 refuses the pattern."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(model_of(pattern).SerializeToString(), options)
    except Exception:
        return None
    (found,) = session.run(None, {"x": np.array(texts, object)})
    return np.asarray(found).tolist()


def matched(pattern: str, texts: Sequence[str]) -> list[bool] | None:
    """None if the pattern is refused."""
    try:
        matcher = Matcher(automaton(pattern))
    except PatternError:
        return None
    return [matcher.matches(text) for text in texts]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_what_they_do_in_re2(pattern: str) -> None:
    assert matched(pattern, TEXTS) == by_onnxruntime(pattern, TEXTS)


SETS = (
    *(r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\pL", r"\PL", r"\p{Lu}", r"\p{^Ll}"),
    *(".", r"\n", r"\x{e9}", r"\101", r"\.", r"\Qa.b\E"),
)
PLACES = ("^", "$", r"\b", r"\B", r"\A", r"\z")
GROUPS = ("(%s)", "(?:%s)", "(?i:%s)", "(?m:%s)", "(?s:%s)", "(?i-s:%s)", "(?P<n>%s)")
ITEMS = (
    *("a", "b-k", "A-Z", r"\d", r"\W", "[:alpha:]", "[:^space:]", r"\pL", "-", "k", "s", "é"),
    *("σ", r"\n", "_", "^"),
)


class _Patterns:
    """Patterns at random, some of them broken."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pattern(self) -> str:
        start = self.random.choice(["", "", "(?i)", "(?s)", "(?m)", "(?ims)"])
        made = start + self._alternatives(2)
        return self._broken(made) if self.random.random() < 0.3 else made

    def text(self) -> str:
        return "".join(self.random.choices(ALPHABET, k=self.random.randint(0, 6)))

    def _alternatives(self, depth: int) -> str:
        count = self.random.choice([1, 1, 2, 3])
        return "|".join(self._sequence(depth) for _ in range(count))

    def _sequence(self, depth: int) -> str:
        return "".join(self._repeated(depth) for _ in range(self.random.randint(0, 4)))

    def _repeated(self, depth: int) -> str:
        signs = ("*", "+", "?", "{2}", "{0,2}", "{1,}", "{2,3}", "*?", "??", "{0}", *[""] * 15)
        return self._atom(depth) + self.random.choice(signs)

    def _atom(self, depth: int) -> str:
        kinds = ["letter", "letter", "set", "class", "place", "group" if depth else "set"]
        match self.random.choice(kinds):
            case "letter":
                return self.random.choice("abAkKs1_ -éſσςß")
            case "set":
                return self.random.choice(SETS)
            case "class":
                return self._class()
            case "place":
                return self.random.choice(PLACES)
            case _:
                return self.random.choice(GROUPS) % self._alternatives(depth - 1)

    def _class(self) -> str:
        chosen = self.random.choices(ITEMS, k=self.random.randint(1, 3))
        return f"[{self.random.choice(['', '^'])}{''.join(chosen)}]"

    def _broken(self, pattern: str) -> str:
        place = self.random.randint(0, len(pattern))
        sign = self.random.choice("()[]{}*+?|\\^$-,:=<>PiQE1")
        return pattern[:place] + sign + pattern[place + self.random.randint(0, 1) :]


@pytest.mark.parametrize("seed", range(8))
def test_patterns_at_random(seed: int) -> None:
    made = _Patterns(seed)
    accepted = 0
    for _ in range(60):
        pattern = made.pattern()
        texts = [*TEXTS[:16], *(made.text() for _ in range(30))]
        try:
            found = matched(pattern, texts)
        except Exception as error:
            assert type(error).__name__ == "UnsupportedForm", pattern
            continue
        assert found == by_onnxruntime(pattern, texts), pattern
        accepted += found is not None
    assert accepted > 30


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(a)\1", "RE2 has no backreferences"),
        ("(?=a)a", "RE2 has no looking around"),
        ("a{1001}", "at most 1000"),
        ("(", r"a \( without its \)"),
        (r"(?:\w{1000}|\d{1000}){1}" * 60, "more than 100,000 steps"),
    ],
)
def test_what_re2_refuses_is_refused_at_import(pattern: str, why: str) -> None:
    with pytest.raises(ModelError, match=f"the_node: the regular expression .*{why}"):
        import_onnx(model_of(pattern))


@pytest.mark.parametrize("pattern", [r"\p{Greek}", r"[\P{Han}]", r"\C"])
def test_what_is_not_known_is_named(pattern: str) -> None:
    assert by_onnxruntime(pattern, [""]) is not None
    with pytest.raises(UnsupportedModel, match=r"the_node: .*the regular expression"):
        import_onnx(model_of(pattern))


def test_case_is_folded_as_in_re2() -> None:
    """Every letter whose case makes a difference, and what it is equal to without."""
    letters = [chr(code) for code in range(0x1F000) if chr(code).swapcase() != chr(code)]
    groups = [letters[start : start + 20] for start in range(0, len(letters), 20)]
    for group in groups:
        pattern = f"(?i)[{''.join(group)}]"
        assert matched(pattern, letters) == by_onnxruntime(pattern, letters)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.*)*b", "(a?){500}a{500}b"])
def test_no_text_takes_more_than_linear_time(pattern: str) -> None:
    """In a process of its own: what tries one way after another does not end."""
    program = (
        "from modelcc.frontends.onnx.host.matching import matching_machine\n"
        "from modelcc.runtime.text_functions import full_match\n"
        "import numpy as np\n"
        f"texts = np.array(['a' * 4000, 'a' * 4000 + 'b'], object)\n"
        f"print(full_match([texts], matching_machine({pattern!r}))[0].tolist())\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert "[False, " in found.stdout


def test_a_compiled_model_matches_as_re2_does() -> None:
    """Digits are those of ASCII, and $ is the end: not so in Python."""
    net = modelcc.compile(model_of(r"\d+$"), threads=1, cache=None)
    x = np.array(["12", "12\n", "\u0663", ""], object)
    assert np.asarray(net(x)).tolist() == by_onnxruntime(r"\d+$", x.tolist())
    assert np.asarray(net(x)).tolist() == [True, False, False, False]


def test_what_is_forgotten_is_found_again() -> None:
    """Of states without end only some are remembered."""
    machine = automaton("(a|b)*a(a|b){60}")
    text = "".join(random.Random(0).choices("ab", k=2000))
    for end in (1999, 2000):
        expected = text[end - 61] == "a"
        assert Matcher(machine).matches(text[:end]) == expected
        assert Matcher(machine, 1000).matches(text[:end]) == expected
