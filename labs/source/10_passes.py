# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab:
#     title: "Passes: rewrite a graph and fuse its nodes"
#     minutes: 75
#     before: ["05", "09", "09b"]
# ---

# %% [markdown] id="l10-title"
# # Lab 10 · Passes: rewrite a graph and fuse its nodes
# **The same outputs with less work, and how to know that they are the same** · 75 minutes, 4 exercises, the last one extra
#
# Exporters leave copies, products by one, and Transposes that undo each other in a model file. Before vklab plans a model, it rewrites the graph. After a wrong rewrite the model still runs, and its numbers are wrong. So you also write a function that catches wrong rewrites.
#
# **Afterwards you can**
# * write a rewrite rule that keeps every output, and say which rules change a bit;
# * verify a graph between two passes, and find a graph that a wrong pass breaks;
# * tell whether a set of rules ends, and show what must fall;
# * plug rules into the runtime and measure them;
# * extra: choose which nodes become one kernel, and say how far from the best you are.
#
# **Before this lab**: labs 09 and 09b, where you met graphs, nodes, values, initializers and topological order. The extra exercise takes *descriptor* and *down-set* from lab 05; the pages [From a kernel to a submission](inserts/submission.md) and [Orders of work](inserts/orders.md) explain them, too. At hand: the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/graph/passes/`, `vklab/plan/fusion/`, `labs/lib/lab_10/rewriting.py`, `labs/lib/lab_10/faulty_fusion.py`, `labs/lib/lab_10/fusing.py`.

# %% id="l10-setup" tags=["hide-input"]
import numpy as np
from IPython.display import display

import vklab
from vklab.graph import passes
from vklab.graph.passes.common_subexpressions import common_subexpressions
from vklab.graph.passes.drop_no_ops import drop_no_ops
from vklab_course import attempt, banner, check, hint, predict, show
from vklab_labs.lab_10 import pass_models as models
from vklab_labs.lab_10 import rewriting
from vklab_labs.lab_10 import rewriting_pictures as figures
from vklab_labs.lab_10.faulty_fusion import difference, fuse_pairs, parts_of
from vklab_labs.lab_10.fusing import EXAMPLE, broken_rule, moved, next_groups, open_runs
from vklab_labs.lab_10.rewriting import as_pass, compute, draw_graph, graph_of, info_of, infos_of
from vklab_labs.lab_10.rules import drop_dead, merge_products
from vklab_labs.shared.swapped import run_swapped

banner()

# %% id="l10-own" vklab={"role": "own"}
# Your own imports and helper functions go here: this cell is handed in with your answers.

# %% [markdown] id="l10-1t"
# ## 1 · Rules and passes
# A **rewrite rule** replaces a few nodes by others that compute the same: `x * 1` becomes `x`. A **pass** is a function from a graph to a graph. It applies one rule, or several, wherever they fit.

# %% id="l10-1d" tags=["hide-input"]
figures.draw_passes()

# %% [markdown] id="l10-plain"
# In this lab a graph is plain data. A node is a tuple `(made, operator, reads, perm)`: the name of the one value that it makes, the operator, the names that it reads, and, for a Transpose only, the order of its axes.
#
# `graph_of` makes a graph from a text. Its input is `x`, of shape (2, 2, 2). `y Add x k` makes `y` from `x` and `k`, and `t Transpose x 120` has the perm (1, 2, 0). Constants follow by name.
#
# The next cell has a whole pass. A **dead node** makes a value that no output needs. The pass finds it on a walk from the outputs back.

# %% id="l10-dead"
display(show(drop_dead))
small = graph_of("a Relu x; b Mul a one; c Neg b; d Tanh b; y Add b x", one=[1.0])
print(*small["nodes"], small["inputs"], small["constants"], small["outputs"], sep="\n")
figures.draw_graph(small, "Two dead nodes, in orange.", drop_dead(small))

