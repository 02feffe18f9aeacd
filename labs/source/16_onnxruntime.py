# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "ONNX Runtime and DirectML"
#     minutes: 60
#     before: ["09"]
#     know: ["dictionaries", "tuples"]
# ---

# %% [markdown] id="l16-title"
# # Lab 16 · ONNX Runtime and DirectML
# **Where did my model really run?** · 60 minutes, 5 exercises, two of them extra
#
# You ask ONNX Runtime for your GPU. The outputs are right, nothing raises, and a week later you find out that the GPU never computed anything. This lab shows how that happens, and how to see it.
#
# **Afterwards you can**
# * choose the providers that can work on a machine, in the right order;
# * tell from a session which share of a model ran where you asked;
# * say what happens at each line of a DirectML setup, and name a source for it;
# * see why a table of latencies can have the wrong winner.
#
# **Before this lab**: lab 09 for ONNX files and their nodes. You need dictionaries and tuples. New words are explained where they come first, and in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/apps/compare/onnxruntime/providers.py`, `vklab/apps/compare/onnxruntime/nodes.py`.

# %% id="l16-setup" tags=["hide-input"]
import numpy as np
from IPython.display import display

from vklab_course import attempt, banner, check, data, hint, predict, show
from vklab_labs.lab_16 import clocks, sessions
from vklab_labs.lab_16 import provider_pictures as figures
from vklab_labs.lab_16.precision import bytes_moved, draw_nodes, draw_precisions, noise_of
from vklab_labs.lab_16.providers import MACHINES, PROVIDERS, recorded_sessions

# %% id="l16-banner"
banner()

# %% id="l16-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l16-1t"
# ## 1 · Providers
# ONNX Runtime executes ONNX files. An **execution provider** is the part of it that runs nodes on one kind of device: `CUDAExecutionProvider` on NVIDIA's GPUs, `DmlExecutionProvider` on any GPU under Windows, `CPUExecutionProvider` everywhere. (The name of each ends like this, so we often leave *ExecutionProvider* out.)
#
# A **session** is a loaded model. You give it a list of providers. The session asks each provider in turn which nodes it can run, and cuts the graph into **partitions**: groups of nodes that go to one provider. Values that cross a border between devices are copied.

# %% id="l16-1d" tags=["hide-input"]
figures.draw_partitions()

# %% [markdown] id="l16-1r"
# `get_available_providers()` tells what a *build*, one package for Python, contains. It does not tell what works on this machine: the GPU's build of Linux lists CUDA on a laptop without a GPU. So the list is only the first of four conditions.
#
# `PROVIDERS` is a table of nine providers, the most specific first. Each row is a dictionary: `name`; `systems`; `vendors`, of which one GPU is enough (an empty tuple: no GPU is needed); `libraries`, which are all needed.

# %% id="l16-table"
for row in PROVIDERS:
    systems, vendors = ("/".join(row[key]) for key in ("systems", "vendors"))
    print(f"{row['name'].removesuffix('ExecutionProvider'):9} {systems:20}",
          f"GPUs: {vendors or 'none needed':30} libraries: {', '.join(row['libraries']) or 'none'}")

# %% [markdown] id="l16-e1t"
# ### Exercise 1 · Which providers can work here?
# A machine has a system, some GPUs, a build that lists providers, and some libraries. A build may list a provider that is not in the table, such as Azure: leave it out.

