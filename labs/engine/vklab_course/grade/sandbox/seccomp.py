"""Filter of system calls for the sandbox, as a classic BPF program for bubblewrap's --seccomp.

Refuses new namespaces, tracing, kernel keyrings and the like; they are of no use to an answer.
Refuses messages that may carry descriptors, too: an anonymous file on its way through a socket is
in no process, where it could be counted. The files themselves are allowed, because lavapipe of
Mesa 24 and later allocates a device's memory in one. Sockets are local ones, and their buffers keep
the default size, so that the watch (limits.py) knows what they can hold.
Source: seccomp(2), and linux/audit.h, linux/filter.h, asm/unistd.h for the numbers.
"""

from __future__ import annotations

import errno
import platform
import struct

__all__ = ["DENIED", "program"]

# name -> number on x86_64 and on aarch64
DENIED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "fsopen": (430, 430),
    "move_mount": (429, 429), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "kexec_load": (246, 104),
    "init_module": (175, 105), "finit_module": (313, 273), "open_by_handle_at": (304, 265),
    "acct": (163, 89), "swapon": (167, 224), "syslog": (103, 116), "shmget": (29, 194),
    "msgget": (68, 186), "semget": (64, 190), "personality": (135, 92), "kcmp": (312, 272),
    "memfd_secret": (447, 447), "sendmsg": (46, 211), "sendmmsg": (307, 269),
}  # fmt: skip
ARCHITECTURES = {"x86_64": (0xC000003E, 0, 56), "aarch64": (0xC00000B7, 1, 220)}
CLONE3, CLONE_NEW = 435, 0x7E020000  # namespaces of users, mounts, processes, network, ...
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
# socket and setsockopt; the sizes of buffers are SO_SNDBUF, SO_RCVBUF, and their forced kin.
SOCKET_CALLS = {"x86_64": (41, 54), "aarch64": (198, 208)}
AF_UNIX, AF_NETLINK, SOL_SOCKET, BUFFER_SIZES = 1, 16, 1, (7, 8, 32, 33)
X32 = 0x40000000  # numbers of the x32 interface begin here


def _sockets(socket: int, setsockopt: int) -> list[tuple[int, int, int, int]]:
    """Return the steps that refuse sockets of networks, and ignore new sizes of buffers."""
    sizes = [
        (EQUAL, 3 - number, int(number == 3), option) for number, option in enumerate(BUFFER_SIZES)
    ]
    return [
        (EQUAL, 0, 5, socket),
        (LOAD, 0, 0, 16),
        (EQUAL, 1, 0, AF_UNIX),
        (EQUAL, 0, 1, AF_NETLINK),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, REFUSE | errno.EAFNOSUPPORT),
        (EQUAL, 0, 9, setsockopt),
        (LOAD, 0, 0, 24),
        (EQUAL, 0, 6, SOL_SOCKET),
        (LOAD, 0, 0, 32),
        *sizes,
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    ]


def program(machine: str = "") -> bytes:
    """Return the filter for a machine, `x86_64` or `aarch64`; default: this one.

    clone3 hides its flags in memory, so it reports ENOSYS, and the C library then calls clone.
    Raises ValueError for another machine.
    """
    machine = machine or platform.machine()
    if machine not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ValueError(f"there is no filter of system calls for {machine}; there is {known}")
    audit, column, clone = ARCHITECTURES[machine]
    steps = [
        (LOAD, 0, 0, 4),
        (EQUAL, 1, 0, audit),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, 0),
        (AT_LEAST, 0, 1, X32),
        (RETURN, 0, 0, REFUSE | errno.ENOSYS),
        (EQUAL, 0, 1, CLONE3),
        (RETURN, 0, 0, REFUSE | errno.ENOSYS),
    ]
    for numbers in DENIED.values():
        steps += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, REFUSE | errno.EPERM)]
    steps += _sockets(*SOCKET_CALLS[machine])
    steps += [
        (EQUAL, 0, 3, clone),
        (LOAD, 0, 0, 16),
        (ANY_BIT, 0, 1, CLONE_NEW),
        (RETURN, 0, 0, REFUSE | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(struct.pack("<HBBI", *step) for step in steps)