# %% [markdown] id="l10-p1t"
# The rules of this section must not change a bit of any result. (Folding may: `compute` uses NumPy, whose tanh differs from a kernel's in the last bit of some numbers.) Which of these operators may a rule remove: `x * 1` (mul), `x + 0` (add), `x - 0` (sub), `x / 1` (div)? Here `x` is any float32 number, infinities included, and 0 means +0. There is also -0: it equals 0, and has another sign bit. Write True or False.

# %% id="l10-p1"
predict("10-p1", mul=..., add=..., sub=..., div=...)

# %% [markdown] id="l10-e1t" vklab={"id": "10-1"}
# ### Exercise 1 · Simplify a graph
# Apply four rules, as often as they fit:
#
# 1. **Constant folding**: a node that reads only constants becomes a constant. `compute(op, arrays, perm)` returns its value.
# 2. **Copies and no-ops**: the readers of an `Identity` read its input instead. A `[[op]]` whose second operand is a constant in which every element is [[number]] goes in the same way, if its result has the dtype and shape of the first operand: a larger constant would *broadcast* it.
# 3. **Transposes**: where a Transpose reads another one and undoes it, its readers read what the other one reads. `perm` says where each axis comes from, so two perms undo each other if `first[second[i]] == i` for every axis `i`.
# 4. **Dead nodes** go, and constants that nobody reads: `drop_dead`.
#
# A node that makes an output of the graph stays, whatever it is: the caller asks for its name. One walk in order is enough, and it is given. You write what happens to a node whose value is no output.

# %% id="l10-e1" vklab={"role": "exercise", "id": "10-1", "points": 5, "lines": 11}
OPERATOR, NUMBER = "[[op]]", [[number]]


def simplify(graph):
    """Return the graph after the four rules: as few nodes as they can reach.

    graph: {"inputs": {name: (dtype, shape)}, "constants": {name: array}, "outputs": [names],
    "nodes": [(made, op, reads, perm)] in topological order}.
    TODO     rules 1 to 3 for one node. To remove it, write into `constants` or into `instead`
             where its readers find its value, then `continue`.           (roughly 11 lines)
    Example  "a Identity x; b Neg a; y Relu b" -> "b Neg x; y Relu b"
    """
    infos = infos_of(graph)  # (dtype, shape) of each value
    constants, kept = dict(graph["constants"]), []
    instead = {}  # for each removed value the value that replaces it
    turned = {}  # for the value of each Transpose that is kept: what it reads, and its perm
    for made, op, reads, perm in graph["nodes"]:
        reads = tuple(instead.get(name, name) for name in reads)
        x = reads[0]  # the first operand
        if made not in graph["outputs"]:
            ### BEGIN SOLUTION
            if all(name in constants for name in reads):
                constants[made] = compute(op, [constants[name] for name in reads], perm)
                continue
            if op == "Identity" or (op == OPERATOR and reads[1] in constants and np.all(
                    constants[reads[1]] == NUMBER) and infos[made] == infos[x]):
                instead[made] = x
                continue
            source, first = turned.get(x, ("", ()))
            if op == "Transpose" and source and all(first[p] == i for i, p in enumerate(perm)):
                instead[made] = source
                continue
            ### END SOLUTION
        if op == "Transpose":
            turned[made] = x, perm
        kept.append((made, op, reads, perm))
    return drop_dead({**graph, "nodes": kept, "constants": constants})


# %% id="l10-e1d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("10-1"):
    before = graph_of("a Transpose x 120; b Identity a; c Transpose b 201; d Add k k; e Neg x; "
                      "f Mul c d; g Relu a; y Add f c; z Neg g", "y z", k=[0.5])  # fmt: skip
    after = simplify(before)
    display(figures.draw_graph(before, "Before: orange nodes are not in your graph.", after))
    display(figures.draw_graph(after, "After your rules."))

# %% id="l10-e1c" vklab={"role": "check", "id": "10-1"}
check("10-1", simplify)

# %% id="l10-e1h"
# hint("10-1")

