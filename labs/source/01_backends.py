# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Backends: the ways to a GPU"
#     minutes: 90
#     before: ["00", "04"]
#     know: ["dictionaries", "sets", "`re.sub`"]
# ---

# %% [markdown] id="l01-title"
# # Lab 01 · Backends
# **CUDA, ROCm, SYCL, Metal, Vulkan: what each is, where it runs, and how to choose** · 90 minutes, 5 exercises; the letter at the end is extra
#
# A **backend** is a way for a program to reach a device; each one runs on some machines only. Three overview pages on the web compare them: here they are page 1, page 2 and page 3. All three contain sentences that were never true, or are no longer true. You check them against dated facts.
#
# **Afterwards you can**
# * say what each backend and each runtime above it is, and what it cannot do;
# * translate CUDA files to HIP where replacing a word is not enough;
# * find PyTorch's device from plain facts, on every vendor's machine;
# * compute the set of backends that a job admits;
# * recognise a claim that is out of date.
#
# **Before this lab**: lab 00, and your first kernel in lab 04. You need dictionaries, sets, and `re.sub`.
#
# **Files it opens**: `labs/lib/lab_01/backends.py`. New words are in the [glossary](GLOSSARY.md).

# %% id="l01-setup" tags=["hide-input"] vklab={"define": true}
import re

from vklab_course import attempt, banner, check, hint, predict, show
from vklab_labs.lab_01 import backends as figures
from vklab_labs.lab_01.backends import BACKENDS, MACHINES, Backend
from vklab_labs.shared.listings import draw_listings

# %% id="l01-banner"
banner()

# %% id="l01-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l01-1text"
# ## 1 · What stands between a program and a GPU
# A core of a processor runs one sequence of instructions as fast as possible. A GPU has hundreds or thousands of simple **lanes**, and does one operation on many values. Products of matrices, and so neural networks, consist of such operations.
#
# With **SIMD** (single instruction, multiple data) the program itself handles short vectors: one instruction adds eight numbers. With **SIMT** (single instruction, multiple threads) you write a program for *one* value, and the device runs copies of it in groups: of 32 on NVIDIA's cards, 32 or 64 on AMD's, 8 to 32 on Intel's. CUDA calls such a group a *warp*, AMD a *wave*, and Vulkan a *subgroup*.

# %% id="l01-simt-picture" tags=["hide-input"]
figures.draw_simd_and_simt()

# %% [markdown] id="l01-stack-text"
# A framework such as PyTorch calls a **math library**, which brings finished **kernels**: programs for the GPU. The library calls an **API**, which moves bytes and starts kernels. Mostly a kernel comes as *intermediate code* (PTX, SPIR-V, Apple's AIR), which the driver translates for the chip. AMD's compiler makes machine code, one copy for each kind of GPU: a program from last year holds none for this year's card.

# %% id="l01-stack-picture" tags=["hide-input"]
figures.draw_stack()

# %% [markdown] id="l01-parts"
# The vendors copied each other's parts:
#
# | part | NVIDIA, CUDA | AMD, ROCm | Intel, oneAPI |
# |---|---|---|---|
# | language of kernels | CUDA C++ | HIP C++ | SYCL C++ |
# | what the compiler hands over | PTX | machine code | SPIR-V |
# | products of matrices | cuBLAS | rocBLAS (hipBLAS) | oneMKL |
# | layers of networks | cuDNN | MIOpen | oneDNN |
# | many GPUs together | NCCL | RCCL | oneCCL |
# | prepared inference | TensorRT | MIGraphX | OpenVINO |
#
# **CUDA** is NVIDIA's, and the oldest. **ROCm** is AMD's. Its API **HIP** copies CUDA name by name: `cudaMalloc` became `hipMalloc`. On an NVIDIA card, HIP calls CUDA. The Chinese vendor Moore Threads did the same with **MUSA**: `musaMalloc`, muBLAS.
#
# So one set of CUDA files can serve three vendors, as in llama.cpp (section 4): with `GGML_USE_HIP` or `GGML_USE_MUSA` defined, a small header renames every CUDA name before the compiler sees it: a **shim**.

# %% [markdown] id="l01-2text"
# ## 2 · From CUDA to HIP
# AMD's tool **hipify** translates CUDA files. Page 1 says that the code works unchanged afterwards. Somebody translates the small CUDA file below with one line of Python: `text.replace("cuda", "hip")`. `NAMES` has some of the names in AMD's tables.

