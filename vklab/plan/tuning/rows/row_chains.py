"""Join products of one row, each of which reads the result of the one before, into one dispatch.

A barrier costs as much as such a product of medium size, and memory is idle while it takes place.
DISABLE_PASSES=row_chains leaves every product a dispatch of its own. Visited by lab 08.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from vklab import settings
from vklab.plan import block_units, storage
from vklab.plan.fusion.flow import Uses
from vklab.plan.lowering import Lowered
from vklab.plan.tuning import precision, prepack
from vklab.plan.tuning.attention import cache_groups
from vklab.plan.tuning.join_task import JoinTask
from vklab.plan.tuning.rows import chain_kernels
from vklab.plan.tuning.rows.chain_kernels import FORMATS, Product
from vklab.types import DeviceInfo, Dispatch, TensorInfo

RESULTS = ("float32", "float16")
# Products of a dispatch, half of it with biases (32 buffers can be pushed), and elements of a row,
# which is in shared memory.
MOST_LAYERS, MOST_K = 16, 8192
# One workgroup computes products of so few elements in all, with so many loads of a lane for a row.
# Each product of many workgroups has so many elements.
FEW_ELEMENTS, FEW_LOADS, MANY_ELEMENTS = 1 << 13, 4, 1 << 20
# Element-wise work that the kernels do: formulas and their arguments.
RELU, ADD, WIDEN = "onnx::relu(a)", ("onnx::add(a, b)", (0, 1)), "float(a)"
# Columns of the longest row of which the kernels compute Softmax.
MOST_COLUMNS = 1024


def join(task: JoinTask) -> Lowered:
    """Return fewer dispatches, in which one computes several products of one row.

    Args:
        task: dispatches with the kernels that are right everywhere.
    """
    lowered, info = task.lowered, task.info
    forced = settings.get("DISABLE_VARIANTS") or settings.get("VARIANT")  # kernels of each product
    whole = info.limit("minSubgroupSize") == info.subgroup_size
    if forced or not whole or "arithmetic" not in info.subgroup_operations:
        return lowered
    flow = _Flow(lowered, {lowered.roots[name] for name in task.outputs})
    dispatches: list[tuple[tuple[str, Dispatch], ...]] = [
        (pair,) for pair in zip(lowered.nodes, lowered.dispatches, strict=True)
    ]
    roots = dict(lowered.roots)
    for chain in flow.chains(info, task.resident):
        last = flow.softmax_after(chain[-1])
        for part in _parts(chain, flow.last_writer(chain[0]) is None, info):
            tail = last if part[-1] is chain[-1] else None
            softmax = lowered.dispatches[tail] if tail is not None else None
            made = chain_kernels.dispatches(part, softmax, _is_head(part, info), info)
            places = [each.number for each in part] + ([tail] if tail is not None else [])
            before = flow.last_writer(part[0])
            if (
                len(made) > 1
                and before is None
                or flow.changes(made[-1], places)
                or not _binds(made[-1], info)
                or any(task.refused(each) for each in made)
            ):
                continue
            label = " + ".join(dict.fromkeys(lowered.nodes[number] for number in places))
            for number in places:
                dispatches[number] = ()
            dispatches[places[-1]] = ((label, made[-1]),)
            if before is not None and len(made) > 1:  # beside what makes x: no barrier between
                dispatches[before] = ((label, made[0]), *dispatches[before])
            roots |= {
                info.name: roots.get(info.name, info.name)
                for each in made
                for _, info in each.writes
            }
    named = [pair for each in dispatches for pair in each]
    return replace(
        lowered,
        dispatches=tuple(dispatch for _, dispatch in named),
        nodes=tuple(node for node, _ in named),
        roots=roots,
    )


class _Flow(Uses):
    """Products of one row of a plan, and the dispatches that write and read each value."""

    def __init__(self, lowered: Lowered, kept: Collection[str]) -> None:
        counts = (lowered.roots[name] for cut in lowered.trims.values() for _, name in cut)
        super().__init__(lowered.roots, lowered.dispatches, (*kept, *counts))
        self.lowered = lowered

    def chains(self, info: DeviceInfo, resident: Collection[str]) -> Iterator[tuple[Product, ...]]:
        """Yield products of one row of which each reads the result of the one before."""
        found = {
            number: product
            for number, each in enumerate(self.lowered.dispatches)
            if (product := self._product(number, each, info, resident))
        }
        while found:
            product = found.pop(min(found))
            chain = [product]
            while (after := self._reader(product)) is not None and after in found:
                following = found[after]
                alike = following.k == product.n and following.kind == product.kind
                if not alike or product.is_long or following.k > MOST_K:
                    break
                product = found.pop(after)
                chain.append(product)
            yield tuple(chain)

    def softmax_after(self, product: Product) -> int | None:
        """Return the number of the Softmax that alone reads a product's result, or None."""
        number = self._reader(product)
        if number is None:
            return None
        dispatch = self.lowered.dispatches[number]
        push, work = dispatch.push_values, dispatch.epilogue
        fits = (
            dispatch.kernel == "softmax"
            and (push["rows"], push["columns"]) == (1, product.n)
            and dispatch.define_values["LOG"] == "0"
            and product.n <= MOST_COLUMNS
            and not dispatch.prologue
            and dispatch.writes[0][1].dtype in RESULTS
            and product.dispatch.writes[0][1].dtype == product.dispatch.reads[0][1].dtype
            and (
                work is None or [each.text for each in work.formulas] == [WIDEN] and not work.target
            )
        )
        return number if fits else None

    def last_writer(self, product: Product) -> int | None:
        """Return the last dispatch that writes what a product reads; None for an input."""
        root = self.root(product.dispatch.reads[0][1])
        return max(self.writers.get(root, ()), default=None)

    def changes(self, joint: Dispatch, places: Sequence[int]) -> bool:
        """Tell whether a value is overwritten before the last place of a dispatch that reads it."""
        roots = {self.root(info) for _, info in joint.reads}
        return any(
            places[0] < number < places[-1] and number not in places
            for root in roots
            for number in self.writers.get(root, ())
        )

    def _reader(self, product: Product) -> int | None:
        """Return the only dispatch that reads a product's result, if no other value needs it."""
        result = product.dispatch.writes[0][1]
        number = self.reader(result)
        if number is None or self.count(result, self.lowered.dispatches[number]) > 1:
            return None  # such as a row that is added to its own product, or multiplied by itself
        read = self.lowered.dispatches[number].reads[0][1]
        starts = [self.lowered.slices.get(name, 0) for name in (result.name, read.name)]
        whole = self.root(read) == self.root(result) and read.count == result.count == product.n
        return number if whole and not any(starts) else None

    def _product(
        self, number: int, dispatch: Dispatch, info: DeviceInfo, resident: Collection[str]
    ) -> Product | None:
        """Return a product of one row that the kernels can compute; None for any other dispatch."""
        if dispatch.kernel != "matmul" or dispatch.prologue or not _is_plain(dispatch):
            return None
        push, name = dispatch.push_values, FORMATS[dispatch.define_values["T"]]
        n, k = push["n"], push["k"]
        added = _added(dispatch, n)
        laid_out = prepack.along_k(dispatch, (1, n, k), info, resident)
        if k * n <= FEW_ELEMENTS and laid_out is dispatch:
            laid_out = prepack.along_k(dispatch, (1, n, k), info, resident, always=True)
        steps = laid_out.push_values
        weight = dict(dispatch.reads)["b_buffer"]
        alone = self.readers[self.root(weight)] == {number}
        alone &= storage.stored_dtype(weight.dtype, info) == weight.dtype
        turned = (steps["b_row"], steps["b_column"]) == (1, k) and not k % block_units.unit(name)
        if added is None or not turned or not alone:
            return None
        return Product(number, laid_out, k, n, *added)