# %% [markdown] id="l10-2t"
# ## 2 · A verifier between the passes
# A wrong pass shows itself late: as a crash in a driver, or as a wrong number. So compilers such as LLVM can run a verifier after every pass. Here a **verifier** compares the graph before a pass with the graph after it. It knows nothing about the rules of the pass. The **type** of a value is its dtype and its shape.
#
# | rule | what is broken |
# |---|---|
# | `interface` | the inputs (names, dtypes, shapes) or the outputs (names, order) have changed |
# | `undefined` | a node reads, or the caller asks for, a value that nobody makes: no input, no constant, no node |
# | `order` | a node reads a value that only it, or a later node, makes |
# | `two makers` | a node makes a value that exists already: an input, a constant, or the value of an earlier node |
# | `type` | the value of a node has another type than the value of this name had in the graph before; or its operator is unknown, or cannot be applied |
#
# ### Exercise 2 · Name the first broken rule
# The inputs and outputs are compared first. Then comes a walk over the nodes in their order. At each node you look at what it reads, one name after the other, then at what it makes, then at its type.

# %% id="l10-e2" vklab={"role": "exercise", "id": "10-2", "points": 5, "lines": 10}
def first_fault(before, after):
    """Return (rule, value) for the first broken rule of the graph `after`; None if there is none.

    TODO     the tests of one node. rule: a word of the table. value: the name of the value.
    Approach keep in `known` the types of what exists so far. info_of(op, [type of each operand],
             perm) returns the type of a node's value; it raises ValueError if op is unknown or
             cannot be applied.
    Example  "a Neg x; y Relu a", "y Relu a" -> ("undefined", "a")        (roughly 10 lines)
    """
    for key in ("inputs", "outputs"):
        if before[key] != after[key]:
            return "interface", key
    types = infos_of(before)  # {name: type} of all values
    known = infos_of({**after, "nodes": []})  # at first of inputs and constants
    makers = [node[0] for node in after["nodes"]]
    for made, op, reads, perm in after["nodes"]:
        ### BEGIN SOLUTION
        for name in reads:
            if name not in known:
                return "order" if name in makers else "undefined", name
        if made in known:
            return "two makers", made
        try:
            known[made] = info_of(op, [known[name] for name in reads], perm)
        except ValueError:
            return "type", made
        if made in types and types[made] != known[made]:
            return "type", made
        ### END SOLUTION
    lost = [name for name in after["outputs"] if name not in known]
    return ("undefined", lost[0]) if lost else None


# %% id="l10-e2d" vklab={"role": "demo"}
with attempt("10-1"), attempt("10-2"):
    random = np.random.default_rng(0)
    drawn = [draw_graph(random, 12, (OPERATOR, NUMBER)) for _ in range(50)]
    print("faults of simplify:", sum(first_fault(g, simplify(g)) is not None for g in drawn))
    for fault in ("lost", "moved", "twice", "float64"):  # what was done to a graph
        damaged = rewriting.damaged(random, drawn[2], fault)
        print(f"{fault:8}", first_fault(drawn[2], damaged))

# %% id="l10-e2c" vklab={"role": "check", "id": "10-2"}
check("10-2", first_fault)

# %% id="l10-e2h"
# hint("10-2")

# %% [markdown] id="l10-3t"
# ## 3 · Order, rounds, and an end
# One pass makes work for another. In the next cell `a` and `c` compute the same, but `c` reads a copy of `x`. `common_subexpressions` merges nodes with the same operator and the same inputs; `drop_no_ops` removes copies. Passes run in **rounds**: all of them in order, then all again, until a round changes nothing. The graph is then a **fixpoint** of the passes.
#
# How many rounds are there if `drop_no_ops` comes first, and how many if `common_subexpressions` comes first? Count the last round, which changes nothing, too.

# %% id="l10-roundsc"
copied = graph_of("a Relu x; b Identity x; c Relu b; y Add a c")
copies = models.imported(rewriting.model(copied))  # as a graph of the runtime
figures.draw_graph(copied, "a and c have the same value.")

# %% id="l10-p2"
predict("10-p2", no_ops_first=..., merge_first=...)

# %% id="l10-roundsd"
for words, steps in (("no-ops first", (drop_no_ops, common_subexpressions)),
                     ("merge first", (common_subexpressions, drop_no_ops))):  # fmt: skip
    print("{:13} {} rounds, {} nodes".format(words, *models.rounds(copies, steps)))