# %% id="l16-e1" vklab={"role": "exercise", "id": "16-1", "points": 5, "lines": 7}
def choose_providers(system, gpus, available, libraries):
    """Return the names of the providers that can work on a machine, most specific first.

    system: "Linux", "Windows" or "macOS". gpus: vendors of its GPUs. available: names of
    providers, as the build lists them. libraries: the libraries that are installed.
    TODO     a provider can work if the build lists it, the system is one of its systems, a GPU is
             of one of its vendors (or it needs no GPU), and all of its libraries are there.
    Approach keep the order of PROVIDERS, where the CPU is last.
    Example  choose_providers("Linux", ["NVIDIA"], ["CPUExecutionProvider",
             "CUDAExecutionProvider"], ["CUDA"]) -> ["CPUExecutionProvider"]: no cuDNN
                                                                      (roughly 7 lines)
    """
    ### BEGIN SOLUTION
    names = []
    for row in PROVIDERS:
        fits = row["name"] in available and system in row["systems"]
        gpu = not row["vendors"] or any(vendor in row["vendors"] for vendor in gpus)
        if fits and gpu and all(library in libraries for library in row["libraries"]):
            names.append(row["name"])
    return names
    ### END SOLUTION


# %% id="l16-e1d" vklab={"role": "demo"}
with attempt("16-1"):
    chosen = {name: choose_providers(*machine) for name, machine in MACHINES.items()}
    display(figures.draw_chosen(MACHINES, chosen, "Your choice for seven machines. A number: the "
                                "rank. no: the build lists it, and you left it out."))

# %% id="l16-e1c" vklab={"role": "check", "id": "16-1"}
check("16-1", choose_providers)

# %% id="l16-e1h"
# hint("16-1")

# %% [markdown] id="l16-matrixt"
# ### The table has a date
# Packages come and go. The next cell prints what `vklab parity --providers` knows. A *full build* owns the Python module `onnxruntime`, so two of them in one environment overwrite each other. A *plugin* stands beside a build.

# %% id="l16-packages" tags=["hide-input"]
figures.draw_packages()

# %% id="l16-matrix"
print(*figures.matrix(), sep="\n")

# %% [markdown] id="l16-matrixr"
# Lab 07 of the sources has such a table, too. It names `onnxruntime-rocm` and `onnxruntime-silicon`, which have both ended: MIGraphX replaces the first, and the macOS wheel of `onnxruntime` itself has CoreML today. It says that OpenVINO runs on all systems; there is no wheel for macOS.
#
# ## 2 · Where did it run?
# The next cell asks for two providers that most machines lack, and for Azure, which every CPU build on Linux lists. What does the session say?

# %% id="l16-2d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
try:
    for name in ("CUDAExecutionProvider", "AzureExecutionProvider"):
        row = sessions.recorded(str(data("mini_classifier.onnx")), [name, "CPUExecutionProvider"])
        print(name, *(f"  {key}: {row[key]}" for key in ("session", "assignment", "warnings")),
              sep="\n")  # fmt: skip
except ImportError as missing:
    print(missing, "- so see the recorded sessions below")

# %% [markdown] id="l16-2r"
# Three lists look alike, and only the last one answers the question:
#
# * `get_available_providers()`: what the build contains;
# * `session.get_providers()`: what this session may use, in order;
# * the **assignment**: how many nodes each provider got. (`vklab parity` asks for it by `session.record_ep_graph_assignment_info`, and compares it with a profile of a run. An assignment may leave nodes out; a profile shows fused nodes as one.)
#
# Asked for CUDA, a CPU build gives Python's warning, and nothing raises. Azure is first in both lists of names, and gets no node. `enable_fallback=0` does not help: the same sessions open. What does raise is the session option `session.disable_cpu_ep_fallback`, as long as your list does not name the CPU as well: then the error is that the two contradict each other.
#
# The file of MiniClassifier has nine nodes. Its int8 version is assigned 28, for the steps of rounding are nodes. So the file's count is no divisor.

# %% [markdown] id="l16-e2t" vklab={"id": "16-2"}
# ### Exercise 2 · Ran, partly, or fell back?
# Judge a session by its assignment. It *ran* on the provider asked for if that one got at least [[least]] of all assigned nodes, as a share from 0 to 1.

