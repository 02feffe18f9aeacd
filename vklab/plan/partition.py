"""Decide which nodes run on Vulkan and which on the host, one chunk at a time, with reasons.

Shapes after a host chunk, or after a size that depends on data, are known only when that chunk
has run. A device chunk takes every node that can run before the next host node, so that device
and host alternate as rarely as possible. Visited by lab 09.
"""

from __future__ import annotations

import fnmatch
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vklab import settings
from vklab.errors import ModelError, PlanError, UnsupportedOperatorError, ValueNeededError
from vklab.graph import shapes
from vklab.graph.graph import Graph, Node
from vklab.ops import registry
from vklab.ops.body import Expansion
from vklab.ops.dtypes import MOVABLE, OTHER_TYPES
from vklab.plan import constant_folding
from vklab.plan.chunk import CONTROL, HOST, Chunk, Place
from vklab.plan.constant_folding import ConstantFolder, Evaluate
from vklab.types import ANY_SHAPE, DeviceInfo, TensorInfo

# Minimum operations for a device chunk between two host chunks to be worth its two transfers.
# Chosen, not measured.
ISLAND_FLOPS = 1 << 16
CONTROL_NODES = frozenset({"If", "Loop", "Scan"})
# (graph, node, its inputs, its operator's result, device): raises PlanError with the reason.
Require = Callable[[Graph, Node, Sequence[TensorInfo | None], registry.Result, DeviceInfo], None]


@dataclass(frozen=True)
class Needed:
    """Inputs whose values must be known before the next chunk can be decided."""

    names: tuple[str, ...]


def next_chunk(
    graph: Graph,
    inputs: Mapping[str, TensorInfo],
    devices: Sequence[DeviceInfo],
    evaluate: Evaluate,
    require: Require,
    after_host: bool = False,
) -> tuple[Chunk, Graph] | Needed:
    """Return the next chunk and the rest of the graph, or the inputs whose values it needs.

    A device chunk names device 0: it is not placed or lowered yet.

    Args:
        graph: the nodes that no chunk contains yet.
        inputs: dtype and shape of each value that they read, with its value if that decides.
        devices: a node that one of these can run goes to Vulkan.
        evaluate: computes one node on the host.
        require: raises PlanError for a node that a device cannot run; `capability.require`.
        after_host: whether the previous chunk runs on the host.
    """
    traversal = _Traversal(graph, inputs, devices, evaluate, require)
    needed = traversal.run()
    if needed:
        return needed
    if traversal.device and not (after_host and traversal.is_island()):
        return traversal.device_chunk()
    return traversal.host_chunk()


