# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
#   vklab: {title: "Passes: rewrite a graph and fuse its nodes", minutes: 105}
# ---

# %% [markdown] id="l10-title"
# # Lab 10 · Passes: rewrite a graph and fuse its nodes
# **The same outputs with less work, and how to know that they are the same** · 105 minutes, 4 exercises; the last one, about 25 minutes, may wait for another day
#
# A model file says what to compute. It does not say it in the best way: exporters leave copies, products by one, and Transposes that undo each other. Before vklab plans a model, it rewrites the graph. A wrong rewrite is worse than none: the model still runs, and its numbers are wrong. So you also write a function that catches wrong rewrites.
#
# **Afterwards you can**
# * write a rewrite rule that keeps every output, and say which rules change a bit;
# * verify a graph between two passes, and name the first broken rule;
# * tell whether a set of rules ends, and show what must fall;
# * plug rules into the runtime and measure them;
# * choose which nodes become one kernel, and say how far from the best you are.
#
# **Before this lab**: labs 09 and 09b, where you met graphs, nodes, values, initializers and topological order. New words are explained where they come first, and in the [glossary](GLOSSARY.md).
#
# **Files it opens**: `vklab/graph/passes/`, `vklab/plan/fusion/`, `vklab/course/labs/rewriting.py`, `vklab/course/labs/fusing.py`.

# %% id="l10-setup"
import numpy as np
from IPython.display import display

import vklab
from vklab.course import attempt, banner, check, hint, predict, show, swap
from vklab.course.figures import rewriting as figures
from vklab.course.labs import fusing, fusing_graphs, rewriting
from vklab.course.labs import pass_models as models
from vklab.course.labs.fusing import EXAMPLE, broken_rule, buffers, is_core, moved, open_runs
from vklab.course.labs.recorded_graphs import runtime_graph
from vklab.course.labs.rewriting import as_pass, compute, draw_graph, graph_of, info_of, infos_of
from vklab.course.labs.rules import careless, double, halve, merge_products
from vklab.course.labs.swapped import run_swapped
from vklab.graph import passes, shapes
from vklab.graph.passes.common_subexpressions import common_subexpressions
from vklab.graph.passes.drop_no_ops import drop_no_ops

# %% id="l10-banner"
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
# `graph_of` makes a graph from a text. Its input is `x`, of shape (2, 2, 2). `y Add x k` is a node that makes `y` from `x` and `k`, and `t Transpose x 120` has the perm (1, 2, 0). Constants follow by name.
#
# The next cell has a whole pass, and a graph: it prints the nodes, the inputs, the constants and the outputs. A **dead node** makes a value that no output needs. The pass finds such nodes on a walk from the outputs back to the inputs.

# %% id="l10-dead"
def drop_dead(graph):
    """Return the graph without the nodes and constants that no output needs."""
    needed, alive = set(graph["outputs"]), []
    for node in reversed(graph["nodes"]):
        if node[0] in needed:
            alive.insert(0, node)
            needed.update(node[2])
    used = {name: array for name, array in graph["constants"].items() if name in needed}
    return {**graph, "nodes": alive, "constants": used}


small = graph_of("a Relu x; b Mul a one; c Neg b; d Tanh b; y Add b x", one=[1.0])
print(*small["nodes"], small["inputs"], small["constants"], small["outputs"], sep="\n")
figures.draw_graph(small, "Two dead nodes, in orange.", drop_dead(small))

# %% [markdown] id="l10-p1t"
# The rules of this section must not change a bit of any result. Take for `x` every float32 number, infinities included, and the arithmetic of the standard IEEE 754, which NumPy follows. Which of these operators may a rule remove: `x * 1` (mul), `x + 0` (add), `x - 0` (sub), `x / 1` (div)? Here 0 means +0. There is also -0: it equals 0, and has another sign bit. Write True or False.

# %% id="l10-p1"
predict("10-p1", mul=..., add=..., sub=..., div=...)

# %% [markdown] id="l10-e1t" vklab={"id": "10-1"}
# ### Exercise 1 · Simplify a graph
# Apply four rules, as often as they fit:
#
# 1. **Constant folding**: a node that reads only constants becomes a constant. `compute(op, arrays, perm)` returns its value.
# 2. **Copies and no-ops**: the readers of an `Identity` read its input instead. A `[[op]]` whose second operand is a constant in which every element is [[number]] goes in the same way, if its result has the dtype and shape of the first operand: a larger constant would *broadcast* it.
# 3. **Transposes**: where a Transpose reads another one and undoes it, its readers read what the other one reads. `perm` says where each axis comes from, so two perms undo each other if `first[second[i]] == i` for every axis `i`.
# 4. **Dead nodes** go, and constants that nobody reads. `drop_dead` does that.
#
# A node that makes an output of the graph stays, whatever it is: the caller asks for its name. Other nodes may read the values that you remove; several may read the same one.