# %% id="l01-cuda"
NAMES = {
    "<cuda_runtime.h>": "<hip/hip_runtime.h>", "<cuda_fp16.h>": "<hip/hip_fp16.h>",
    "<cublas_v2.h>": "<hipblas.h>", "cudaMalloc": "hipMalloc", "cudaFree": "hipFree",
    "cudaDeviceProp": "hipDeviceProp_t", "cudaThreadSynchronize": "hipDeviceSynchronize",
    "cublasSgemm": "hipblasSgemm", "CUBLAS_OP_N": "HIPBLAS_OP_N",
}
CUDA_FILE = '''#include <cuda_runtime.h>
#include "cuda_helpers.h"
__device__ float sum32(float x) {  // no cudaMalloc
  for (int d = 16; d > 0; d /= 2)
    x += __shfl_down_sync(0xffffffff, x, d);
  return x;
}
void start(float** p, unsigned seed) {
  if (cudaMalloc(p, 64)) puts("cudaMalloc failed");
  my_cudaMalloc_log(seed ^ 0xffffffff);
  cudaThreadSynchronize();
}
'''

# %% [markdown] id="l01-p1-text"
# **Your guess first.** After `replace`, which of these are right for a compiler of HIP? Write True or False.
#
# * `header`: the first line.
# * `call`: the call of `cudaMalloc`.
# * `old_call`: the call of `cudaThreadSynchronize`.
# * `own_name`: the call of `my_cudaMalloc_log`, whose file is not translated.
# * `mask`: the number after `__shfl_down_sync(`, one bit for each lane that takes part. A wave of AMD's MI cards has 64 lanes, and HIP refuses masks of 32 bits.

# %% id="l01-p1"
predict("01-p1", header=..., call=..., old_call=..., own_name=..., mask=...)

# %% id="l01-replace"
print(CUDA_FILE.replace("cuda", "hip"))

# %% [markdown] id="l01-1more" vklab={"role": "text", "id": "01-1"}
# ### Exercise 1 · Hipify
# Write a translator with four rules.
#
# 1. A header in angle brackets, and a *whole* name, is replaced as the table says. What is not in the table stays.
# 2. A name that only *contains* a known name stays: `my_cudaMalloc_log`.
# 3. Comments and strings stay. A header in quotes is a string, too.
# 4. The mask of all 32 lanes, `0xffffffff` as the first argument of a function whose name ends in `_sync`, becomes `[[mask]]`: all 64 lanes. Spaces may stand before and after the bracket, `x` and `f` may be capitals, and `u` or `U` may follow. With another ending, such as `ull`, the number stays: it has 64 bits already, on most systems. The same number elsewhere stays, too.
#
# `pieces` is given: every second piece of its list is a comment or a string.

# %% id="l01-pieces" vklab={"define": true}
TEXT_FOR_PEOPLE = re.compile(r'(//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*")', re.DOTALL)


def pieces(text):
    """Split C++ text: pieces 0, 2, 4 ... are code, pieces 1, 3, 5 ... are comments and strings."""
    return TEXT_FOR_PEOPLE.split(text)


# %% id="l01-pieces-run"
print(pieces('free(p); // done\nputs("cuda");'))

# %% id="l01-1" vklab={"role": "exercise", "id": "01-1", "points": 4, "lines": 8}
def hipify(text, names):
    r"""Return the text of a CUDA file as HIP.

    names: what stands for what, as in NAMES.
    TODO     in each piece of code: replace headers and whole names that are in names, and then
             each mask of 32 lanes by [[mask]].
    Approach re.sub takes a function: re.sub(r"\w+", lambda found: ..., piece). Here found[0] is the
             text that was found. <[\w./]+\.h> finds a header. _sync\s*\(\s* finds the end of a
             name and the bracket; keep that part with a group, (...) and \g<1>.
    Example  hipify("cudaFree(p); // cudaFree", NAMES) -> "hipFree(p); // cudaFree"
    (roughly 8 lines)
    """
    ### BEGIN SOLUTION
    done = []
    for number, piece in enumerate(pieces(text)):
        if number % 2 == 0:
            piece = re.sub(r"<[\w./]+\.h>|\w+", lambda found: names.get(found[0], found[0]), piece)
            piece = re.sub(
                r"(_sync\s*\(\s*)0[xX][fF]{8}[uU]?\b", r"\g<1>[[mask]]", piece)
        done.append(piece)
    return "".join(done)
    ### END SOLUTION