# %% id="l10-endd" tags=["hide-input"]
figures.draw_rounds()

# %% [markdown] id="l10-endr"
# The order of the passes decides how many rounds the fixpoint takes, and with other rules which fixpoint is reached. Two rules that undo each other reach none, so the runtime stops after four rounds (`MOST_ROUNDS`).
#
# To prove that rewriting ends, name a **measure**: a whole number that is never below zero and that *every* step of *every* rule lowers. For `x * 1` → `x` it is the number of nodes. `Relu(Transpose(x))` → `Transpose(Relu(x))` leaves that number as it is. Here, add over all Transposes the number of nodes between each one and the output. Both rules together need a common measure: the *pair* of the two numbers, compared like words. For `x + y` → `y + x` there is no measure: two steps lead back to the start.

# %% [markdown] id="l10-egg"
# **Equality saturation** (to read, without an exercise): for whole numbers, `(a * 2) / 2` should become `a`. A rule that first turns `a * 2` into the shift `a << 1` hides that. An **e-graph** keeps *all* forms: it stores classes of equal values, a rule only adds forms, and at the end the cheapest form is taken.

# %% [markdown] id="l10-4t"
# ## 4 · Your rules in the runtime
# Two MatMuls by constant weights, `(x @ A) @ B`, equal one, `x @ (A @ B)`, and `A @ B` is known before any run. That is one dispatch less. But count the multiply-adds for a row of `x`: with `A` of shape `(k, r)` and `B` of `(r, m)`, two MatMuls take `k·r + r·m` and one takes `k·m`. With a small `r`, one MatMul costs more. The sums are also formed in another order: this rule keeps the outputs up to a tolerance, not to the last bit. Here it is on plain data; its test of the costs is the long `if`.

# %% id="l10-products" tags=["nbval-ignore-output"]
show(merge_products)

# %% [markdown] id="l10-swapt"
# `as_pass` makes a pass of the runtime from a function on plain data. It verifies what comes back with the runtime's own checks, so a broken rule never reaches the driver. The page of VKML, another runtime, lists an "interface for manual instruction and tensor modification" among its to-dos; the tuple `PASSES` is one for graphs.
#
# `run_swapped` puts your `simplify` and the rule above before vklab's passes, in a process of its own with a time limit. It runs two models of the course and three drawn ones, and plans ResNet-50. An arrow marks a count that your passes change. Each drawn model has three pairs of MatMuls, with a copy inside each pair. `k` and `m` are 32, and `r` is 64, 48 or 4: which pairs does the rule merge?

# %% id="l10-swap" tags=["nbval-ignore-output"]
with attempt("10-1"):
    mine = (as_pass(simplify), as_pass(merge_products), *passes.PASSES)
    tried = ("mini_classifier.onnx", "digits_cnn.onnx", *map(models.product_model, range(3)))
    rows, problem = run_swapped("vklab.graph.passes.PASSES", mine, models=tried)
    print(*rows, problem, sep="\n")

# %% [markdown] id="l10-layoutt"
# ### Two memory layouts
# A picture has a **memory layout**: channels last (NHWC, the channels of one pixel lie together) or channels first (NCHW). A model from TensorFlow is often channels-last, and ONNX's Conv wants channels first, so the exporter puts a Transpose before and after each Conv. In vklab, `move_transposes` moves a Transpose towards the outputs until it meets another one. If they undo each other, both go. The next model has two convolutions and four Transposes.
#
# [ExecuTorch's page](https://docs.pytorch.org/executorch/stable/backends-vulkan.html) about Vulkan says, in the edition that this course examines, "We plan to introduce graph passes to introduce memory layout transitions". That is out of date: since November 2024 a pass, [`TagMemoryMetaPass`](https://github.com/pytorch/executorch/pull/6636), [inserts a copy](https://github.com/pytorch/executorch/pull/6763) where an operator needs another layout.