# %% id="l10-e1" vklab={"role": "exercise", "id": "10-1", "points": 5, "lines": 17}
OPERATOR, NUMBER = "[[op]]", [[number]]


def simplify(graph):
    """Return the graph after the four rules: as few nodes as they can reach.

    graph: {"inputs": {name: (dtype, shape)}, "constants": {name: array}, "outputs": [names],
    "nodes": [(made, op, reads, perm)] in topological order}.
    TODO     the rules above; inputs and outputs stay as they are.
    Approach one walk in order. Keep a dictionary from each removed value to the value that
             replaces it. infos_of(graph) returns {name: (dtype, shape)} of all values.
    Example  "a Identity x; b Neg a; y Relu b" -> "b Neg x; y Relu b"     (roughly 17 lines)
    """
    ### BEGIN SOLUTION
    infos, constants = infos_of(graph), dict(graph["constants"])
    instead, turned, kept = {}, {}, []
    for made, op, reads, perm in graph["nodes"]:
        reads = tuple(instead.get(name, name) for name in reads)
        x = reads[0]
        if made not in graph["outputs"]:
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
        if op == "Transpose":
            turned[made] = x, perm
        kept.append((made, op, reads, perm))
    return drop_dead({**graph, "nodes": kept, "constants": constants})
    ### END SOLUTION


# %% id="l10-e1d" vklab={"role": "demo"} tags=["nbval-ignore-output"]
with attempt("10-1"):
    before = graph_of("a Transpose x 120; b Identity a; c Transpose b 201; d Add k k; e Neg x; "
                      "f Mul c d; g Relu a; y Add f c; z Neg g", "y z", k=[0.5])  # fmt: skip
    after = simplify(before)
    display(figures.draw_graph(before, "Before: orange nodes are not in your graph.", after))
    display(figures.draw_graph(after, "After your rules."))
    # More graphs: draw_graph(np.random.default_rng(1), 8, (OPERATOR, NUMBER))

# %% id="l10-e1c" vklab={"role": "check", "id": "10-1"}
check("10-1", simplify)

# %% id="l10-e1h"
# hint("10-1")

# %% [markdown] id="l10-effectst"
# vklab has fourteen passes, in one tuple, `PASSES`. The next cell prints those that change the number of nodes of BERT, a language model, and of ResNet-50, which names pictures. GELU (a function like Relu) and attention are groups of several nodes in BERT's file, and vklab has one kernel for each of them. On ResNet-50 no pass finds work: its file was already clean. A pass is useful on some models only.

# %% id="l10-effects"
bert, resnet = (shapes.infer(runtime_graph(name)) for name in ("bert_base", "resnet50"))
print(len(passes.PASSES), "passes")
for words, graph in (("BERT", bert), ("ResNet-50", resnet)):
    found = [effect for effect in passes.effects(graph) if effect.before != effect.after]
    print(words, *found or ["none"], sep="\n  ")
show("vklab.graph.passes.drop_no_ops.drop_no_ops")

# %% [markdown] id="l10-2t"
# ## 2 · A verifier between the passes
# A wrong pass shows itself late: as a crash in a driver, or as a wrong number. So LLVM, the library behind many compilers, has a verifier, which can run after every pass. In this lab a **verifier** compares the graph before a pass with the graph after it. It knows nothing about the rules of the pass. The **type** of a value is its dtype and its shape.
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
# First compare the inputs, then the outputs. Then walk over the nodes in their order. At each node look at what it reads, one after the other, then at what it makes, then at its type. After the walk, look at the outputs again.