def _binds(dispatch: Dispatch, info: DeviceInfo) -> bool:
    """Tell whether a device binds as many buffers as a dispatch has."""
    most = info.limits.get("maxPerStageDescriptorStorageBuffers", len(dispatch.reads) + 8)
    return not isinstance(most, int) or len(dispatch.reads) + len(dispatch.writes) <= most


def _is_plain(dispatch: Dispatch) -> bool:
    """Tell whether a dispatch is one row times one matrix, and perhaps plus a row."""
    push, defines = dispatch.push_values, dispatch.define_values
    return (
        push["m"] == push["batches"] == 1
        and push["start"] == 0
        and push["alpha"] == 1
        and push["a_column"] == 1
        and defines["ACC"] == "float"
        and defines["T"] in FORMATS
        and defines["T_LOAD"] == "float"
        and dispatch.writes[0][1].dtype in RESULTS
        and (defines["BIAS"] == "0" or (push["c_column"], push["beta"]) == (1, 1))
    )


def _added(dispatch: Dispatch, n: int) -> tuple[TensorInfo | None, bool] | None:
    """Return what is added to a product, and whether a ReLU follows; None for anything else."""
    bias = dict(dispatch.reads).get("c_buffer")
    work = dispatch.epilogue
    if work is None:
        return bias, False
    formulas = [(each.text, each.arguments) for each in work.formulas]
    kinds = {each.dtype for each in work.operands}
    if work.target or len(work.operands) > 2 or kinds != {dispatch.reads[0][1].dtype}:
        return None
    if len(work.operands) == 2 and not bias and formulas[0] == ADD:
        other = work.operands[1]
        if work.count != n or not other.view.is_dense(work.shape):
            return None
        bias = other.info
        del formulas[0]
    last = len(work.operands) + len(work.formulas) - 2  # what the last formula reads
    if formulas and formulas[-1] == (WIDEN, (last,)) and dispatch.writes[0][1].dtype == "float32":
        del formulas[-1]
        last -= 1
    return (bias, bool(formulas)) if formulas in ([], [(RELU, (last,))]) else None


