"""Definitions, the codec and the stub: what crosses between an answer and who judges it."""

from __future__ import annotations

import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.course.student_functions import right
from support.runs import tiers
from vklab_course import check
from vklab_course.definition import codec, stub
from vklab_course.definition.case import Case, Folder
from vklab_course.definition.codec import CodecError, Opaque, Raised, decode, encode
from vklab_course.definition.draw import draw, fingerprint, freeze, public_cases, seed_of
from vklab_course.definition.exercise import Exercise, Function
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.definition.kinds import Choice, Question

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(tiers.CHARACTERS)
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(tiers.CHARACTERS, max_size=5), inner, max_size=3)
        | st.dictionaries(st.integers() | st.tuples(st.integers()), inner, max_size=3)
    ),
    max_leaves=20,
)


def same(a, b):
    """Compare bit for bit: NaN equals NaN, -0.0 is not 0.0, a tuple is no list."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return math.copysign(1, a) == math.copysign(1, b) and (a == b or (a != a and b != b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return a == b


@given(plain)
@example({"": []})
@example({"": [["a", 1]], "b": 2})
@settings(deadline=None, max_examples=tiers.examples(150))
def test_plain_values_come_back_as_they_are(value):
    assert same(decode(encode(value)), value)


@pytest.mark.parametrize("name", sorted(codec.DTYPES))
def test_arrays_of_every_dtype_come_back(name):
    array = np.arange(12).astype(codec.DTYPES[name]).reshape(3, 4)[:, ::2]
    back = decode(encode(array))
    assert back.dtype == array.dtype and np.array_equal(back, array)
    assert back.flags.writeable
    scalar = decode(encode(array[1, 1]))
    assert type(scalar) is type(array[1, 1]) and scalar == array[1, 1]


def test_bits_of_floats_survive():
    bits = np.array([0x7FC00001, 0x80000000, 0x00000001], np.uint32)
    assert decode(encode(bits.view(np.float32))).view(np.uint32).tolist() == bits.tolist()
    brain = np.array([1.5], ml_dtypes.bfloat16)
    assert decode(encode(brain)).dtype == brain.dtype


class Liar(int):
    def __eq__(self, other):
        return True

    def __index__(self):
        return 7

    __hash__ = int.__hash__


class Path(str):
    def __str__(self):
        return "another"


@pytest.mark.parametrize(("value", "is_now"), [
    (Liar(3), 3), (np.float64(2.5), np.float64(2.5)), (Path("text"), "text"),
    ({1, 2}, {1, 2}), (frozenset("a"), {"a"}), (range(3), Opaque("range", "range(0, 3)")),
    (len, Opaque("builtin_function_or_method", "the function len")),
    (np.array(["a"]), None), (np.array([object()]), None),
])  # fmt: skip
def test_other_values_become_plain_or_a_description(value, is_now):
    back = decode(encode(value))
    assert type(back) is (Opaque if is_now is None else type(is_now))
    assert is_now is None or back == is_now


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def endless():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(("made", "words"), [
    (lambda: nested(40), "nested more than 24 levels"), (endless, "nested more than"),
    (lambda: [None] * (codec.MAX_ITEMS + 1), "more than 1000000 items"),
    (lambda: np.zeros(codec.MAX_BYTES + 8, np.uint8), "bytes are more than"),
    (lambda: 1 << 10**6, "an integer of 1000001 bits"),
])  # fmt: skip
def test_too_much_is_refused(made, words):
    with pytest.raises(CodecError, match=words):
        encode(made())


@given(st.binary(max_size=200))
@settings(deadline=None, max_examples=tiers.examples(300))
def test_any_bytes_give_a_value_or_a_codec_error(data):
    try:
        decode(data)
    except CodecError:
        return


def test_changed_bytes_never_break_the_decoder():
    good = encode({"a": (1, [np.arange(3), Raised(("ValueError",))]), "b": {3: Case(args=(1,))}})
    random = np.random.default_rng(0)
    for _ in range(2000):
        bad = bytearray(good)
        bad[random.integers(len(bad))] = random.integers(256)
        try:
            decode(bytes(bad))
        except CodecError:
            continue


def test_a_record_travels_by_name_and_only_if_it_is_registered():
    @dataclasses.dataclass(frozen=True)
    class Stranger:
        x: int

    case = Case("part", (1, (2,)), {"k": np.float32(1)}, expected=[1])
    assert decode(encode(case)) == case
    assert type(decode(encode(Stranger(1)))) is Opaque
    with pytest.raises(TypeError, match="no dataclass"):
        codec.register(int)


# ---------------------------------------------------------------------------------------- stub


class Add(Function):
    id = "98-1"
    parts = {"sum": ("the sum", 2), "files": ("files", 1), "steps": ("a state", 1)}
    seconds = 2.0

    def cases(self, random):
        for _ in range(3):
            yield Case("sum", tuple(random.integers(0, 99, 2).tolist()))
        yield Case(
            "files", (Folder("etc"),), files={"etc/a.txt": "1", "etc/b/c.bin": b"\0"}, drain=9
        )
        yield Case("steps", (5,), steps=(("add", (2,)), ("add", (3,))))

    def expected(self, case):
        if case.part == "files":
            return ["/case/etc/a.txt", "/case/etc/b"]
        return [7, 10] if case.part == "steps" else sum(case.args)


class Counter:
    def __init__(self, start):
        self.value = start

    def add(self, more):
        self.value += more
        return self.value


def add(first, second=None):
    if isinstance(first, str):
        import os

        return (os.path.join(first, name) for name in sorted(os.listdir(first)))
    return Counter(first) if second is None else first + second


def verdict_on(answer):
    exercise = Add()
    return judge(exercise, LocalAnswers(answer), draw(exercise, "secret"))


def test_calls_files_states_and_iterators():
    verdict = verdict_on(add)
    assert (verdict.status, verdict.points) == ("correct", 4), str(verdict)


def test_the_stub_sees_no_oracle():
    cases = draw(Add(), "secret")
    request = stub.request_for(cases, "function", 1)
    asked = decode(request)["questions"]
    fields = {"args", "named", "files", "steps", "drain"}
    assert all(set(decode(one)) == fields for one in asked)
    marked = [dataclasses.replace(case, expected="SECRET", facts={"a": "SECRET"}) for case in cases]
    assert b"SECRET" not in stub.request_for(marked, "function", 1)


def test_a_late_call_ends_the_batch_and_later_cases_say_so():
    def late(first, second=None):
        while second != 0 and isinstance(first, str):
            pass
        return add(first, second)

    verdict = verdict_on(late)
    assert [part.passed for part in verdict.parts] == [True, False, False]
    assert "did not end" in verdict.parts[1].message
    assert "an earlier call did not end" in verdict.parts[2].message


@pytest.mark.parametrize("reply", [
    b"", b"\xc1", encode(3), encode({"outcomes": 3}), encode({"outcomes": [3]}),
    encode({"outcomes": [{"how": 3}]}), encode({"outcomes": [{"how": "raised", "value": 3}]}),
    encode({"outcomes": [{"how": "returned", "data": b"\xc1"}]}),
    encode({"outcomes": [{"how": "returned"}]}),
])  # fmt: skip
def test_a_forged_reply_is_an_error_or_no_result(reply):
    class Forger:
        def ask(self, exercise, cases):
            return stub.results_of(reply, len(cases))

    exercise = Add()
    try:
        verdict = judge(exercise, Forger(), draw(exercise, "secret"))
    except Exception as error:
        pytest.fail(f"the judge broke: {error!r}")
    assert verdict.points == 0


def test_printed_text_and_messages_are_bounded():
    def noisy(first, second=None):
        print("x" * 5000)
        return "y" * 10**6

    verdict = verdict_on(noisy)
    assert verdict.points == 0 and len(str(verdict)) < 20_000


# --------------------------------------------------------------------------------------- draws


def test_draws_depend_on_the_secret_and_the_exercise_alone():
    exercise = Add()
    assert encode(draw(exercise, "a")) == encode(draw(exercise, "a"))
    assert encode(draw(exercise, "a")) != encode(draw(exercise, "b"))
    assert seed_of("a", "98-1") != seed_of("a", "98-2")
    assert "a secret" not in fingerprint("a secret") and fingerprint("a") != fingerprint("b")


def test_public_cases_are_frozen_for_a_release(tmp_path, monkeypatch):
    exercise = Add()
    frozen = tmp_path / "checks" / "frozen"
    frozen.mkdir(parents=True)
    (frozen / "98-1.bin").write_bytes(freeze(exercise))
    monkeypatch.setenv("VKLAB_LABS", str(tmp_path))
    monkeypatch.setattr(Add, "cases", Exercise.cases)
    assert judge(exercise, LocalAnswers(add), public_cases(exercise)).status == "correct"


def test_an_oracle_that_raises_asks_for_that_error():
    class Refuses(Add):
        def expected(self, case):
            raise LookupError("none")

    case = draw(Refuses(), "s")[0]
    assert case.expected.kind == "LookupError"


def test_a_choice_writes_its_solution_and_keeps_the_right_options_out_of_the_parameters():
    class Colour(Choice):
        variants = ({"sky": "at noon"},)

        def questions(self):
            return {
                "A": Question("blue", ("blue", "red"), "It is noon.", "Air scatters blue most.")
            }

    colour = Colour()
    assert eval(colour.render("[[right]]")) == {"A": "blue"}
    assert colour.render("the sky [[sky]] [[left]]") == "the sky at noon [[left]]"
    assert "blue" not in str(colour.params)
    verdict = judge(colour, LocalAnswers({"A": "blue"}), draw(colour, "s"))
    assert verdict.status == "correct"


def prints_half_a_character(count, multiple=256):
    print("a\ud800b")
    return right(count, multiple)


def raises_half_a_character(count, multiple=256):
    raise ValueError("a\ud800b")


@pytest.mark.usefixtures("fixture_lab")
def test_half_a_character_costs_nothing_and_can_be_shown():
    verdict = check("90-1", prints_half_a_character)
    assert verdict.status == "correct", str(verdict)
    assert "a\\ud800b" in str(verdict) and str(verdict).encode()
    for answer in (
        raises_half_a_character,
        lambda count, multiple=256: "\ud800",
        lambda count, multiple=256: {"\udfff": 1},
    ):
        wrong = check("90-1", answer)
        assert wrong.status == "incorrect" and str(wrong).encode() and wrong._repr_html_().encode()