# %% id="l16-e2" vklab={"role": "exercise", "id": "16-2", "points": 4, "lines": 6}
def ran_on(asked, session, assignment):
    """Return (verdict, share): whether a model ran on the provider that was asked for.

    asked: name of a provider. session: list from get_providers(). assignment: {provider: nodes}.
    TODO     share: nodes of `asked` over all assigned nodes, 0.0 if there are none. verdict:
             "fell back" if the share is 0, "ran" if it is large enough, else "partly".
    Example  ran_on("CUDAExecutionProvider", ["CUDAExecutionProvider", "CPUExecutionProvider"],
                    {"CPUExecutionProvider": 9}) -> ("fell back", 0.0)     (roughly 6 lines)
    """
    ### BEGIN SOLUTION
    nodes = sum(assignment.values())
    share = assignment.get(asked, 0) / nodes if nodes else 0.0
    if share == 0:
        return "fell back", share
    return "ran" if share >= [[least]] else "partly", share
    ### END SOLUTION


# %% id="l16-e2d" vklab={"role": "demo"}
rows = recorded_sessions()
with attempt("16-2"):
    verdicts = [ran_on(row["asked"], row["session"], row["assignment"]) for row in rows]
    display(figures.draw_sessions(rows, verdicts, "Your verdicts on seven recorded sessions. "
                                  "*split* is a graph of five nodes, with Det in its middle."))

# %% id="l16-e2c" vklab={"role": "check", "id": "16-2"}
check("16-2", ran_on)

# %% id="l16-e2h"
# hint("16-2")

# %% [markdown] id="l16-showt"
# The sessions were recorded on 1 December 2026 on a machine without a GPU: ONNX Runtime 1.31.1, and onnxruntime-openvino 1.24.1, whose device is the CPU here. vklab uses the same rule: it refuses a row whose provider executed no node.

# %% id="l16-show"
display(show("vklab.apps.compare.onnxruntime.nodes.require"))

# %% [markdown] id="l16-5t" vklab={"extra": true}
# ## 3 · Half the file (optional)
# No later lab needs this section. A tool can round the weights of an ONNX file to float16, which has numbers from 5.96e-8 to 65,504. What about smaller and larger weights? Two tools have two answers: `onnxconverter_common` raises sizes below 1e-7 and clips at 10,000. ONNX Runtime's own tool takes 5.96e-8 and 65,504.

# %% id="l16-5d" vklab={"role": "demo", "extra": true} tags=["nbval-ignore-output"]
try:
    print(sessions.halved(str(data("mini_classifier.onnx"))))
except ImportError as missing:
    print(missing, "- recorded: 609,389 bytes become 305,667; the largest error is 0.0008 of 2.5")

# %% [markdown] id="l16-5r" vklab={"extra": true}
# The file halves. The time on a CPU of x86 does not: in our runs it was 0.9 to 1.2 times that of float32, because ONNX Runtime widens the weights when it loads them. On an H200 float16 pays for large networks: ResNet-18 takes 648 us by CUDA in place of 1,386, but MobileNetV3 takes 1,622 in place of 1,369 ([docs/backends.md](../docs/backends.md)).
#
# Each tool fails on one of our models. `onnxconverter_common` (1.16.0) fails on the encoder, at its Cast nodes; ONNX Runtime's tool converts that file. With `node_block_list`, ONNX Runtime's tool gives two nodes one name where two float32 nodes read one float16 value: give one of the two Casts another name afterwards.
#
# ### Exercise 3 · Half weights (extra)

# %% id="l16-e4" vklab={"role": "exercise", "id": "16-3", "points": 4, "lines": 7}
def half_weights(values, smallest, largest):
    """Return (halves, raised, clipped): values as float16, and how many were changed before.

    values: an array of float32. smallest, largest: limits, as a tool has them.
    TODO     a finite value beyond `largest` becomes `largest`, a nonzero value below `smallest`
             becomes `smallest`, both in size: the sign stays. Zeros, infinities and NaN stay. Then
             round to float16. raised, clipped: the counts of small and of large values.
    Example  half_weights(np.float32([1e-9, -7e4, 0, 2]), 1e-7, 1e4)
             -> (np.float16([1.2e-7, -1e4, 0, 2]), 1, 1)              (roughly 7 lines)
    """
    ### BEGIN SOLUTION
    size = np.abs(values)
    small = (size > 0) & (size < smallest)
    large = np.isfinite(values) & (size > largest)
    halves = np.where(small, np.copysign(smallest, values), values)
    halves = np.where(large, np.copysign(largest, values), halves)
    return halves.astype(np.float16), int(small.sum()), int(large.sum())
    ### END SOLUTION