# %% id="l10-layout" tags=["nbval-ignore-output"]
for words, numbers in models.layout_counts().items():
    print("{:16} Transposes {}, dispatches {}, bytes moved {}".format(words, *numbers))

# %% [markdown] id="l10-layoutr"
# Without fusion the pass saves two dispatches of seven. With fusion it saves none: a fused kernel loads each element from where the Transpose would take it. One optimization can make another one useless.
#
# ### If and Loop
# `If` and `Loop` are nodes whose attributes are graphs, their **bodies**. If the condition of an `If` is known, vklab puts the nodes of the chosen branch in its place, while it cuts the graph into chunks (lab 09b). Otherwise the host looks at the condition in each run.
#
# A body is planned like a model: the passes run on it, and it has a *plan cache* (lab 09b) of its own. In the next cell a Loop runs its body four times, twice. A value that keeps its shape needs one plan; one whose length doubles needs a plan for each iteration. The second run finds all plans in the cache.

# %% id="l10-loop"
for words, known in (("known", True), ("an input", False)):
    print("If, condition", words, "->", models.chunks_of_if(known))
for words, growing in (("same shape", False), ("growing", True)):
    print(f"{words:10} -> plans of the body in two runs:", models.plans_of_body(growing))

# %% [markdown] id="l10-5t"
# ## 5 · Fusion: two nodes, one kernel
# A dispatch that computes `x * 0.5` writes its result to memory, and a dispatch for `tanh` reads it again. **Fusion** makes one kernel of both: the value stays in a register. vklab writes the Slang text of the fused kernel while it plans. Four nodes, one text:

# %% id="l10-slang" tags=["nbval-ignore-output"]
chain = rewriting.model(graph_of("a Mul x h; b Tanh a; c Add b x; y Relu c", shape=(64,), h=[0.5]))
with vklab.load(chain) as session:
    session.run({"x": np.zeros(64, np.float32)})
    print(len(session.plan.dispatches), "dispatch\n\n" + session.plan.dispatches[0].fragment)

# %% [markdown] id="l10-e3t" vklab={"id": "10-3"}
# ### Exercise 3 · What would break this fusion?
# `fuse_pairs` looks for a node `first`, say a Tanh, that makes the first operand of a node `then`, say an Add. It puts one node `Tanh>Add` in the place of `first`. The new node is one kernel: for each element of the Tanh, one invocation adds the second operand and writes the sum. The value of the Tanh is never written; any other node that read it now reads the sum. So `may_fuse` asks four questions first:
#
# * `one_read`: is the value of `first` read only once in the graph?
# * `inside`: is this value no output of the graph?
# * `ready`: do the other values that `then` reads exist before the place of `first`?
# * `whole`: has the result of `then` the dtype and shape of this value?
#
# In the next cell, `value` is the name of what `first` makes. `others` are the other names that `then` reads, `known` those that exist before `first`. `infos` has the dtype and shape of each value. The cell shows the pass on a chain, where no output changes. But **two of the four tests are wrong**: they allow fusions that change an output.
#
# Find both, and prove it. The proof is a **witness**: a graph on which the wrong test changes an output, while the other three tests are right.

# %% id="l10-e3p" vklab={"id": "10-3"}
def may_fuse(graph, first, then):
    """Tell whether `then` may be fused into `first`, the node that makes its first operand."""
    nodes, value, others, known, infos = parts_of(graph, first, then)
    one_read = [[one_read]]
    inside = [[inside]]
    ready = [[ready]]
    whole = [[whole]]
    return one_read and inside and ready and whole


tried = graph_of("a Tanh x; b Add a k; y Neg b", k=[0.5])
after = fuse_pairs(tried, ("Tanh", "Add"), may_fuse)
print(*tried["nodes"], "becomes", *after["nodes"], sep="\n")