def _parts(
    chain: Sequence[Product], is_first: bool, info: DeviceInfo
) -> Iterator[tuple[Product, ...]]:
    """Yield the products of a chain that one dispatch computes, as long as there is a gain.

    Workgroups that wait for others (matvec_chain) are for NVIDIA's own driver: Vulkan does not
    promise that a workgroup goes on while others run. There each does once it has started, and it
    waits only for workgroups that have started before it, so none waits for ever.

    Args:
        chain: the products.
        is_first: whether the first reads an input of the model, so that there is no dispatch before
            it beside which counters would become zero at no cost.
        info: the device.
    """
    can_share = cache_groups.can_share(info)
    if len(chain) == 1 and chain[0].is_long:
        if can_share:
            yield tuple(chain)
        return
    head = len(chain)
    while head and _is_head(chain[head - 1 :], info):
        head -= 1
    if head < len(chain):
        yield tuple(chain[head:])
        chain = chain[:head]
    rest = list(chain[is_first or any(each.k > MOST_K for each in chain[:1]) :])
    most = MOST_LAYERS // 2 if any(each.bias for each in rest) else MOST_LAYERS
    while can_share and precision.is_nvidia(info) and len(rest) > 1:
        part, rest = rest[:most], rest[most:]
        if all(each.elements >= MANY_ELEMENTS for each in part[:-1]):
            yield tuple(part)


def _is_head(products: Sequence[Product], info: DeviceInfo) -> bool:
    """Tell whether one workgroup computes some products soon enough."""
    most = info.limit("maxComputeWorkGroupInvocations")
    return (
        sum(each.elements for each in products) <= FEW_ELEMENTS
        and chain_kernels.head_loads(products, info) <= FEW_LOADS
        and max(each.n for each in products) <= MOST_COLUMNS
        and len(products) <= MOST_LAYERS // 2
        and most >= chain_kernels.HEAD_LANES
    )