# %% id="l16-e4d" vklab={"role": "demo", "id": "16-3"}
with attempt("16-3"):
    weights = np.float32([1e-9, 3e-8, 0.02, -7.5, 20000, -70000])
    for tool, limits in (("onnxconverter_common", (1e-7, 1e4)), ("ONNX Runtime", (5.96e-8, 65504))):
        print(f"{tool:20}", *half_weights(weights, *limits))

# %% id="l16-e4c" vklab={"role": "check", "id": "16-3"}
check("16-3", half_weights)

# %% id="l16-e4h" vklab={"id": "16-3"}
# hint("16-3")

# %% [markdown] id="l16-3t"
# ## 4 · DirectML
# **DirectML** is Microsoft's library of operators on Direct3D 12, the compute and graphics API of Windows. It runs on GPUs of any vendor. Lab 07 of the sources says that DirectML and Vulkan *skip the vendor-specific driver stack*. They do not: both call the vendor's driver.

# %% id="l16-3d" tags=["hide-input"]
figures.draw_layers()

# %% [markdown] id="l16-3r"
# We have no machine with Windows. So the facts below come from pages, issues and files, each with its date. `onnxruntime-directml` ended with 1.24.4; `onnxruntime-windowsml` follows it.
#
# * ONNX Runtime's page on DirectML asks for sequential execution and no memory patterns (plans of allocations that are kept from run to run). It promises an *error* otherwise. The program itself is milder: the wheel of 17 March 2026 holds the messages *So making the execution mode sequential for this session* and *Having memory pattern enabled is not supported*. Issue [6970](https://github.com/microsoft/onnxruntime/issues/6970) (10 March 2021) quotes how the second goes on: *So disabling it for this session*.
# * The same page: two threads must not call `run` of one session at once. Two sessions may run at once.
# * `device_id` is a number, in the order in which Windows lists its adapters. Python's `InferenceSession` catches an error of a provider when a session is made, prints *EP Error*, and tries again with the CPU. `enable_fallback=0` switches that off.
# * Full builds share a module. In issue [14687](https://github.com/microsoft/onnxruntime/issues/14687) (15 February 2023), only the CPU is listed after `pip install onnxruntime-directml`. The advice: uninstall `onnxruntime`.
# * The wheel has its own DirectML.dll, 18,527,776 bytes, version 1.15.4. Windows ships one, too, but an older one: issue [18831](https://github.com/microsoft/onnxruntime/issues/18831) (14 December 2023).
# * `torch-directml` is *no longer in active development*: DirectML issue [712](https://github.com/microsoft/DirectML/issues/712) (11 August 2025).

# %% [markdown] id="l16-e3t" vklab={"id": "16-4"}
# ### Exercise 4 · A DirectML setup of eight lines
# On a machine with Windows 11 and a GPU, `onnxruntime-directml` 1.24.4 is installed. The model's nodes are all known to DirectML. Judge each line on its own, as if every other line were right:
#
# * `fine`: it does what it says, or the sentence is true;
# * `corrected`: ONNX Runtime changes the option, writes it to its log, and the GPU is used;
# * `an error at once`: Python raises at this line;
# * `runs on the CPU`: a session opens, and no node is on the GPU;
# * `wrong sentence or number`: it runs, or it is a sentence, and it tells something false;
# * `package has ended`: nobody develops it any more.
#
# | row | line |
# |---|---|
# | A | [[a]] |
# | B | [[b]] |
# | C | [[c]] |
# | D | [[d]] |
# | E | [[e]] |
# | F | [[f]] |
# | G | [[g]] |
# | H | [[h]] |
#
# The check asks for all rows at once; grading counts each row.