# %% id="l10-e3" vklab={"role": "exercise", "id": "10-3", "points": 5, "lines": 4}
def witnesses(inner, outer):
    """Return {test: witness, test: witness}, with the names of the two wrong tests.

    inner: operator of `first`: "Neg", "Tanh" or "Relu". outer: of `then`: "Add", "Sub" or "Mul".
    The graphs are made by `graph_of`; their inputs and constants have at most 64 elements.
    TODO     two witnesses with as few nodes as possible.                 (roughly 4 lines)
    Try      difference(graph, (inner, outer), may_fuse) says what has changed, or "".
    Example  graph_of(f"a {inner} x; y {outer} a k", "y", k=[0.5]) has two nodes and a constant.
    """
    ### BEGIN SOLUTION
    return {
        [[right]]
    }
    ### END SOLUTION


# %% id="l10-e3d" vklab={"role": "demo"}
with attempt("10-2"), attempt("10-3"):
    for name, graph in witnesses("Tanh", "Sub").items():
        fused = fuse_pairs(graph, ("Tanh", "Sub"), may_fuse)
        changed, found = difference(graph, ("Tanh", "Sub"), may_fuse), first_fault(graph, fused)
        words = f"{name}, after the pass: {changed or 'no output changes'}. Your verifier: {found}."
        display(figures.draw_graph(fused, words))

# %% id="l10-e3c" vklab={"role": "check", "id": "10-3"}
check("10-3", witnesses)

# %% id="l10-e3h"
# hint("10-3")

# %% [markdown] id="l10-carelessr"
# With a second reader behind the fused kernel, the new graph is in order, and its numbers are wrong. A verifier cannot see that; a lost output it sees at once. So a pass needs a comparison of values, too. vklab's own fusion (`vklab/plan/fusion/chains.py`) asks `flow.maker` first, which names the only writer of a value. It names none if a second dispatch reads the value, or if the value must stay in memory, as an output must.

# %% [markdown] id="l10-groupst" vklab={"id": "10-4"}
# ## 6 · Which nodes become one kernel? (extra)
# Now you choose the **groups** of nodes. Each group becomes one kernel. The kernel binds a buffer for each value that it reads from outside of the group, and for each of its values that is *seen outside*: an output, or a value that another group reads. We count every bound buffer once, in full: what a group **moves** is the sum of its buffers' bytes. There are three limits:
#
# 1. at most `most` buffers (descriptors are limited: lab 05, or [From a kernel to a submission](inserts/submission.md));
# 2. at most one **core**: an operator that needs more than one element at a time, such as Softmax or MatMul. Its kernel is written by hand. Element-wise nodes can join that kernel, a second core cannot;
# 3. the groups can run one after the other. This picture shows two groups that cannot:

# %% id="l10-circle" vklab={"id": "10-4"} tags=["hide-input"]
figures.draw_circle()

# %% [markdown] id="l10-groupsr" vklab={"id": "10-4"}
# A group with a path that leaves it and comes back is called *not convex*, and it breaks limit 3 by itself. The picture shows that convex groups alone are not enough.
#
# A natural answer: take the nodes in order, and begin a new group where the limits say so. `open_runs` does that, here with at most four buffers. The sizes are made up:

# %% id="l10-groupsd" vklab={"id": "10-4"}
work, sizes, outputs, most = EXAMPLE
figures.draw_fused(*EXAMPLE, open_runs(work, outputs, most), "One colour for each group.")

# %% [markdown] id="l10-e4t" vklab={"id": "10-4"}
# ### Exercise 4 · Groups that move few bytes (scored, extra)
# Find groups that move as few bytes as you can. Searches of this kind are one family: the scored exercises of labs 09b, 12 and 13 belong to it and are required, this one is extra.
#
# Another natural answer merges the two groups that save the most bytes, again and again. On the graph above it stops at 53 bytes; the fewest are 43. It gets stuck: a full group keeps out a better partner. So compare whole orders of kernels instead. After each kernel a set of nodes is done, a *down-set* (lab 05, or [Orders of work](inserts/orders.md)). Three functions help:
#
# * `next_groups(work, outputs, most, done)` returns each group that keeps the limits and can run when the nodes in `done`, a set of names, have run.
# * `moved(work, sizes, outputs, groups)` returns the bytes that the groups move together.
# * `broken_rule(work, outputs, most, groups)` returns a sentence about the first broken rule, or `""`.
#
# One point is for valid groups. A drawn graph of 24 nodes brings one, a drawn graph of 30 nodes two, and 30 shuffled nodes of BERT with drawn sizes bring one. The better of the two natural answers earns nothing, the fewest possible bytes earn all points, an answer between them its share. The check searches all down-sets, so its bound is exact.