@dataclass
class _Traversal:
    """One pass over the remaining nodes: each goes to the device, to the host, or waits.

    The first five attributes are the arguments of `next_chunk`.

    Attributes:
        folder: infos of all values so far, and the known ones.
        device: nodes of the next device chunk; `placed` has their names.
        host: nodes that no device can run, by name; `reasons` says why.
        waiting: nodes that run after this chunk, in order; the host's nodes are among them.
        later: values that only a later chunk will know, or whose size the device counts.
        flops: the work of the device chunk.
    """

    graph: Graph
    inputs: Mapping[str, TensorInfo]
    devices: Sequence[DeviceInfo]
    evaluate: Evaluate
    require: Require
    device: list[Node] = field(default_factory=list)
    placed: set[str] = field(default_factory=set)
    host: dict[str, Node] = field(default_factory=dict)
    waiting: list[Node] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    later: set[str] = field(default_factory=set)
    flops: int = 0

    def __post_init__(self) -> None:
        self.denied, self.allowed = _patterns("HOST"), _patterns("ONLY")
        self.folder = ConstantFolder(self.graph, self.inputs, self.evaluate)
        self.infos = self.folder.infos

    def run(self) -> Needed | None:
        """Visit all nodes; return the inputs whose values are needed, or None."""
        queue = deque(self.graph.nodes)
        while queue:
            node = queue.popleft()
            if not self.later.isdisjoint(node.reads):
                self._wait(node)
                continue
            reason = self._refusal(node)
            try:
                branch = self.folder.branch(node)
                if branch is not None:
                    queue.extendleft(reversed(branch))
                    continue
                if not reason:
                    queue.extendleft(reversed(self._visit(node)))
                    continue
            except ValueNeededError as error:
                # Planning this node needs the value of one of its inputs, such as the shape of a
                # Reshape. If inputs of the graph decide the value, they become part of the plan's
                # key. If a node of this chunk computes the value, this node waits until the chunk
                # has run. Otherwise this node runs on the host.
                names = self.folder.sources(error.value, self.device)
                if names:
                    return Needed(names)
                if error.value in self.infos and error.value not in self.folder.inputs:
                    self._wait(node)  # known after the chunk that writes it has run
                    continue
                reason = str(error)
            except (UnsupportedOperatorError, PlanError) as error:
                if self.folder.is_known(node) and self._fold(node):
                    continue
                expanded = self.folder.expand(node)
                if expanded is not None:
                    queue.extendleft(reversed(expanded))
                    continue
                reason = str(error)
            self.host[node.name] = node
            self.reasons[node.name] = reason
            self._wait(node)
        return None

    def _wait(self, node: Node) -> None:
        self.waiting.append(node)
        self.later.update(filter(None, node.outputs))

    def _kept(self, node: Node) -> str:
        """Return why the switches HOST and ONLY keep a node on the host, or ""."""
        pattern = _match(node, self.denied)
        if pattern:
            return f"node {node.name!r} is kept on the host by VKLAB_HOST={pattern}"
        if self.allowed and not _match(node, self.allowed):
            return f"node {node.name!r} ({node.op_type}) is not in VKLAB_ONLY={self.allowed}"
        return ""

    def _refusal(self, node: Node) -> str:
        """Return why a node stays on the host before its operator is tried, or ""."""
        if node.op_type in CONTROL_NODES and not node.domain:
            return f"node {node.name!r}: control flow runs on the host, its bodies on Vulkan"
        kept = self._kept(node)
        if kept:
            return kept
        for name in node.reads:
            value = self.infos.get(name)
            if value is None or value.dtype not in MOVABLE or not value.is_static:
                kind = value.dtype if value else "unknown"
                return f"node {node.name!r} ({node.op_type}): {name!r} is {kind}, not numbers"
        return ""

    def _visit(self, node: Node) -> Sequence[Node]:
        """Place a node on the device, or fold it; return the nodes into which it expands."""
        folder = self.folder
        result, outputs = shapes.apply_node(self.graph, node, self.infos)
        if isinstance(result, Expansion):
            if folder.is_known(node) and self._fold(node):
                return ()
            return folder.take(shapes.expand(node, result)) or ()
        for value in outputs:
            told = self.graph.infos.get(value.name, value).dtype
            if told not in (*OTHER_TYPES, value.dtype):
                raise ModelError(f"node {node} makes {value}; the model declares {told}")
        self.infos.update({value.name: value for value in outputs if value.name})
        if outputs and all(value.constant is not None for value in outputs):
            folder.add({value.name: value for value in outputs if value.name})
            return ()
        shown = folder.depends_on_asked(node) and folder.is_output(node)
        folds = folder.is_known(node) and not shown and folder.is_small(node, outputs)
        if folds and self._fold(node, result.views, outputs):
            return ()
        self._check(node, result)
        self.device.append(node)
        self.placed.add(node.name)
        self.flops += sum(dispatch.flops for dispatch in result.dispatches)
        self.later.update(
            outputs[number].name for number, _, _ in result.trims if number < len(outputs)
        )
        return ()

    def _fold(
        self, node: Node, views: Sequence[tuple[int, int]] = (), outputs: Sequence[TensorInfo] = ()
    ) -> bool:
        folded = self.folder.fold(node, views, outputs)
        if folded and self.folder.is_output(node) and self.folder.depends_on_asked(node):
            self.reasons[node.name] = f"node {node.name!r}: integer arithmetic on known values"
        return folded

    def _check(self, node: Node, result: registry.Result) -> None:
        """Raise PlanError if no device can run the dispatches of a node."""
        inputs = [self.infos[name] if name else None for name in node.inputs]
        for number, info in enumerate(self.devices, 1):
            try:
                self.require(self.graph, node, inputs, result, info)
                return
            except PlanError:
                if number == len(self.devices):
                    raise

    # ------------------------------------------------------------------------------------- chunks

    def is_island(self) -> bool:
        """Tell whether the device's nodes are too little work for two transfers.

        If no host node follows, the device keeps the chunk, however small.
        """
        follows = any(self._belongs_on_host(node) for node in self.waiting)
        return follows and self.flops < ISLAND_FLOPS

    def device_chunk(self) -> tuple[Chunk, Graph]:
        """Return the device's nodes as a chunk, and the rest of the graph."""
        return self._chunk(0, self.device, self.waiting), self._rest(self.waiting)

    def host_chunk(self) -> tuple[Chunk, Graph]:
        """Return as many nodes as can run on the host before the device must, and the rest."""
        order = [*self.device, *self.waiting]
        made = {name for node in order for name in node.outputs}
        chosen: list[Node] = []
        done: set[str] = set()
        opsets: dict[str, int] = {}
        for node in order:
            ready = all(name not in made or name in done for name in node.reads)
            if not ready or not self._belongs_on_host(node):
                continue
            is_control = node.op_type in CONTROL_NODES and not node.domain
            opset = self.graph.opset_of(node)
            if (is_control and chosen) or opsets.get(node.domain, opset) != opset:
                continue
            chosen.append(node)
            done.update(node.outputs)
            opsets[node.domain] = opset
            small = f"node {node.name!r} ({node.op_type}): too little work between host nodes"
            self.reasons.setdefault(node.name, self._kept(node) or small)
            if is_control:
                break
        if not chosen and order:
            raise PlanError(f"node {order[0]}: nothing can run before it, and it cannot start")
        names = {node.name for node in chosen}
        left = [node for node in order if node.name not in names]
        control = len(chosen) == 1 and chosen[0].op_type in CONTROL_NODES and not chosen[0].domain
        return self._chunk(CONTROL if control else HOST, chosen, left), self._rest(left)

    def _belongs_on_host(self, node: Node) -> bool:
        if node.name in self.host or node.name in self.placed or self._kept(node):
            return True
        if (node.domain, node.op_type) in registry.OPERATORS or node.op_type in CONTROL_NODES:
            return False
        loaded = constant_folding.onnx_functions()
        return not (loaded and loaded.has_body(node, self.graph.opset_of(node)))

    def _chunk(self, place: Place, nodes: Sequence[Node], left: Sequence[Node]) -> Chunk:
        made = dict.fromkeys(name for node in nodes for name in node.outputs if name)
        read = dict.fromkeys(name for node in nodes for name in node.reads)
        wanted = {name for node in left for name in node.reads} | set(self.graph.outputs)
        constants = self._constants(read)
        inputs = tuple(
            self.infos.get(name, TensorInfo(name, "", ANY_SHAPE))
            for name in read
            if name not in made and name not in constants
        )
        chosen, strict = {node.name for node in nodes}, not settings.get("FALLBACK")
        return Chunk(
            place=place,
            graph=replace(
                self.graph,
                nodes=tuple(nodes),
                inputs=inputs,
                outputs=tuple(name for name in made if name in wanted),
                initializers=constants,
                captures=(),
                infos=self.infos if place == 0 else {**self.graph.infos, **self.infos},
            ),
            # Reasons of this chunk's host nodes, and of folded nodes, in no chunk. Without FALLBACK
            # those of later host nodes too: the first chunk refuses the model.
            reasons={
                n: r
                for n, r in self.reasons.items()
                if n in chosen or n not in self.host or (strict and not self._steers(n))
            },
            known={
                n: v.constant
                for n, v in self.folder.folded.items()
                if n in self.graph.outputs and v.constant is not None
            },
        )

    def _steers(self, name: str) -> bool:
        """Tell whether a host node is a control node, whose bodies run on the device."""
        return self.host[name].op_type in CONTROL_NODES and not self.host[name].domain

    def _constants(self, names: Iterable[str]) -> dict[str, TensorInfo]:
        infos = {name: self.infos[name] for name in names if name in self.infos}
        return {name: info for name, info in infos.items() if info.constant is not None}

    def _rest(self, left: Sequence[Node]) -> Graph:
        made = {name for node in left for name in node.outputs}
        read = dict.fromkeys(name for node in left for name in node.reads)
        constants = self._constants(n for n in read if n not in self.folder.inputs)
        inputs = tuple(
            TensorInfo(name, "", ANY_SHAPE)
            for name in read
            if name not in made and name not in constants
        )
        return replace(
            self.graph, nodes=tuple(left), inputs=inputs, initializers=constants, captures=()
        )


def _patterns(name: str) -> list[str]:
    return [text.strip() for text in str(settings.get(name)).split(",") if text.strip()]


def _match(node: Node, patterns: Sequence[str]) -> str:
    """Return the first pattern that a node's operator or name matches, or ""."""
    names = (node.op_type, node.name)
    return next((p for p in patterns if any(fnmatch.fnmatchcase(n, p) for n in names)), "")