# %% id="l16-e3" vklab={"role": "exercise", "id": "16-4", "points": 4, "lines": 1}
lines = ...  # {"A": "fine", "B": ...}
### BEGIN SOLUTION
lines = [[right]]
### END SOLUTION

# %% id="l16-e3c" vklab={"role": "check", "id": "16-4"}
check("16-4", lines)

# %% id="l16-e3h"
# hint("16-4")

# %% [markdown] id="l16-4t"
# ## 5 · What would break this?
# Lab 07 of the sources measures DirectML in one block of 200 runs, and then the CPU in another. GPUs and processors slow down as they get warm. Suppose that provider A needs 1.00 ms at the full clock, and B 1.05 ms. From the first run to the last, the clock falls by 20 %. Who wins the table if A is measured first, if B is first, and if they take turns (A B B A ...)?

# %% id="l16-p1"
predict("16-p1", a_first=..., b_first=..., in_turns=...)

# %% id="l16-4d" tags=["hide-input"]
clocks.draw_clock()

# %% id="l16-4c"
print("A first: ", clocks.means(clocks.blocks("AB")))
print("B first: ", clocks.means(clocks.blocks("BA")))
print("in turns:", clocks.means(clocks.turns("AB")))

# %% [markdown] id="l16-4r"
# The bug is the order of two loops. The work of 5 % is smaller than the drift of the clock, so the table shows the order. `vklab parity` and `vklab bench` take turns for this reason.
#
# ### What the pages claim
# | claim | what we know |
# |---|---|
# | the GPU is *2-10x* faster for small models | H200 and its host, 28 November 2026, microseconds of ONNX Runtime on the CPU and by CUDA: `conv_few` 1,436 and 210, `mnist12` 67.4 and 157, `mlp` 20.9 and 68. Of three small models, the GPU is faster on one ([docs/speed.md](../docs/speed.md)). By DirectML: no row yet. |
# | *10-50x* for large transformers | no row yet: `vklab parity vklab.apps.compare.models:encoder --batches 1,8,32 --backends onnxruntime` |
# | DirectML is the *fastest on Windows* | no row yet. There: `vklab parity data/mini_classifier.onnx --backends onnxruntime --save-outputs windows.npz`. Then anywhere: `--load-outputs windows.npz` |
# | a CPU *simulates* DirectML | false: its time says nothing about a GPU |
# | a provider computes in the model's dtype | not always. The OpenVINO plugin took bfloat16 by itself on a processor that has it: an error of 8e-3, 375 times the tolerance, without a message ([docs/backends.md](../docs/backends.md)) |
#
# A row that nobody has measured stays empty here, and says which command fills it.

# %% [markdown] id="l16-6t" vklab={"extra": true}
# ## 6 · Which nodes stay in float32? (optional)
# A model may mix both: some nodes compute in float16, others stay in float32. Measured on our models, the **noise** of float16 adds up: take the squared error of the output when one node alone computes in float16. The sum over all nodes is within 7 % of the squared error with all of them in float16. So a budget of noise can be shared out.
#
# A node is a dictionary: `name`, `operator`, `reads` (names of nodes), `weights` and `result` (numbers of elements), `noise`. The first node is the input: it is always float32, and computes nothing. What moves?
#
# * Each other node moves its weights, its result and the results that it reads: 4 bytes an element in float32, 2 in float16.
# * A value that a reader wants in the other precision is **cast** once, for all such readers: 6 bytes an element (4 and 2).
# * The last node's result is the model's output. If that node computes in float16, its result is cast, too.
#
# `bytes_moved(nodes, wide)` and `noise_of(nodes, wide)` count for you; `wide` has the names in float32. ONNX Runtime's tool takes `op_block_list`, a list of operator types. That is seldom the best choice.