# %% id="l01-1d" vklab={"role": "demo"} tags=["hide-input"]
with attempt("01-1"):
    changed = set(hipify(CUDA_FILE, NAMES).splitlines()) - set(CUDA_FILE.splitlines())
    display(draw_listings({"CUDA": CUDA_FILE, "your HIP": hipify(CUDA_FILE, NAMES)}, changed,
                          "Marked in your HIP: the lines that your function changed."))

# %% id="l01-1c" vklab={"role": "check", "id": "01-1"}
check("01-1", hipify)

# %% id="l01-1h"
# hint("01-1")

# %% [markdown] id="l01-1after"
# A person must still read the result. `sum32` adds 32 lanes, because its loop starts at 16. It compiles, runs, and forgets half of a wave of 64; no table of names can know that. Radeon RX cards since the 5000 series run waves of 32 by default, so the same file is right there and wrong on an MI card. Start at `warpSize / 2` instead.

# %% [markdown] id="l01-3text"
# ## 3 · PyTorch finds its device
# A build of PyTorch supports one family of GPUs. Its ROCm build keeps CUDA's names: `torch.cuda.is_available()` is True on an AMD card, and the device is called `"cuda"`; `"hip"` and `"rocm"` are not valid devices. What differs is `torch.version.hip`: a version, or None.
#
# | machine | what is True | device | the backend below |
# |---|---|---|---|
# | an NVIDIA card | `torch.cuda.is_available()` | `cuda` | CUDA |
# | an AMD card, ROCm build | `torch.cuda.is_available()`; `torch.version.hip` is set | `cuda` | ROCm |
# | an Intel GPU | `torch.xpu.is_available()` | `xpu` | SYCL |
# | an Apple chip | `torch.backends.mps.is_available()` | `mps` | Metal |
# | nothing that this build supports | none | `cpu` | CPU |
#
# Page 3 decides whether PyTorch runs on ROCm by looking for "AMD" in the name of device 0. Its function and four machines, each with the truth behind its facts, are in the second cell below. On which does the function say the truth? True or False.

# %% id="l01-p2"
predict("01-p2", nvidia=..., instinct=..., radeon=..., rocm_without_gpu=...)

# %% id="l01-bug"
def uses_rocm(facts):
    return facts["cuda"] and "AMD" in facts["names"][0]


PARK = {
    "nvidia": ({"cuda": True, "hip": None, "names": ("NVIDIA A100-SXM4-80GB",)}, False),
    "instinct": ({"cuda": True, "hip": "6.4", "names": ("AMD Instinct MI300X",)}, True),
    "radeon": ({"cuda": True, "hip": "6.4", "names": ("Radeon RX 7900 XTX",)}, True),
    "rocm_without_gpu": ({"cuda": False, "hip": "6.4", "names": ()}, False),
}
for name, (facts, truth) in PARK.items():
    print(f"{name:17} says the truth: {uses_rocm(facts) == truth}")

# %% [markdown] id="l01-2task"
# ### Exercise 2 · The device from facts
# Write the decision as a function of plain facts, which can be tested for every vendor on any laptop. An older PyTorch lacks some of these functions, so a fact may be missing: that means "no". And Metal has no floating-point numbers of 64 bits: a job in `float64` must not go to `mps`.

# %% id="l01-2" vklab={"role": "exercise", "id": "01-2", "points": 4, "lines": 8}
def torch_device(facts, float64=False):
    """Return (device, backend) as in the table, such as ("cuda", "ROCm").

    facts: a dictionary that may have "cuda", "xpu", "mps" (True or False), "hip" (a version or
    None) and "names" (names of the devices).  float64: the job needs float64.
    TODO     go through the table from top to bottom; the first row that fits decides.
    Example  torch_device({"mps": True}) -> ("mps", "Metal")              (roughly 8 lines)
    """
    ### BEGIN SOLUTION
    if facts.get("cuda"):
        return ("cuda", "ROCm") if facts.get("hip") else ("cuda", "CUDA")
    if facts.get("xpu"):
        return "xpu", "SYCL"
    if facts.get("mps") and not float64:
        return "mps", "Metal"
    return "cpu", "CPU"
    ### END SOLUTION


# %% id="l01-2d" vklab={"role": "demo"}
with attempt("01-2"):
    for name, (facts, _) in PARK.items():
        print(f"{name:17}", *torch_device(facts))

