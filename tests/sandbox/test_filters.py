"""The seccomp filters, run here instruction by instruction for both architectures."""

import errno
import re
import struct
from pathlib import Path

import pytest

from tipprobe.sandbox.worker import confine

ALLOW = 0x7FFF0000
KILL = 0x80000000
ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386 = 0x40000003
X32 = 1 << 30
# The kernel's own lists: on aarch64 system calls have the generic numbers.
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


def verdict(program, number, arguments=(), arch=0):
    """What the kernel would do: run a filter on one system call."""
    data = struct.pack("=iIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    lines = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at, value = 0, 0
    while True:
        code, left, right, constant = lines[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, constant)
        elif code == 0x06:
            return constant
        elif code == 0x05:
            at += constant
        else:
            holds = {0x15: value == constant, 0x25: value > constant, 0x45: value & constant != 0}[code]
            at += left if holds else right


def refusal(number):
    return 0x00050000 | number


@pytest.fixture(params=ARCHES)
def arch(request):
    return request.param


def number(name, arch):
    return confine._NUMBERS[name][0 if arch == "x86_64" else 1]


def test_system_call_numbers_are_the_kernels(arch):
    if not HEADERS[arch].exists():
        pytest.skip(f"no {HEADERS[arch]}")
    text = HEADERS[arch].read_text()
    known = {name: int(n) for name, n in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    ours = {name: number(name, arch) for name in confine._NUMBERS}
    assert {name: known.get(name) for name, n in ours.items() if n is not None} == {
        name: n for name, n in ours.items() if n is not None
    }
    absent = [name for name, n in ours.items() if n is None]
    assert not [name for name in absent if name in known]


def test_no_number_stands_for_two_calls(arch):
    numbers = [n for name in confine._NUMBERS if (n := number(name, arch)) is not None]
    assert len(numbers) == len(set(numbers))
    assert max(numbers) <= confine._NEWEST


def test_what_a_program_is_refused(arch):
    program = confine.program_filter(arch)

    def ask(name, *arguments):
        return verdict(program, number(name, arch), arguments, ARCHES[arch])

    for name in ("ptrace", "unshare", "mount", "socket", "bpf", "io_uring_setup", "memfd_create", "shmget"):
        assert ask(name) == refusal(errno.EPERM), name
    assert ask("clone3") == refusal(errno.ENOSYS)
    assert ask("clone", 17) == ALLOW  # a plain fork
    assert ask("clone", 17 | confine.CLONE_NEWUSER) == refusal(errno.EPERM)
    assert ask("prlimit64", 0, 7) == ALLOW
    assert ask("prlimit64", 1, 7) == refusal(errno.EPERM)
    assert ask("fcntl", 3, 3) == ALLOW
    assert [ask("fcntl", 3, command) for command in (8, 10, 15)] == [refusal(errno.EPERM)] * 3
    assert ask("ioctl", 0, 0x5412) == refusal(errno.EPERM)


def test_what_a_child_without_namespaces_is_refused_too(arch):
    program = confine.child_filter(arch)

    def ask(name, *arguments):
        return verdict(program, number(name, arch), arguments, ARCHES[arch])

    assert ask("clone", 17) == refusal(errno.EPERM)
    assert ask("clone", confine.CLONE_THREAD | 0x3D0F00) == ALLOW
    assert ask("prctl", confine.PR_SET_PDEATHSIG) == refusal(errno.EPERM)
    assert ask("prctl", 15) == ALLOW  # PR_SET_NAME
    for name in ("execve", "kill", "tgkill", "fchmodat", "utimensat", "truncate", "pidfd_send_signal"):
        assert ask(name) == refusal(errno.EPERM), name


@pytest.mark.parametrize("make", [confine.program_filter, confine.child_filter])
def test_calls_by_other_tables_and_later_ones(make, arch):
    program, own = make(arch), ARCHES[arch]
    assert verdict(program, 0, (), own) == ALLOW
    assert verdict(program, confine._NEWEST, (), own) == ALLOW
    for later in (confine._NEWEST + 1, 462, 100_000):
        assert verdict(program, later, (), own) == refusal(errno.ENOSYS)
    # x32: the same table with a bit set; 32-bit: another table altogether
    assert verdict(program, X32 | number("execve", arch), (), own) == refusal(errno.ENOSYS)
    assert verdict(program, 0, (), I386) == KILL
    other = next(value for name, value in ARCHES.items() if name != arch)
    assert verdict(program, 0, (), other) == KILL


@pytest.mark.parametrize(("top", "expected"), [(0, ALLOW), (1 << 32, ALLOW)])
def test_arguments_are_judged_by_their_low_half_as_the_kernel_reads_them(top, expected, arch):
    # The kernel takes these arguments as 32-bit values: what stands above makes no difference to it.
    program = confine.program_filter(arch)
    assert verdict(program, number("fcntl", arch), (3, 3 | top), ARCHES[arch]) == expected
    assert verdict(program, number("fcntl", arch), (3, 8 | top), ARCHES[arch]) == refusal(errno.EPERM)
