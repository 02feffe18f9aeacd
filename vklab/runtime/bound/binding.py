"""DeviceBinding: a session's inputs and outputs in memory that stays between runs.

Checks what is bound, and chooses how it runs: `programs`, where values stay on the device, or
`copying`, where they cannot. Visited by lab 03.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from vklab import settings
from vklab.base import catalogue, forking
from vklab.errors import ModelError, VklabError
from vklab.runtime.bound import planning
from vklab.runtime.bound.copying import CopiedRun
from vklab.runtime.bound.programs import BoundPrograms
from vklab.runtime.bound.tensors import CUDA, DeviceTensor, Tensors, is_on, on_host
from vklab.runtime.program import Program
from vklab.types import TensorInfo


def bind(
    session: Any,
    *inputs: Any,
    state: Mapping[str, str] | None = None,
    in_place: Collection[str] = (),
    resident: Collection[str] = (),
    ahead: bool = False,
    cuda: bool = False,
) -> DeviceBinding:
    """Bind inputs and outputs to memory that stays between runs; use it in a `with` block.

    Args:
        session: the session.
        inputs: one dict by input name, or values in the graph's order: arrays, tensors of other
            libraries (DLPack), or tensors of other bindings, which are read where they are.
        state: the output of one run that is an input of the next, by the name of the input:
            {"past_key": "present_key"}. They are swapped, not copied. A state that `inputs`
            leaves out starts as zeros. Writing a state also changes outputs that are views of it.
            A state whose output takes over its input's memory (a cache, `vklab.ops.cache`) stays
            where it is, also in another binding, if `inputs` gives that binding's tensor for it.
        in_place: inputs to read in the caller's memory, if the device can; `origin` and `reason`
            of the input's tensor tell. The next run sees what the caller writes there.
        resident: outputs that stay in device memory where the host cannot map it: for another
            binding to read, or for `numpy()`, which then copies. States always do.
        ahead: allow `submit` and `collect`: outputs have memory for two runs.
        cuda: keep inputs and outputs in memory that CUDA shares: `torch()` of a tensor is a CUDA
            tensor on it, and CUDA tensors of the same GPU are inputs. A run is ordered with the
            work on PyTorch's current stream; with `ahead`, by a semaphore on the device, so that
            `run` returns at once. Where CUDA does nothing between runs, small models are faster
            without `ahead`.

    Raises ModelError for a wrong name, dtype or shape, and for a tensor on another device;
    SetupError for `cuda` where this device, driver or PyTorch cannot share memory.
    """
    return DeviceBinding(
        session, inputs, dict(state or {}), frozenset(in_place), frozenset(resident), ahead, cuda
    )


class DeviceBinding:
    """Inputs and outputs of a session on its device; close it, or use it in a `with` block.

    A session may have several bindings, each with memory of its own, and runs beside them. One
    thread at a time uses a binding and the bindings whose tensors it reads.

    Attributes:
        inputs: the tensors of the inputs, by name.
        outputs: the tensors of the outputs, by name.
        state: the session's memory on the first device; closing it closes the binding.

    Args:
        session: the session.
        given: as `bind` takes them.
        states: as `state` of `bind`.
        in_place: as in `bind`.
        resident: as in `bind`.
        ahead: as in `bind`.
        cuda: as in `bind`.
    """

    def __init__(
        self, session: Any, given: tuple[Any, ...], states: dict[str, str],
        in_place: Collection[str], resident: Collection[str], ahead: bool = False,
        cuda: bool = False,
    ) -> None:  # fmt: skip
        session.require_open()
        self._session = session
        self._owner = forking.owner()
        self._lock = threading.Lock()
        self._ahead = ahead and not cuda
        self._home: BoundPrograms | CopiedRun | None = None
        self.state = session.states[0]
        _require_names(session, states, in_place, resident)
        if cuda and in_place:
            raise ModelError("cuda=True is given with in_place, which is memory of the host")
        sharing = catalogue.step("share with CUDA")(self.state.opened) if cuda else None
        fed = _by_name(session, given, states, sharing and sharing.cuda.number)
        tensors = {name: value for name, value in fed.items() if isinstance(value, DeviceTensor)}
        bound = {name: value for name, value in tensors.items() if name not in states}
        self._require_near(bound)
        values = session.arrays(({n: _placeholder(v) for n, v in fed.items()},))
        lists = [name for name, value in values.items() if not isinstance(value, np.ndarray)]
        if lists:
            raise ModelError(f"bind takes tensors, and input {lists[0]} is none: use session.run")
        root = session.roots[0]
        with session.exclusive():
            entry = planning.planned(root, values)
            self.reason = planning.refusal(root, entry, states)
        if self.reason and sharing:
            raise ModelError(f"cuda=True: values pass through the host, because {self.reason}")
        if self.reason:
            values |= {n: np.asarray(v) for n, v in tensors.items() if n in states}
            own = {
                name: array if name in in_place else array.copy()
                for name, array in values.items()
                if name not in bound
            }
            self._home = CopiedRun(root, self.reason, own, bound, states)
        else:
            self._home = BoundPrograms(root, entry, tensors, states, resident, ahead, sharing)
            bound = {n: t for n, t in tensors.items() if n in bound or n in self._home.kept}
            self._require_near(bound)
            values |= {n: np.asarray(t) for n, t in tensors.items() if n not in bound}
            values |= {n: v for n, v in fed.items() if is_on(v, self._home.cuda_number)}
        self.state.opened.sessions.add(self)
        try:
            self.inputs = Tensors(
                {
                    name: self._input(name, array, states, bound, in_place)
                    for name, array in values.items()
                }
            )
            if isinstance(self._home, BoundPrograms):
                self._home.recording()
        except BaseException:
            self.close()
            raise
        self.outputs = Tensors(
            {name: DeviceTensor(self._home, name, True, "output") for name in session.outputs}
        )

    def _require_near(self, bound: Mapping[str, DeviceTensor]) -> None:
        """Raise ModelError for a tensor of another device, or of another dtype than its input."""
        infos = {info.name: info for info in self._session.inputs}
        for name, tensor in bound.items():
            tensor.home.require_open()
            if tensor.home.opened is not self.state.opened:
                raise ModelError(
                    f"input {infos[name]} is given as {tensor}; this session is on "
                    f"{self.state.opened.info.label}: pass tensor.numpy()"
                )
            if tensor.home.reason:
                raise ModelError(
                    f"input {infos[name]} is given as a tensor in host memory, "
                    f"because {tensor.home.reason}; pass tensor.numpy(), and write "
                    "it before each run"
                )
            if str(tensor.dtype) != infos[name].dtype:
                raise ModelError(f"input {infos[name]} is given as {tensor}: the dtypes differ")

    def _input(
        self, name: str, array: np.ndarray, states: Mapping[str, str],
        bound: Mapping[str, DeviceTensor], in_place: Collection[str],
    ) -> DeviceTensor:  # fmt: skip
        """Return the tensor of an input, after its first value is written or imported."""
        home, reason = self._home, ""
        assert home is not None, "the binding is being made"
        if name in bound:
            return DeviceTensor(home, name, False, "bound")
        if name in in_place:
            reason = home.import_input(name, array)
            if not reason:
                return DeviceTensor(home, name, False, "imported")
        tensor = DeviceTensor(home, name, False, "state" if name in states else "copied", reason)
        tensor[...] = array
        return tensor

    def run(self, inputs: Mapping[str, Any] | None = None) -> Tensors:
        """Write some inputs, run once, and return the outputs' tensors by name.

        After an error the states are those before the run. Raises ModelError for a wrong name,
        dtype or shape, VklabError if the binding is closed, TimeoutError or DeviceLostError.
        """
        with self._lock:
            home = self._require_home()
            for name, value in (inputs or {}).items():
                if name not in self.inputs:
                    raise ModelError(
                        f"the model has no input {name!r}; choose from {', '.join(self.inputs)}"
                    )
                self.inputs[name][...] = value
            checked = bool(settings.get("CHECK"))
            before = {n: np.array(t.numpy()) for n, t in self.inputs.items()} if checked else {}
            home.run()
        if checked:
            after = {name: tensor.numpy() for name, tensor in self.outputs.items()}
            self._session.require_equal(before, 0, after)
        return self.outputs

    def _require_home(self) -> BoundPrograms | CopiedRun:
        """Return the values' memory; raise VklabError if the binding is closed."""
        if self._home is None:
            forking.require_own(self._owner, "this binding")
            raise VklabError("this binding is closed, or its session: bind again")
        return self._home

    def submit(self) -> None:
        """Submit a run without waiting; at most two are in flight, and `collect` ends each.

        The states that it reads are those that the run before it writes. Raises ModelError unless
        the binding was made with `ahead` and its values stay on the device.
        """
        with self._lock:
            home = self._require_home()
            if not isinstance(home, BoundPrograms) or not self._ahead:
                reason = self.reason or "bind with ahead=True, and without cuda"
                raise ModelError(f"runs cannot be submitted ahead: {reason}")
            home.submit()

    def collect(self) -> Tensors:
        """Wait for the oldest submitted run, and return the outputs' tensors, which are its own."""
        with self._lock:
            home = self._require_home()
            if not isinstance(home, BoundPrograms) or not home.in_flight:
                raise VklabError("no submitted run is left to collect")
            home.collect()
        return self.outputs

    def settle(self) -> None:
        """Wait until no run is in flight, for example after a wait was interrupted."""
        with self._lock:
            if isinstance(self._home, BoundPrograms):
                self._home.settle()

    @property
    def program(self) -> Program:
        """Return the recording of the next run, for measurements; VklabError if there is none."""
        home = self._require_home()
        if not isinstance(home, BoundPrograms):
            raise VklabError(f"the binding has no recording of its own: {self.reason}")
        return home.recording()

    @property
    def in_flight(self) -> int:
        """Return the number of submitted runs that are not collected."""
        return self._home.in_flight if isinstance(self._home, BoundPrograms) else 0

    def close(self) -> None:
        """Free the binding's resources; a second call does nothing.

        Memory that NumPy arrays or tensors of other libraries still read is freed with them.
        """
        with self._lock:
            home, self._home = self._home, None
            if home is not None:
                home.close()
            self.state.opened.sessions.discard(self)

    def abandon(self) -> None:
        """Forget all resources in a forked child; another thread may have held the lock."""
        self._lock = threading.Lock()
        self._home = None

    def __del__(self) -> None:
        home = getattr(self, "_home", None)
        if home is not None:
            self.state.opened.forget(home)

    def __enter__(self) -> DeviceBinding:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        how = "closed" if self._home is None else self.reason and f"copying: {self.reason}"
        text = ", ".join(f"{name} {tensor.origin}" for name, tensor in self.inputs.items())
        return f"Binding of {self._session.graph}: {text}{how and f'; {how}'}"