# %% id="l10-e4" vklab={"role": "exercise", "id": "10-4", "points": 5, "lines": 9}
def fuse(work, sizes, outputs, most):
    """Return groups of nodes, [["a", "b"], ["c"], ...], that move as few bytes as you can.

    work: {name: (operator, names that it reads)} in topological order; a name without a node is
    an input. sizes: bytes of each value. outputs: names. most: most buffers of a group.
    TODO     every node in one group; the three limits. The check calls it 8 times: 10 s in all.
    Start    [[name] for name in work] is always valid.
    Example  with work = {"a": ("Relu", ("x",)), "b": ("Neg", ("a",))}, outputs = ["b"]:
             most 2 -> [["a", "b"]]                                        (roughly 9 lines)
    """
    ### BEGIN SOLUTION
    best = {frozenset(): (0, [])}  # nodes that are done: fewest bytes, and the groups
    for count in range(len(work)):
        for done in [known for known in best if len(known) == count]:
            for group in next_groups(work, outputs, most, done):
                after = done | set(group)
                cost = best[done][0] + moved(work, sizes, outputs, [group])
                way = cost, [*best[done][1], group]
                best[after] = min([way, best.get(after, way)])
    return best[frozenset(work)][1]
    ### END SOLUTION


# %% id="l10-e4d" vklab={"role": "demo", "id": "10-4"}
with attempt("10-4"):
    display(figures.draw_fused(*EXAMPLE, fuse(*EXAMPLE), "Your groups."))

# %% id="l10-e4c" vklab={"role": "check", "id": "10-4"}
check("10-4", fuse)

# %% id="l10-e4h" vklab={"id": "10-4"}
# hint("10-4")

# %% [markdown] id="l10-realt" vklab={"id": "10-4"}
# The next cell runs your function on whole networks, with the runtime's limit of 16 buffers, and counts kernels. There are never fewer kernels than cores. An answer that takes more than 15 seconds for a network is stopped, and its bar is 0.
#
# On ResNet-50 vklab's simple rules reach the best count: one kernel for each of its 56 cores. (Here each convolution is one kernel. `run_swapped` above counts more: on a CPU device vklab computes some by Winograd's algorithm, in three kernels each.) On U-Net and ShuffleNet our limits allow more than vklab can write: kernels with several results, and Concat and Split inside a group.

# %% id="l10-real" vklab={"id": "10-4"} tags=["nbval-ignore-output"]
with attempt("10-4", seconds=90):
    rows = models.kernel_counts(fuse, ("unet", "resnet50", "shufflenet_v2"))
    display(figures.draw_bars(rows, "kernels", "Kernels of three networks. 0: stopped."))

# %% [markdown] id="l10-recap"
# ## Recap
# | word | what it is | mistake to avoid |
# |---|---|---|
# | rewrite rule, pass | the same outputs with less work | removing `x + 0`; losing the name of an output |
# | verifier | a check of a graph's structure after each pass | believing that it checks values |
# | fixpoint, measure | an end of the rounds, and its proof | two rules that undo each other |
# | layout transition | another order of the channels in memory | measuring it only without fusion |
# | fusion | several nodes, one kernel | a value with two readers, an output, groups in a circle |
#
# **Next**: [lab 11](11_memory_planning.ipynb) gives the values that are left their places in memory.
#
# **References**
# * Baader and Nipkow, *Term Rewriting and All That*, 1998: measures; LLVM, [opt](https://llvm.org/docs/CommandGuide/opt.html): `-verify-each`.
# * Chen et al., [TVM](https://arxiv.org/abs/1802.04799), 2018, section 3: rules for fusion.
# * Willsey et al., [egg](https://arxiv.org/abs/2004.03082), 2021: equality saturation.
