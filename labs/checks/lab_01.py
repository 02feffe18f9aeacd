"""Exercises of lab 01: hipify, PyTorch's device, admissible backends, claims, a letter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Choice, Predict, Question, Text
from vklab_course.definition.report import Report
from vklab_labs.lab_01.backends import BACKENDS, MACHINES, Backend

NAMES = {
    "<cuda_runtime.h>": "<hip/hip_runtime.h>", "<cuda_fp16.h>": "<hip/hip_fp16.h>",
    "<cublas_v2.h>": "<hipblas.h>", "<curand_kernel.h>": "<hiprand/hiprand_kernel.h>",
    "cudaMalloc": "hipMalloc", "cudaFree": "hipFree", "cudaMemcpy": "hipMemcpy",
    "cudaMemcpyHostToDevice": "hipMemcpyHostToDevice", "cudaDeviceProp": "hipDeviceProp_t",
    "cudaThreadSynchronize": "hipDeviceSynchronize", "cudaStream_t": "hipStream_t",
    "cublasHandle_t": "hipblasHandle_t", "cublasSgemm": "hipblasSgemm",
    "CUBLAS_OP_N": "HIPBLAS_OP_N", "CUBLAS_OP_T": "HIPBLAS_OP_T",
}  # fmt: skip
HEADERS = tuple(name for name in NAMES if name.startswith("<"))
CALLS = tuple(name for name in NAMES if not name.startswith("<"))
# One pass from left to right: comment, string, call with a mask, header or name.
TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|(?P<call>\w*_sync\s*\(\s*)"
    r"(?P<mask>0[xX][fF]{8}[uU]?\b)|<[\w./]+\.h>|\w+",
    re.DOTALL,
)
MASKED = ("__shfl_down_sync", "__shfl_xor_sync", "__ballot_sync", "__any_sync")


@exercise(
    "01-1",
    hints=(
        "Which pieces may change? enumerate gives each piece with its number; join puts them "
        "together again.",
        r"\w+ finds whole names, so my_cudaMalloc_log is one name, and it is not in the table. "
        "dict.get takes a second argument, for names that are not there.",
        "The mask: match the end of the name, the bracket and the spaces in a group, then the "
        "number outside of the group. [fF]{8} is eight letters, [uU]? is one letter or none; which "
        "other letter may be a capital?",
    ),
    variants=(
        {"mask": "0xffffffffffffffffull"},
        {"mask": "~0ull"},
        {"mask": "UINT64_MAX"},
        {"mask": "0xFFFFFFFFFFFFFFFFULL"},
    ),
)
class Hipify(Function):
    parts = {"headers": ("headers in angle brackets, and only they", 1),
             "names": ("whole names of the table, and no others", 1),
             "people": ("comments and strings stay", 1),
             "masks": ("masks of 32 lanes become masks of 64", 1)}  # fmt: skip
    follows = {"names": "headers", "people": "headers names", "masks": "headers names people"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def some(names: Iterable[str], count: int) -> list[str]:
            return [str(name) for name in random.choice(list(names), count, replace=False)]

        one, two = some(HEADERS, 2)
        yield self._case("headers", f"#include {one}\n#include <vector> \n#include{two}\n")
        plain = one.strip("<>")
        yield self._case("headers", f'#include "{plain}"\n#include {one}\nint a = x <y> z;\n')
        yield self._case("headers", f"#include <my/{plain}>\n#include  {two} // {one}\n")
        a, b, c = some(CALLS, 3)
        yield self._case("names", f"{a}(p, {b});\n{c} x; y={c}*2;")
        yield self._case("names", f"my_{a}({b}); {b}2(); {c}_log; x.{a}(); ::{b}; {c.lower()};")
        yield self._case("names", f"{a}<<<{b},1>>>({c});barra{a};{a}", count=2)
        yield self._case("names", f"_newName({a}); {b}", {"_newName": "other", b: "thing::" + b})
        yield self._case("names", "cudaDeviceProp p; cudaThreadSynchronize(); hipFree(q);")
        yield self._case("names", f"std::vector<{a}> v; f<{b}>({c});")
        yield self._case("names", "one(two); no", {"one": "two", "two": "no", "no": "one"})
        yield self._case("headers", "#include <cudaMalloc.h>\n#include <my/cudaFree.h>\nx;")
        a, b, c = some(CALLS, 3)
        yield self._case("people", f'{a}("{a} failed"); // {b}\n{b}();\n')
        yield self._case("people", f"/* {a}\n {b} // */ {a}(); /**/{c}/*{c}*/\n")
        yield self._case("people", f'puts("// {a}"); {a}(); puts("\\"{b}\\\\"); {b}("");')
        yield self._case("people", f'// "{a}\n{a}("a", "{c}"); // x_sync(0xffffffff, {c})\n{c};')
        for number, name in enumerate(some(MASKED, 3)):
            mask = ("0xffffffff", "0xFFFFFFFFu", "0XffFFffffU")[number]
            yield self._case("masks", f"x = {name}({mask}, x, {number}) ^ {mask};\n{a}(1);")
        yield self._case("masks", f"my_{MASKED[0]}  (\n  0xffffffff, v); {b}(0xffffffff);")
        yield self._case(
            "masks",
            "__any_sync(0xffffffffff, p); __any_sync(0xfffffff, p); "
            "__any_sync(m, 0xffffffff); async(0xffffffff); __syncthreads();"
            "__any_sync(0xffffffff,p);__all_sync( 0xffffffffU ,p)",
        )
        yield self._case(
            "masks",
            "warp_sync(0xffffffff, p); __any_sync(0xffffffffull, p); __any_sync2(0xffffffff, p);",
        )
        yield self._case(
            "masks",
            f"/* __any_sync(0xffffffff) */ __any_sync(0x0000ffff); {a}; "
            'puts("__any_sync(0xffffffff)"); __all_sync(0xffffffff);',
        )

    def _case(
        self, part: str, text: str, names: Mapping[str, str] = NAMES, count: int | None = None
    ) -> Case:
        table = dict(list(names.items())[::count])
        return Case(part, (text, table), on=words.short(text))

    def expected(self, case: Case) -> Any:
        text, names = case.args

        def translate(found: re.Match[str]) -> str:
            if found["mask"]:
                return found["call"] + str(self.params["mask"])
            return names.get(found[0], found[0])

        return TOKEN.sub(translate, text)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(isinstance(got, str), f"expected a text, got {words.short(got)}")
        right, wrong = case.expected.split("\n"), got.split("\n")
        report.equal(len(wrong), len(right), "the number of lines; does each piece come back?")
        for number, (a, b) in enumerate(zip(right, wrong, strict=True), 1):
            report.equal(b, a, f"line {number}")


# ------------------------------------------------------------------------------- PyTorch's device


@exercise(
    "01-2",
    hints=(
        "Each row of the table is one question; which machine passes all of them?",
        "Which method of a dictionary gives None for a key that is not there?",
        "torch.version.hip is set in every ROCm build, with or without a card: ask for the card "
        "first.",
    ),
)
class TorchDevice(Function):
    parts = {"vendor": ("NVIDIA and AMD, told apart without names", 1),
             "others": ("Intel, Apple, and none", 1),
             "missing": ("facts that are missing", 1),
             "float64": ("jobs in float64", 1)}  # fmt: skip
    follows = {"missing": "vendor others", "float64": "vendor others"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        version, other = (
            f"{random.integers(*some)}.{random.integers(0, 5)}.43482-0f2d6"
            for some in ((5, 7), (7, 11))
        )
        full = {"cuda": True, "hip": None, "xpu": False, "mps": False, "names": ("GPU",)}
        names = ("AMD Instinct MI210", "Radeon RX 7900 XTX", "NVIDIA A100", "AMD EPYC's NVIDIA A10")
        for name in names:
            for hip in (None, version, other):
                yield self._case("vendor", full | {"hip": hip, "names": (name,)})
        yield self._case("vendor", full | {"hip": version, "cuda": False, "names": ()})
        none = full | {"cuda": False, "names": ()}
        for more in (
            {"xpu": True},
            {"mps": True},
            {},
            {"xpu": True, "mps": True},
            {"hip": version, "xpu": True},
            {"cuda": True, "xpu": True, "mps": True},
        ):
            yield self._case("others", none | more)
        for few in (
            {},
            {"mps": True},
            {"xpu": True},
            {"cuda": True},
            {"cuda": False},
            {"hip": version},
            {"cuda": True, "hip": version},
            {"names": ()},
        ):
            yield self._case("missing", few)
        for few in (
            {"mps": True},
            {"xpu": True},
            {"cuda": True, "mps": True},
            {},
            {"hip": version, "cuda": True},
            {"hip": other, "mps": True},
            {"xpu": True, "mps": True},
        ):
            for float64 in (True, False):
                yield self._case("float64", few, float64)
        for _ in range(8):
            few = {
                key: bool(random.random() < 0.4)
                for key in ("cuda", "xpu", "mps")
                if random.random() < 0.7
            }
            few |= {"hip": [None, version][int(random.integers(2))]}
            yield self._case("missing", few)
            yield self._case("float64", few, bool(random.random() < 0.6))

    def _case(self, part: str, facts: Mapping[str, Any], float64: bool = False) -> Case:
        return Case(
            part,
            (dict(facts), *([True] if float64 else [])),
            on=f"{dict(facts)}" + (", float64" if float64 else ""),
        )

    def expected(self, case: Case) -> Any:
        facts, float64 = case.args[0], len(case.args) > 1
        rows = (
            (facts.get("cuda"), ("cuda", "ROCm" if facts.get("hip") else "CUDA")),
            (facts.get("xpu"), ("xpu", "SYCL")),
            (facts.get("mps") and not float64, ("mps", "Metal")),
            (True, ("cpu", "CPU")),
        )
        return next(answer for fits, answer in rows if fits)


# ---------------------------------------------------------------------------- admissible backends

STATES = ("native", "native", "native", "translated", "preview")
JOBS = ("kernels", "training", "network", "chat")
WISHES = (
    {"wish": "direct", "state": "translated"},
    {"wish": "finished", "state": "preview"},
    {"wish": "no layer", "state": "translated"},
    {"wish": "stable", "state": "preview"},
)


@exercise(
    "01-3",
    hints=(
        "Collect the states of a backend on all machines of the job: None among them means that "
        "it does not run on one of them.",
        "One if with continue for each reason to skip: machine, job, and each wish.",
        "spare: the vendors of all keys of runs_on, without the vendors of the job's machines. Is "
        "anything left?",
    ),
    variants=WISHES,
)
class Admissible(Function):
    parts = {"machines": ("it runs on all machines", 1), "job": ("it does the job", 1),
             "states": ("the wishes for open source and for the state", 1),
             "spare": ("another vendor is left", 1)}  # fmt: skip
    follows = {"job": "machines", "states": "machines job", "spare": "machines job states"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        wish = self.params["wish"]
        for machines, job in (
            (("AMD/Windows",), "chat"),
            (("Apple/Linux",), "kernels"),
            (("NVIDIA/Linux", "Apple/macOS"), "training"),
        ):
            yield self._case("machines", BACKENDS, machines, job)
        yield self._case("job", BACKENDS, ("Intel/Windows",), "network")
        yield self._case("job", BACKENDS, ("Intel/Windows",), "net")
        asked = {
            "machines": ((),),
            "job": ((),),
            "states": ((), (wish,), ("open",), (wish, "open")),
            "spare": (("spare",), ("spare", "open"), ("spare", wish)),
        }
        for part, every in asked.items():
            found = 0
            while found < 6:
                table = self._table(random)
                machines = tuple(map(str, random.choice(MACHINES, random.integers(1, 4), False)))
                wishes = every[found % len(every)]
                case = self._case(part, table, machines, JOBS[random.integers(4)], wishes)
                without = self._case(part, table, machines, case.args[2])
                right, plain = self.expected(case), self.expected(without)
                if 0 < len(right) < len(plain) if wishes else 0 < len(right) < len(table):
                    found += 1
                    yield case
        yield self._case("machines", self._table(random), ("Nobody/Linux",), "chat")
        # For each kind of machine: native, the state of the wish, the other state; x is closed.
        rows = (
            "n-n-n----- o-o-o----b n-b-n----n n-n-b---n- b-n-n---n- n-n-n---b- n-n-n----nx "
            "--nn------ --nn-o---- --nn-----b --nnnn---- --n-n--o-- --n------n --nn--n---x "
            "--n-n-n---x"
        )
        other = {"translated", "preview"} - {self.params["state"]}
        marks = {"n": "native", "b": self.params["state"], "o": min(other)}
        table = {
            name: Backend(
                {m: marks[mark] for m, mark in zip(MACHINES, row, strict=False) if mark in marks},
                frozenset(JOBS),
                row[-1] != "x",
            )
            for name, row in zip("ABCDEFGHIJKLMNO", random.permutation(rows.split()), strict=True)
        }
        for job in (
            ("AMD/Linux", "Intel/Linux", "NVIDIA/Linux"),
            ("AMD/Linux", "AMD/Windows"),
            ("Intel/Linux", "AMD/Linux"),
        ):
            machines = tuple(map(str, random.permutation(job)))
            for wishes in ((wish,), ("open",), ("open", wish)):
                yield self._case("states", table, machines, "chat", wishes)
            for wishes in (
                ("spare",),
                (wish, "spare"),
                ("open", wish, "spare"),
                (wish, "spare", "open"),
                ("spare", "open", wish),
            ):
                yield self._case("spare", table, machines, "chat", wishes)

    def _table(self, random: np.random.Generator) -> dict[str, Backend]:
        table = {}
        for name in random.permutation([*BACKENDS, "OpenCL", "WebGPU"])[:9]:
            able = [m for m in MACHINES if random.random() < (0.85, 0.3)[len(table) % 2]]
            jobs = frozenset(job for job in JOBS if random.random() < 0.6)
            table[str(name)] = Backend(
                {m: STATES[random.integers(5)] for m in able}, jobs, bool(random.random() < 0.6)
            )
        return table

    def _case(
        self,
        part: str,
        table: Mapping[str, Backend],
        machines: tuple[str, ...],
        job: str,
        wishes: tuple[str, ...] = (),
    ) -> Case:
        on = f"{', '.join(machines) or 'no machine'}; {job}" + f"; wishes {wishes}" * bool(wishes)
        on += "" if dict(table) == dict(BACKENDS) else "; the facts are made up"
        return Case(part, (dict(table), machines, job, *([wishes] if wishes else [])), on=on)

    def expected(self, case: Case) -> Any:
        table, machines, job, *rest = case.args
        wishes = rest[0] if rest else ()

        def fits(backend: Backend) -> bool:
            states = {backend.runs_on.get(machine, "") for machine in machines}
            vendors = [{m.partition("/")[0] for m in some} for some in (backend.runs_on, machines)]
            return (
                "" not in states
                and job in backend.jobs
                and ("open" not in wishes or backend.open_source)
                and (self.params["wish"] not in wishes or self.params["state"] not in states)
                and ("spare" not in wishes or not vendors[0] <= vendors[1])
            )

        return {name for name, backend in table.items() if fits(backend)}

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, set | frozenset),
            "expected a set of names, got "
            + ("None (is a return missing?)" if got is None else words.short(got)),
        )
        table = case.args[0]
        strange = sorted(str(name) for name in got if name not in table)
        report.expect(not strange, f"there is no backend {strange[:1]}")
        for title, names in (
            ("is admissible and missing", case.expected - got),
            ("is not admissible", got - case.expected),
        ):
            name = min(names, default="")
            report.expect(not names, f"{name} {title}: {table.get(name)}")


# -------------------------------------------------------------------------------------- claims

CLAIMS = (
    "ROCm exists for Linux only.",
    "A program that was built for CUDA cannot run on an AMD card in any way.",
    "Metal is the only way to the GPU of an Apple chip.",
    "A program can reach the Neural Engine through Metal's shaders.",
    "In CUDA memory is handled explicitly, in SYCL by buffers.",
    "DirectML and Vulkan need no driver for the GPU.",
    "For training large models, NVIDIA with CUDA is the only choice.",
    "The compiler of SYCL is Intel's.",
    "PyTorch has official builds for ROCm.",
    "HIP code can be compiled for NVIDIA's cards, too.",
    "llama.cpp has a backend for Vulkan.",
    "Metal exists on Apple's systems only.",
)
REFUTED_BY = ("windows", "zluda", "honeykrisp", "coreml", "usm", "manifest", "poro", "acpp",
              "holds", "holds", "holds", "holds")  # fmt: skip

# By claim: the fact that decides it, and the reason of the right answer.
WHY = (
    (
        "AMD has published a part of ROCm for a second system.",
        "The HIP SDK and wheels of PyTorch exist for Windows, too. One other system refutes "
        "'only'.",
    ),
    (
        "One line of the evidence is about programs that are already built, not about source code.",
        "ZLUDA runs programs that were built for CUDA on AMD cards, unchanged. It is incomplete, "
        "but one way refutes 'in any way'.",
    ),
    (
        "An Apple chip can run another system than Apple's, with a driver of its own.",
        "Honeykrisp is a Vulkan driver for the M1 under Linux, and it does not use Metal.",
    ),
    (
        "Metal's shaders run on one kind of unit only.",
        "Metal's shaders run on the GPU. Only Apple's frameworks, such as Core ML, reach the "
        "Neural Engine, and none of them runs your own code there.",
    ),
    (
        "The standard of 2020 gave SYCL a second way to handle memory.",
        "With USM, SYCL has pointers and explicit copies as CUDA has. Buffers are only one of its "
        "two ways.",
    ),
    (
        "Both APIs pass their commands to a library that knows the chip.",
        "Vulkan's loader opens the driver that a manifest names, and DirectML needs a driver for "
        "DirectX 12.",
    ),
    (
        "A large language model was trained on cards of another vendor.",
        "Poro 34B was trained on 512 cards of AMD's MI250X. One example refutes 'the only choice'.",
    ),
    (
        "SYCL is a standard, and more than one project implements it.",
        "AdaptiveCpp is a second compiler for SYCL, and it is not Intel's.",
    ),
    (
        "The line of the evidence that names PyTorch speaks of wheels of ROCm.",
        "PyTorch is built for ROCm. The evidence about Windows even names such wheels, so it "
        "supports the claim.",
    ),
    (
        "The evidence about NVIDIA's cards is about CUDA programs and about SYCL, not about HIP "
        "code.",
        "HIP's calls can be mapped to CUDA's, and NVIDIA's compiler does the rest. No evidence "
        "speaks against it.",
    ),
    (
        "No line of the evidence is about llama.cpp.",
        "llama.cpp's documentation names a build for Vulkan, and no evidence speaks against it.",
    ),
    (
        "The driver for the M1 under Linux speaks Vulkan, and does not use Metal.",
        "No evidence shows Metal on another vendor's system. That an Apple chip has a Vulkan "
        "driver, too, does not bring Metal elsewhere.",
    ),
)


def _claims(*numbers: int) -> dict[str, str]:
    return {letter: CLAIMS[number] for letter, number in zip("abcdef", numbers, strict=True)}


@exercise(
    "01-4",
    hints=(
        "Look for words such as 'only' and 'cannot': one example against them is enough. Which "
        "evidence is such an example?",
        "A claim that the evidence does not touch holds, as far as this table can tell.",
        "Is the claim about a system, a program, a standard, or a piece of hardware? Compare it "
        "with evidence about the same.",
    ),
    variants=(
        _claims(1, 8, 2, 5, 0, 4),
        _claims(0, 3, 9, 6, 2, 1),
        _claims(7, 0, 1, 11, 3, 5),
        _claims(10, 2, 4, 1, 6, 0),
    ),
)
class Claims(Choice):
    parts = {"all": ("every claim", 3)}

    def questions(self) -> Mapping[str, Question]:
        options = ("holds", *sorted(set(REFUTED_BY) - {"holds"}))
        rows = {
            claim: Question(right, options, *why)
            for claim, right, why in zip(CLAIMS, REFUTED_BY, WHY, strict=True)
        }
        return {letter.upper(): rows[claim] for letter, claim in self.params.items()}


# Admissible: llama.cpp, MLC-LLM, ExecuTorch; PyTorch; ExecuTorch; HIP, SYCL, Vulkan.
@exercise(
    "01-5",
    hints=(
        "Write the machines of the story as the matrix does, and choose one of the four jobs.",
        "What would make you regret the choice in a year?",
    ),
    variants=(
        {
            "story": "A school has forty laptops with Intel GPUs under Windows, and six Macs. The "
            "pupils shall chat with a small language model, without the internet. The "
            "teacher wants to read the source."
        },
        {
            "story": "A hospital has two servers with AMD MI210 cards under Linux, and trains a "
            "network on pictures that must not leave the house. In three years the servers "
            "are replaced, perhaps by another vendor's."
        },
        {
            "story": "A start-up sells an app that recognises plants with a network. It must run "
            "on "
            "iPhones and on Android phones with Qualcomm's chips, on the GPU."
        },
        {
            "story": "A physics group has kernels in CUDA, 12,000 lines, with cuBLAS. A new "
            "cluster "
            "has AMD cards under Linux. Half of the group works on Linux laptops with NVIDIA "
            "cards and wants to go on doing so."
        },
    ),
    extra=True,
)
class Advice(Text):
    rubric = {"the admissible set is right": 2, "the choice follows from the story": 1,
              "two reasons with a source or a date": 2, "one risk and a way out": 1}  # fmt: skip


# ------------------------------------------------------------------------------------- predictions


@exercise("01-p1", hints=("Compare each line with the table of names, character by character.",))
class ReplaceWord(Predict):
    explains = (
        "Only the call is right. The header is <hip/hip_runtime.h>. The old call (CUDA 13 "
        "no longer has it, either) is hipDeviceSynchronize in HIP. my_cudaMalloc_log is a "
        "function of the program; its new name exists nowhere. And the mask names 32 of "
        "64 lanes, which HIP's compiler refuses."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"header": False, "call": True, "old_call": False, "own_name": False, "mask": False}


@exercise("01-p2", hints=("What is the name of the device on each machine?",))
class ByName(Predict):
    explains = (
        "Some builds report a Radeon card without 'AMD', others write 'AMD Radeon ...'. "
        "Where 'AMD' is missing the page says 'no ROCm' and is wrong. A name is for "
        "people; torch.version.hip is the fact."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"nvidia": True, "instinct": True, "radeon": False, "rocm_without_gpu": True}