# %% id="l16-6d" vklab={"role": "demo", "extra": true}
example, most_noise = draw_nodes(np.random.default_rng(16))
names = [node["name"] for node in example[1:]]
print("all float32:", bytes_moved(example, names), "bytes, noise", noise_of(example, names))
print("all float16:", bytes_moved(example, []), "bytes, noise", noise_of(example, []),
      "of at most", most_noise)  # fmt: skip

# %% [markdown] id="l16-e5t" vklab={"id": "16-5"}
# ### Exercise 5 · Stay wide (extra)
# This is a search, with points by score. Two of the points are for an answer better than a plain one: keep the noisiest nodes, or those with the most noise for each byte, whichever is cheaper. Three are for the best answer.

# %% id="l16-e5" vklab={"role": "exercise", "id": "16-5", "points": 5, "lines": 15}
def stay_wide(nodes, most_noise):
    """Return the names of the nodes that stay float32.

    TODO     the noise of the others is at most `most_noise`; the bytes moved are as few as you can.
    Approach 14 nodes have 16,384 choices. NumPy can count the bytes of all of them at once.
    Example  with most_noise = 0: the names of all nodes that have noise      (roughly 15 lines)
    """
    ### BEGIN SOLUTION
    count = len(nodes) - 1
    place = {node["name"]: n for n, node in enumerate(nodes)}
    half = np.zeros((count + 1, 2**count), bool)  # a row for each node, a column for each choice
    for n in range(count):
        half[n + 1] = np.arange(2**count) >> n & 1
    total, cast = np.zeros(2**count), np.zeros_like(half)
    for n, node in enumerate(nodes[1:], 1):
        elements = node["weights"] + node["result"]
        for read in node["reads"]:
            elements += nodes[place[read]]["result"]
            cast[place[read]] |= half[n] != half[place[read]]
        total += elements * np.where(half[n], 2, 4)
    cast[-1] |= half[-1]
    total += 6 * np.array([node["result"] for node in nodes]) @ cast
    noise = np.array([node["noise"] for node in nodes]) @ half
    best = np.argmin(np.where(noise <= most_noise, total, np.inf))
    return [node["name"] for n, node in enumerate(nodes) if n and not half[n, best]]
    ### END SOLUTION


# %% id="l16-e5d" vklab={"role": "demo", "id": "16-5"}
with attempt("16-5"):
    mine = stay_wide(example, most_noise)
    said = f"{bytes_moved(example, mine)} bytes, noise {noise_of(example, mine)} of {most_noise}"
    display(draw_precisions(example, mine, f"Your choice: {said}."))

# %% id="l16-e5c" vklab={"role": "check", "id": "16-5"}
check("16-5", stay_wide)

# %% id="l16-e5h" vklab={"id": "16-5"}
# hint("16-5")

# %% [markdown] id="l16-recap"
# ## Recap
# | word | says | mistake to avoid |
# |---|---|---|
# | `get_available_providers()` | what the build contains | to read it as what works |
# | `get_providers()` | what a session may use | to read it as what ran |
# | assignment | which provider got which nodes | to divide by the file's nodes |
# | full build | owns the module `onnxruntime` | to install two |
# | DirectML | operators on Direct3D 12, above the vendor's driver | to call a CPU's time a simulation |
# | turns | each provider meets each clock | to measure in blocks |
#
# **Next**: lab 17 compares the outputs of backends, and finds the layer in which two of them part.
#
# **References**
# * ONNX Runtime: [execution providers](https://onnxruntime.ai/docs/execution-providers/), [DirectML](https://onnxruntime.ai/docs/execution-providers/DirectML-ExecutionProvider.html).
# * Microsoft: [versions of DirectML](https://learn.microsoft.com/en-us/windows/ai/directml/dml-version-history).
# * vklab: [other backends](../docs/backends.md).
