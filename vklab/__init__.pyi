# The names of `__init__.py` for type checkers and editors; `as` exports them.
from vklab import distributed as distributed
from vklab import llm as llm
from vklab import settings as settings
from vklab.apps.pytorch.frontend import from_torch as from_torch
from vklab.errors import CheckError as CheckError
from vklab.errors import DeviceLostError as DeviceLostError
from vklab.errors import HostWarning as HostWarning
from vklab.errors import ModelError as ModelError
from vklab.errors import OutOfMemoryError as OutOfMemoryError
from vklab.errors import PlanError as PlanError
from vklab.errors import SetupError as SetupError
from vklab.errors import ShaderError as ShaderError
from vklab.errors import TimeoutError as TimeoutError
from vklab.errors import UnsupportedOperatorError as UnsupportedOperatorError
from vklab.errors import UnusedWarning as UnusedWarning
from vklab.errors import VklabError as VklabError
from vklab.errors import VulkanError as VulkanError
from vklab.runtime.bound.binding import DeviceBinding as DeviceBinding
from vklab.runtime.bound.tensors import DeviceTensor as DeviceTensor
from vklab.runtime.loading import load as load
from vklab.runtime.observe.calibration import measure as measure
from vklab.runtime.open_devices import devices as devices
from vklab.runtime.session import Session as Session
from vklab.types import DeviceInfo as DeviceInfo
from vklab.types import TensorInfo as TensorInfo

__version__: str