# %% id="l01-2c" vklab={"role": "check", "id": "01-2"}
check("01-2", torch_device)

# %% id="l01-2h"
# hint("01-2")

# %% [markdown] id="l01-4text"
# ## 4 · Shared standards, and runtimes above them
# **SYCL** is a standard of the Khronos Group: plain C++, for every vendor. Intel's compiler DPC++ and the independent AdaptiveCpp implement it. A program sends work to a `queue`. With *buffers* and *accessors* you declare what a kernel reads and writes, and the runtime orders kernels and copies. With **USM** (unified shared memory, since SYCL 2020) you hold pointers and order the work yourself, as in CUDA. Page 2 knows the first way only.

# %% id="l01-sycl" tags=["hide-input"]
BUFFERS = """
sycl::queue q;
{
  sycl::buffer<float> x(host, n);
  q.submit([&](sycl::handler& h) {
    sycl::accessor a(x, h, sycl::read_write);
    h.parallel_for(n, [=](auto i) { a[i] *= 2; });
  });
}  // x is destroyed here: copies back
"""
USM = """
sycl::queue q;
float* x = sycl::malloc_device<float>(n, q);
auto in = q.memcpy(x, host, n * sizeof(float));
auto run = q.parallel_for(n, in,
                          [=](auto i) { x[i] *= 2; });
q.memcpy(host, x, n * sizeof(float), run).wait();
sycl::free(x, q);
"""
draw_listings({"buffers and accessors": BUFFERS, "USM": USM}, ("accessor", "in,", "run)"),
              "The same kernel twice. Marked: where the order of the steps is said.")

# %% [markdown] id="l01-4what"
# An *LLM* is a large language model, a network that writes text. *Inference* is running a network.
#
# | backend | what it is | source code | used by | limit |
# |---|---|---|---|---|
# | CUDA | NVIDIA's language, API and libraries | closed | most frameworks | made for NVIDIA's cards only |
# | HIP | AMD's API; with its libraries: ROCm | mostly open | PyTorch, JAX | supports fewer cards; only a part of ROCm exists on Windows |
# | SYCL | Khronos' standard for C++ | open | oneAPI, programs of science | has no networks, it is an API |
# | Metal | Apple's API for graphics and compute | closed | PyTorch's `mps`, llama.cpp | Apple's systems only; its shaders run on the GPU, not on the Neural Engine |
# | Vulkan | Khronos' API for graphics and compute | open; some drivers are closed | games; ncnn, Kompute, VkFFT | has no finished kernels: you write them (labs 04 to 08) |
# | PyTorch | a framework above CUDA, HIP, SYCL or Metal | open | research, most published models | too large for phones |
# | MLX | Apple's framework, above Metal and, on Linux, CUDA | open | models converted by its users | no GPUs of AMD and Intel |
# | Core ML | Apple's runtime for network files (since 2026 beside Core AI); CPU, GPU, Neural Engine | closed | apps on Apple's devices | does not promise which unit runs (lab 15) |
# | DirectML | Microsoft's operators above DirectX 12 | closed | ONNX Runtime on Windows | gets no new features: Windows ML replaces it (lab 16) |
# | llama.cpp | runs LLMs, with the tensor library **GGML** and the file format **GGUF** | open | Ollama; whisper.cpp for speech uses GGML | runs few other networks |
# | MLC-LLM | a compiler: one LLM to CUDA, ROCm, Metal, Vulkan, WebGPU | open | phones, browsers | runs only networks that it knows |
# | ExecuTorch | PyTorch's runtime for phones and PCs, also for LLMs; parts of a graph go to a **delegate** | open | apps; its delegates are Core ML, Vulkan, XNNPACK, CUDA ... | one file for each delegate |
#
# CUDA, HIP, SYCL, Metal and Vulkan are APIs. cuBLAS is a math library, and so is XNNPACK, which ExecuTorch lists beside the API Vulkan. llama.cpp is a program. "Vulkan or llama.cpp" is not a question, "llama.cpp on Vulkan or on CUDA" is.

# %% [markdown] id="l01-matrix-text"
# The picture shows what each project's documentation named in November 2026. A mark means *some* GPUs of the vendor: AMD's present MI cards, for example, have no driver for Vulkan.

# %% id="l01-matrix" tags=["hide-input"]
figures.draw_matrix(BACKENDS, "Backends by vendor and system, November 2026.")