# %% id="l10-e2" vklab={"role": "exercise", "id": "10-2", "points": 5, "lines": 20}
def first_fault(before, after):
    """Return (rule, value) for the first broken rule of the graph `after`; None if there is none.

    TODO     rule: a word of the table. value: for "interface" the word "inputs" or "outputs",
             else the name of the value. `before` is in order.
    Approach a dictionary with the types of what exists so far; infos_of({**after, "nodes": []})
             returns those of inputs and constants. info_of(op, [type of each operand], perm)
             returns the type of a node's value, (dtype, shape); it raises ValueError if op is
             unknown or cannot be applied.
    Example  "a Neg x; y Relu a", "y Relu a" -> ("undefined", "a")        (roughly 20 lines)
    """
    ### BEGIN SOLUTION
    for key in ("inputs", "outputs"):
        if before[key] != after[key]:
            return "interface", key
    types, known = infos_of(before), infos_of({**after, "nodes": []})
    makers = [node[0] for node in after["nodes"]]
    for made, op, reads, perm in after["nodes"]:
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
    for name in after["outputs"]:
        if name not in known:
            return "undefined", name
    return None
    ### END SOLUTION


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
# One pass makes work for another. In the next cell `a` and `c` compute the same, but `c` reads a copy of `x`. `common_subexpressions` merges nodes with the same operator and the same inputs. Passes run in **rounds**: all of them in order, then all again, until a round changes nothing. The graph is then a **fixpoint** of the passes.
#
# Two passes run on the next graph. How many rounds are there if `drop_no_ops` comes first, and how many if `common_subexpressions` comes first? Count the last round, which changes nothing, too.

# %% id="l10-roundsc"
copied = graph_of("a Relu x; b Identity x; c Relu b; y Add a c")
copies = models.imported(rewriting.model(copied))  # as a graph of the runtime
figures.draw_graph(copied, "a and c have the same value.")

# %% id="l10-p2"
predict("10-p2", no_ops_first=..., merge_first=...)

# %% id="l10-roundsd"
for words, graph, steps in (("no-ops first", copies, (drop_no_ops, common_subexpressions)),
                            ("merge first", copies, (common_subexpressions, drop_no_ops)),
                            ("BERT", bert, passes.PASSES),
                            ("BERT, reversed", bert, passes.PASSES[::-1])):  # fmt: skip
    print("{:15} {} rounds, {} nodes".format(words, *models.rounds(graph, steps)))

# %% [markdown] id="l10-endt"
# The order of the passes decides how many rounds the fixpoint takes. With other rules it even decides which fixpoint is reached. Is there always one?

# %% id="l10-endd" tags=["hide-input"]
figures.draw_rounds()

# %% [markdown] id="l10-endr"
# To prove that rewriting ends, name a **measure**: a whole number that is never below zero and that *every* step of *every* rule lowers. Two rules may each end alone, and undo each other together.
#
# The next cell plugs such a pair into the runtime: `double` turns `x + x` into `x * 2`, and `halve` turns it back. `as_pass` makes passes of them (section 4). The runtime stops after four rounds, its `MOST_ROUNDS`. Which form is left then depends only on the order of the two passes.

# %% id="l10-pair"
twice = models.imported(rewriting.model(graph_of("y Mul x two", two=[2.0])))
for pair in ((halve, double), (double, halve)):
    with swap("vklab.graph.passes.PASSES", tuple(map(as_pass, pair))):
        changes = [str(graph.nodes[0]) for _, graph in passes.traverse(twice)]
    print(len(changes), "passes ran; the last node is", changes[-1])

# %% [markdown] id="l10-e3t" vklab={"id": "10-3"}
# ### Exercise 3 · Does it end?
# Each row is a set of rules, for trees: every value has one reader. Find the measure that every step of every rule in the row lowers:
#
# * `fewer nodes`: the number of nodes;
# * `Transposes sink`: add, over all Transposes, the number of nodes between each one and the output. Choose this only where the number of nodes does not fall;
# * `left operands shrink`: add, over all Adds, the number of nodes in the left operand;
# * `may never end`: there is none, because some graph can be rewritten for ever.
#
# | row | rules |
# |---|---|
# | A | [[a]] |
# | B | [[b]] |
# | C | [[c]] |
# | D | [[d]] |
#
# The points are for all rows together.

# %% id="l10-e3" vklab={"role": "exercise", "id": "10-3", "points": 3, "lines": 1}
ends = ...  # {"A": "fewer nodes", "B": ...}
### BEGIN SOLUTION
ends = [[right]]
### END SOLUTION

# %% id="l10-e3c" vklab={"role": "check", "id": "10-3"}
check("10-3", ends)

# %% id="l10-e3h"
# hint("10-3")

# %% [markdown] id="l10-egg"
# **Equality saturation** (to read, without an exercise): for whole numbers, `(a * 2) / 2` should become `a`. A rule that first turns `a * 2` into the shift `a << 1` hides that. Instead of choosing an order, one may keep *all* forms: an **e-graph** stores classes of equal values, a rule only adds forms, and at the end the cheapest form is taken.
#
# Rules that undo each other do no harm there: the second one adds nothing new. Others, such as `x` → `(x + x) / 2`, add new values for ever and still need a limit. See the last reference.