def _require_names(
    session: Any, states: Mapping[str, str], in_place: Collection[str], resident: Collection[str]
) -> None:
    inputs = [info.name for info in session.inputs]
    for names, known, kind in (
        (states, inputs, "input"),
        (in_place, inputs, "input"),
        ((*states.values(), *resident), session.outputs, "output"),
    ):
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ModelError(
                f"the model has no {kind} {unknown[0]!r}; choose from {', '.join(known)}"
            )
    twice = [name for name in states.values() if [*states.values()].count(name) > 1]
    if twice:
        raise ModelError(f"output {twice[0]} is given as the next value of two states")
    shared = [name for name in in_place if name in states]
    if shared:
        raise ModelError(
            f"{shared[0]} is a state, and cannot be read in place: it changes memory in each run"
        )


def _by_name(
    session: Any, given: tuple[Any, ...], states: Mapping[str, str], cuda_number: int | None
) -> dict[str, Any]:
    """Return the given values by name, with zeros for states that were left out.

    Args:
        session: the session.
        given: as `bind` takes them.
        states: as in `bind`.
        cuda_number: the device of CUDA whose tensors are accepted; None for none.
    """
    infos: Mapping[str, TensorInfo] = {info.name: info for info in session.inputs}
    if len(given) > len(infos):
        session.arrays(given)  # raises: there are too many
    is_named = len(given) == 1 and isinstance(given[0], Mapping)
    fed = dict(given[0] if is_named else zip(infos, given, strict=False))
    fed = {
        name: on_host(f"input {infos.get(name, name)}", value, cuda_number)
        for name, value in fed.items()
    }
    sizes: dict[Any, int] = {}
    for name, value in fed.items():
        shape = infos[name].shape if name in infos else ()
        sizes.update(zip(shape, np.shape(_placeholder(value)), strict=False))
    for name in states:
        if name not in fed:
            unknown = [d for d in infos[name].shape if not isinstance(d, int) and d not in sizes]
            if unknown:
                raise ModelError(
                    f"state {infos[name]}: give its first value, because the size of "
                    f"{unknown[0]} is not known"
                )
            whole = [d if isinstance(d, int) else sizes[d] for d in infos[name].shape]
            fed[name] = np.broadcast_to(np.zeros((), infos[name].dtype), whole)  # no memory
    return fed


def _placeholder(value: Any) -> Any:
    """Return an array of a tensor's dtype and shape, without memory, to check and to plan by."""
    ask = getattr(value, "__dlpack_device__", None)
    if isinstance(value, DeviceTensor) or (ask is not None and ask()[0] == CUDA):
        dtype = str(value.dtype).removeprefix("torch.")
        return np.broadcast_to(np.zeros((), dtype), tuple(value.shape))
    return value