# %% [markdown] id="l01-stars"
# Page 3 gives stars for portability instead: five to Vulkan, two to Metal, one to CUDA, without a date, method or source. Another page prints shares of the datacenter market, "~80%" for NVIDIA and "~15%" for AMD, as bare: do not repeat such a number. Machines can be counted. The line below each row is its source.

# %% id="l01-count" tags=["nbval-ignore-output"]
for name, backend in BACKENDS.items():
    print(f"{name:10} {len(backend.runs_on):2} of {len(MACHINES)} kinds   "
          f"{'open' if backend.open_source else 'closed':7}{' '.join(sorted(backend.jobs))}\n"
          f"      {backend.source}")

# %% [markdown] id="l01-3task" vklab={"role": "text", "id": "01-3"}
# ### Exercise 3 · The admissible backends
# The jobs are `kernels` (run kernels of your own), `training`, `network` (run the file of a network) and `chat` (run an LLM). There are three wishes:
#
# * `"open"`: the backend's source is open;
# * `"[[wish]]"`: on no machine of the job may it be `"[[state]]"`;
# * `"spare"`: it also runs on a machine of another *vendor* than the job's machines.

# %% id="l01-3show"
show(Backend)

# %% id="l01-3" vklab={"role": "exercise", "id": "01-3", "points": 4, "lines": 13}
def admissible(backends, machines, job, wishes=()):
    """Return the set of names of the backends that fit.

    backends: {name: Backend}.  machines: "vendor/system" texts; the backend must run on all.
    job: a word that must be among the backend's jobs.
    wishes: some of "open", "[[wish]]", "spare".
    TODO     start with an empty set; go through the backends; skip one at its first failure.
    Example  admissible(BACKENDS, ("Apple/iOS",), "kernels", ("open",)) -> {"Vulkan"}
             "AMD/Linux".split("/")[0] is the vendor.                     (roughly 13 lines)
    """
    ### BEGIN SOLUTION
    fitting = set()
    vendors = {machine.split("/")[0] for machine in machines}
    for name, backend in backends.items():
        states = [backend.runs_on.get(machine) for machine in machines]
        others = {machine.split("/")[0] for machine in backend.runs_on} - vendors
        if None in states or job not in backend.jobs:
            continue
        if "open" in wishes and not backend.open_source:
            continue
        if ("[[wish]]" in wishes and "[[state]]" in states) or ("spare" in wishes and not others):
            continue
        fitting.add(name)
    return fitting
    ### END SOLUTION


# %% id="l01-3d" vklab={"role": "demo"}
with attempt("01-3"):
    chosen = admissible(BACKENDS, ("AMD/Windows", "Apple/macOS"), "chat", ("open",))
    display(figures.draw_matrix(BACKENDS, "Your answer for: an LLM on a PC with an AMD card and on "
                                "a Mac, with open source.", chosen))

# %% id="l01-3c" vklab={"role": "check", "id": "01-3"}
check("01-3", admissible)

# %% id="l01-3h"
# hint("01-3")

# %% [markdown] id="l01-5text"
# ## 5 · Pages grow old
# Evidence, with its sources and dates:
#
# | name | evidence |
# |---|---|
# | `windows` | AMD released the HIP SDK for Windows on 27 July 2023. ROCm's documentation has an installation page for PyTorch on Windows (wheels of ROCm 6.4.4, later 7.2; a preview). |
# | `zluda` | ZLUDA runs programs that were built for CUDA, unchanged, on AMD cards; first published in February 2024, incomplete. |
# | `honeykrisp` | Announced on 5 June 2024: a Vulkan driver for Apple's M1 under Linux that passes the conformance tests. It does not use Metal. |
# | `coreml` | Metal's shaders run on the GPU only. Apple documents three frameworks that send parts of a network to the Neural Engine: Core ML, MPSGraph and, since 2026, Core AI. None of them runs your own code there. |
# | `usm` | The standard SYCL 2020 has pointers, `malloc_device` and `malloc_shared`, beside its buffers. |
# | `manifest` | Lab 02: the loader of Vulkan opens a driver's library, of the GPU's vendor or of Mesa. DirectML needs a driver for DirectX 12 (its documentation, November 2026). |
# | `poro` | The language model Poro 34B was trained on 512 cards of AMD's MI250X in the computer LUMI, from September 2023 on (its model card). |
# | `acpp` | AdaptiveCpp's manual: one SYCL compiler for NVIDIA (PTX), AMD (amdgcn) and Intel (SPIR-V); version 23.10 and later. |