# %% [markdown] id="l10-4t"
# ## 4 · Your rules in the runtime
# Two MatMuls by constant weights, `(x @ A) @ B`, equal one, `x @ (A @ B)`, and `A @ B` is known before any run. That is one dispatch less.
#
# But count the multiply-adds for a row of `x`: with `A` of shape `(k, r)` and `B` of `(r, m)`, two MatMuls take `k·r + r·m` and one takes `k·m`. With few columns between (a small `r`) one MatMul costs more. Rounding changes, too, because the sums are formed in another order: this rule keeps the outputs up to a tolerance, not to the last bit. vklab has no pass for it; the next cell shows a rule on plain data.

# %% id="l10-products" tags=["nbval-ignore-output"]
show(merge_products)

# %% [markdown] id="l10-swapt"
# `as_pass` makes a pass of the runtime from a function on plain data. It hands over the runtime's graph as plain data, and verifies what comes back with the runtime's own checks: topological order, and shape inference of every node. Only then does the graph go on to planning, so a broken rule never reaches the driver. The page of vkml, another runtime, lists an "interface for manual instruction and tensor modification" among its to-dos. In vklab the tuple `PASSES` is such an interface for graphs.
#
# `run_swapped` puts your `simplify` and the rule above before vklab's passes, in a process of its own with a time limit. It runs two models of the course and three drawn ones, and plans ResNet-50. Each drawn model has three pairs of MatMuls, with a copy between the two of each pair. The pairs have 64, 48 and 4 columns between, and 32 before and after: which of them does the rule merge? Then copy the rule into a cell of your own, break it, put your copy into the next cell, and run that again.

# %% id="l10-swap" tags=["nbval-ignore-output"]
with attempt("10-1"):
    mine = (as_pass(simplify), as_pass(merge_products), *passes.PASSES)
    tried = ("mini_classifier.onnx", "digits_cnn.onnx", *map(models.product_model, range(3)))
    rows, problem = run_swapped("vklab.graph.passes.PASSES", mine, models=tried)
    print(*rows, problem, sep="\n")
    display(figures.draw_bars({row.model: {"vklab": row.own["dispatches"], "with two passes more":
                                           row.mine["dispatches"]} for row in rows}, "dispatches",
                              "Dispatches without and with your two passes."))  # fmt: skip

# %% [markdown] id="l10-layoutt"
# ### Two memory layouts
# A picture has a **memory layout**: channels last (NHWC, the channels of one pixel lie together) or channels first (NCHW). A model from TensorFlow is often channels-last, while ONNX's Conv wants channels first. So the exporter puts a Transpose before and after each Conv.
#
# ExecuTorch's page about Vulkan says, in the edition that this course examines, "We plan to introduce graph passes to introduce memory layout transitions". That is out of date: a pass of November 2024, `TagMemoryMetaPass`, inserts a copy where an operator needs another layout (see the references).
#
# In vklab, `move_transposes` moves a Transpose towards the outputs until it meets another one. If they undo each other, both go. The next model has two convolutions and four Transposes.

# %% id="l10-layout" tags=["nbval-ignore-output"]
found = models.layout_counts()
for words, numbers in found.items():
    print("{:16} Transposes {}, dispatches {}".format(words, *numbers))
figures.draw_bars({"": {words: numbers[2] for words, numbers in found.items()}}, "bytes",
                  "Bytes that the dispatches of two convolutions read and write.")

# %% [markdown] id="l10-layoutr"
# Without fusion the pass saves two dispatches of seven. With fusion it saves none: a fused kernel loads each element from where the Transpose would take it. So one optimization can make another one useless. On another model the same pass may be necessary, because two Transposes in a row hide a pattern that a third pass looks for. Measure with and without.
#
# ### If and Loop
# `If` and `Loop` are nodes whose attributes are graphs, their **bodies**. If the condition of an `If` is known, vklab puts the nodes of the chosen branch in its place, while it cuts the graph into chunks (lab 09b). Otherwise the host looks at the condition in each run. A body is planned like a model: the passes run on it, and it has a *plan cache* (lab 09b) of its own.
#
# A Loop runs its body four times. How often is the body planned in the first run, if the value that the body computes keeps its shape? And how often, if each iteration doubles the length of the value?

# %% id="l10-p3"
predict("10-p3", same_shape=..., growing=...)