# %% [markdown] id="l01-4task" vklab={"role": "text", "id": "01-4"}
# ### Exercise 4 · Which evidence refutes which claim?
# These claims stand, in other words, on the three pages. At least one holds.
#
# | | claim |
# |---|---|
# | A | [[a]] |
# | B | [[b]] |
# | C | [[c]] |
# | D | [[d]] |
# | E | [[e]] |
# | F | [[f]] |
#
# Name the evidence that refutes the claim, or `"holds"`. The check asks for all six at once; grading counts each claim.

# %% id="l01-4" vklab={"role": "exercise", "id": "01-4", "points": 3, "lines": 3}
# A dictionary: refuted = {"A": ..., "B": ..., ...}
refuted = ...
### BEGIN SOLUTION
refuted = [[right]]
### END SOLUTION

# %% id="l01-4c" vklab={"role": "check", "id": "01-4"}
check("01-4", refuted)

# %% id="l01-4h"
# hint("01-4")

# %% [markdown] id="l01-6text" vklab={"role": "text", "id": "01-5"}
# ## 6 · Choose, and say why
# A choice from the set of exercise 3 needs reasons: what the team knows, what runs tomorrow, what happens when the vendor changes its mind.
#
# ### Exercise 5 · A letter of advice (extra)
# [[story]]
#
# Write four or five sentences: the admissible backends (call your function with the machines and the job of the story), your choice, two reasons that rest on facts with a source or a date (section 4 prints sources), and one risk with a way out of it. A person marks this answer: the set is right (2), the choice follows from the facts of the story (1), two reasons with source or date (2), one risk and a way out (1).

# %% id="l01-5" vklab={"role": "exercise", "id": "01-5", "points": 6, "lines": 5}
# A text: advice = """..."""
advice = ...
### BEGIN SOLUTION
advice = """
Admissible for an LLM on these machines are llama.cpp, MLC-LLM and ExecuTorch; all three are open.
I choose llama.cpp: its docs/build.md names Vulkan for the laptops and Metal for the Macs, and its
releases have finished files for both systems (read in November 2026), so nobody compiles anything.
The risk: the project changes its file format. The way out: keep the weights in their first form.
"""
### END SOLUTION

# %% id="l01-5c" vklab={"role": "check", "id": "01-5"}
check("01-5", advice)

# %% id="l01-5h" vklab={"id": "01-5"}
# hint("01-5")

# %% [markdown] id="l01-recap"
# ## Recap
# | question | answer | mistake to avoid |
# |---|---|---|
# | CUDA to HIP? | a table of names, whole words, code only, masks of 64 lanes | `replace("cuda", "hip")` |
# | which device has PyTorch? | `is_available()`, then `torch.version.hip`; since PyTorch 2.6 also `torch.accelerator` | looking for "AMD" in a name |
# | which backend? | a set from machine, job and wishes; then reasons | naming a favourite first |
#
# **Next**: [lab 01b](01b_rooflines.ipynb) checks the numbers of the pages.
#
# **References**
# * [HIP porting guide](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_porting_guide.html) and [HIPIFY](https://rocm.docs.amd.com/projects/HIPIFY/en/latest/).
# * [PyTorch: HIP (ROCm) semantics](https://docs.pytorch.org/docs/stable/notes/hip.html); [PyTorch issue 122602](https://github.com/pytorch/pytorch/issues/122602), `float64` on `mps`.
# * [PyTorch for ROCm on Windows](https://rocm.docs.amd.com/projects/radeon-ryzen/en/latest/docs/install/installrad/windows/install-pytorch.html); [HIP SDK 5.5](https://github.com/ROCm/legacy-rocm-build/releases/tag/win-5.5); [ZLUDA](https://github.com/vosen/ZLUDA).
# * [Vulkan 1.3 on the M1](https://rosenzweig.io/blog/vk13-on-the-m1-in-1-month.html).
# * Further projects: [VkFFT](https://github.com/DTolm/VkFFT), one library for six APIs; [tinygrad](https://github.com/tinygrad/tinygrad), kernels generated from three kinds of operations; [Burn](https://github.com/tracel-ai/burn) and [Candle](https://github.com/huggingface/candle), frameworks in Rust; [AdaptiveCpp](https://github.com/AdaptiveCpp/AdaptiveCpp), one binary for GPUs of several vendors.