# %% id="l10-loop"
for words, known in (("known", True), ("an input", False)):
    print("If, condition", words, "->", models.chunks_of_if(known))
for words, growing in (("same shape", False), ("growing", True)):
    print(f"{words:10} -> plans of the body in two runs:", models.plans_of_body(growing))

# %% [markdown] id="l10-5t"
# ## 5 · Fusion: which nodes become one kernel?
# A dispatch that computes `tanh(x * 0.5)` writes its result to memory, and the next one reads it again. **Fusion** makes one kernel of both: the value stays in a register. vklab writes the Slang text of the fused kernel while it plans. Four nodes, one text:

# %% id="l10-slang" tags=["nbval-ignore-output"]
chain = rewriting.model(graph_of("a Mul x h; b Tanh a; c Add b x; y Relu c", shape=(64,), h=[0.5]))
with vklab.load(chain) as session:
    session.run({"x": np.zeros(64, np.float32)})
    print(len(session.plan.dispatches), "dispatch\n\n" + session.plan.dispatches[0].fragment)
show("vklab.plan.fusion.chains.fuse_chains")

# %% [markdown] id="l10-groupst"
# Now you choose the **groups** of nodes. Each group becomes one kernel. The kernel binds a buffer for each value that it reads from outside of the group, and for each of its values that is *seen outside*: an output, or a value that another group reads. We count every bound buffer once, in full: what a group **moves** is the sum of its buffers' bytes. There are three limits:
#
# 1. at most `most` buffers (descriptors are limited, lab 05);
# 2. at most one **core**: an operator that needs more than one element at a time, such as Softmax or MatMul. Its kernel is written by hand. Element-wise nodes can join that kernel, a second core cannot;
# 3. the groups can run one after the other. This picture shows two groups that cannot:

# %% id="l10-circle" tags=["hide-input"]
figures.draw_circle()

# %% [markdown] id="l10-groupsr"
# A group with a path that leaves it and comes back is called *not convex*, and it breaks rule 3 by itself. The picture shows that convex groups alone are not enough.
#
# A natural answer: take the nodes in order, and begin a new group where the limits say so. `open_runs` does that, here with at most four buffers. The sizes of this example are made up:

# %% id="l10-groupsd"
work, sizes, outputs, most = EXAMPLE
figures.draw_fused(*EXAMPLE, open_runs(work, outputs, most), "One colour for each group.")

# %% [markdown] id="l10-e4t"
# ### Exercise 4 · Groups that move few bytes (scored)
# Find groups that move as few bytes as you can. `buffers(work, outputs, group)` returns the values that a group binds, `moved(work, sizes, outputs, groups)` adds the bytes, `is_core(op)` tells what a core is, and `broken_rule(work, outputs, most, groups)` returns a sentence about the first broken rule, or `""`.
#
# A better natural answer merges the two groups that save the most bytes, again and again. It earns a part of the points. On the graph above it stops at 53 bytes, where no merge that saves bytes is allowed any more. The fewest are 43.
#
# One point is for valid groups, also on some small graphs. The other four are for three graphs: a drawn graph of 24 nodes, one of 30 nodes (two points), and a shuffled part of BERT, 30 nodes with drawn sizes. The better of the two natural answers earns nothing, the fewest possible bytes earn all points, an answer between them its share. Random orders and random merges seldom find the fewest bytes here. A search over all sets of nodes that may be done finds them, so the bound is exact.

# %% id="l10-e4" vklab={"role": "exercise", "id": "10-4", "points": 5, "lines": 17}
def fuse(work, sizes, outputs, most):
    """Return groups of nodes, [["a", "b"], ["c"], ...], that move as few bytes as you can.

    work: {name: (operator, names that it reads)} in topological order; a name without a node is
    an input. sizes: bytes of each value. outputs: names. most: most buffers of a group.
    TODO     every node in one group; the three limits. All calls have 10 seconds together.
    Start    [[name] for name in work] is always valid.
    Example  with work = {"a": ("Relu", ("x",)), "b": ("Neg", ("a",))}, outputs = ["b"]:
             most 2 -> [["a", "b"]]                                       (roughly 17 lines)
    """
    ### BEGIN SOLUTION
    best = {frozenset(): (0, [])}  # nodes that are done: fewest bytes, and the groups
    for count in range(len(work)):
        for done in [known for known in best if len(known) == count]:
            groups = [()]
            for name, (op, reads) in work.items():
                if name not in done:
                    groups += [(*group, name) for group in groups
                               if all(r in done or r in group or r not in work for r in reads)
                               and not (is_core(op) and any(is_core(work[n][0]) for n in group))]
            for group in groups:
                if len(buffers(work, outputs, group)) <= most:
                    after = done | set(group)
                    cost = best[done][0] + moved(work, sizes, outputs, [group])
                    if after not in best or cost < best[after][0]:
                        best[after] = cost, [*best[done][1], list(group)]
    return best[frozenset(work)][1]
    ### END SOLUTION


# %% id="l10-e4d" vklab={"role": "demo"}
with attempt("10-4"):
    display(figures.draw_fused(*EXAMPLE, fuse(*EXAMPLE), "Your groups."))
    other = fusing_graphs.net_work(np.random.default_rng(4), 3, 4)  # another seed: another graph
    runs = moved(*other[:3], open_runs(other[0], *other[2:]))
    display(figures.draw_fused(*other, fuse(*other), f"open_runs moves {runs} bytes here."))

# %% id="l10-e4c" vklab={"role": "check", "id": "10-4"}
check("10-4", fuse)

# %% id="l10-e4h"
# hint("10-4")

# %% [markdown] id="l10-realt"
# The next cell runs your function on whole networks, with the runtime's limit of 16 buffers, and counts kernels. Each core needs a kernel of its own, so there are never fewer kernels than cores. An answer that tries many merges or sets may take too long here: it is stopped after 15 seconds for each network, and its bar is 0.

# %% id="l10-real" tags=["nbval-ignore-output"]
with attempt("10-4", seconds=90):
    rows = models.kernel_counts(fuse, ("unet", "resnet50", "shufflenet_v2"))
    display(figures.draw_bars(rows, "kernels", "Kernels of three networks. 0: stopped."))

# %% [markdown] id="l10-realr"
# On ResNet-50 vklab's simple rules reach the best count: one kernel for each of its 56 cores. On U-Net and ShuffleNet our limits allow more than vklab can write: kernels with several results, and Concat and Split inside a group. A fused kernel of vklab writes one value, unless it computes independent chains side by side.

# %% [markdown] id="l10-6t"
# ## 6 · What would break this?
# This pass fuses each Relu into the node that it reads: that node now makes the value of the Relu. `Tanh>Relu` is one kernel for both. Its author tested the pass on chains, and forgot two things: the value before the Relu may have **two readers**, and it may be an **output**. What does a correct `first_fault` say in each case? Answer with a rule of section 2, such as `"order"`, or with `"nothing"`.

# %% id="l10-careless" tags=["nbval-ignore-output"]
two_readers = graph_of("a Tanh x; b Relu a; c Neg a; y Add b c")
an_output = graph_of("a Tanh x; y Relu a", "y a")
show(careless)

# %% id="l10-p4"
predict("10-p4", two_readers=..., output=...)

# %% id="l10-carelessd"
with attempt("10-2"):
    for graph in (two_readers, an_output):
        print("verifier:", first_fault(graph, careless(graph)))
    feed = rewriting.feed_of(two_readers, 0)
    right, wrong = rewriting.run(two_readers, feed), rewriting.run(careless(two_readers), feed)
    print("the same values with two readers:", np.allclose(right["y"], wrong["y"]))

# %% [markdown] id="l10-carelessr"
# So a verifier and a comparison of values on drawn inputs find different faults, and a pass needs both. vklab's `fuse_chains` asks `flow.maker` first, which names the only writer of a value. It names none if a second dispatch reads the value, or if the value must stay in memory, as an output must.

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
# **Next**: lab 11 gives the values that are left their places in memory.
#
# **References**
# * Muchnick, *Advanced Compiler Design and Implementation*, 1997: constant folding, dead code, value numbering, and their order.
# * Chen et al., [TVM](https://arxiv.org/abs/1802.04799), 2018, section 3: rules for fusion. Li et al., [Automatic Horizontal Fusion](https://arxiv.org/abs/2007.01277), 2020: independent nodes in one kernel.
# * Baader and Nipkow, *Term Rewriting and All That*, 1998: measures and termination.
# * LLVM, [opt](https://llvm.org/docs/CommandGuide/opt.html): `-verify-each`.
# * ExecuTorch, memory layouts: [the page](https://docs.pytorch.org/executorch/stable/backends-vulkan.html) and [the pass](https://github.com/pytorch/executorch/pull/6636), with [the copies that it inserts](https://github.com/pytorch/executorch/pull/6763).
# * Willsey et al., [egg](https://arxiv.org/abs/2004.03082), 2021: equality saturation.
