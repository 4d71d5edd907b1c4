"""Taking rights away from a process: namespaces, Landlock and seccomp, on Linux (x86-64, aarch64), by ctypes.

Each function does one layer and raises `OSError` where the kernel (or the container around it) refuses; the
caller decides what that means.  Nothing here needs root, a set-uid helper or a library.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable

# Written for speed of import and against rebinding: plain os, no pathlib.

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
_fork = ctypes.PyDLL(None, use_errno=True).fork  # keeps the interpreter's lock, as a fork must

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
CLONE_THREAD = 0x10000
NEW_NAMESPACE = 0x7E020000  # every CLONE_NEW* flag that clone takes

NOBODY = 65534


def check(result: int, what: str) -> int:
    """Return a system call's result; OSError with its errno where it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, *args: int | bytes | None) -> int:
    """Call the kernel directly; integers are passed as 64-bit values."""
    values = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return check(libc.syscall(ctypes.c_long(number), *values), f"system call {number}")


def prctl(option: int, value: int) -> None:
    """Set a property of this process."""
    check(libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def fork() -> int:
    """Fork this process, which must have one thread, without the hooks that Python modules leave for it.

    Those of `random` and `threading` reseed and renew what a child of a supervisor can use as it is; together
    they make a fork half as dear again.  A program's own `os.fork` runs them.
    """
    return check(_fork(), "fork")


# --- capabilities -------------------------------------------------------------------------------------------


def drop_capabilities() -> None:
    """Give up every capability, and any chance of getting one back by executing a file."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    check(libc.capset(header, bytes(24)), "capset")


# --- namespaces ---------------------------------------------------------------------------------------------


def enter_namespaces(map_ids: bool = True) -> None:
    """Move this process (single-threaded) into new user, network, ipc and uts namespaces.

    Its next child is process 1 of a new pid namespace.  As root, `NOBODY` is mapped too, so that programs
    need not run as root (whose process limit the kernel does not enforce).
    """
    uid, gid = os.getuid(), os.getgid()
    reader, writer = os.pipe()
    mapper = 0
    if uid == 0 and map_ids:  # only a process outside may map a second user
        parent = os.getpid()
        mapper = os.fork()
        if mapper == 0:
            try:
                os.close(writer)
                if os.read(reader, 1):
                    _write(f"/proc/{parent}/uid_map", f"0 0 1\n{NOBODY} {NOBODY} 1\n")
                    _write(f"/proc/{parent}/gid_map", f"0 0 1\n{NOBODY} {NOBODY} 1\n")
                os._exit(0)
            except OSError:
                os._exit(1)
    flags = CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWPID
    try:
        check(libc.unshare(flags), "new namespaces")
        if mapper:
            os.write(writer, b"g")
    finally:
        os.close(reader)
        os.close(writer)
        mapped = bool(mapper) and os.waitpid(mapper, 0)[1] == 0
    if not mapped:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1\n")
        _write("/proc/self/gid_map", f"{gid} {gid} 1\n")


def new_pid_namespace(own: int) -> None:
    """Let this process's next child be process 1 of a new pid namespace (`own`: descriptor of this one's)."""
    check(libc.setns(own, CLONE_NEWPID), "return to own pid namespace")
    check(libc.unshare(CLONE_NEWPID), "new pid namespace")


def open_pid_namespace() -> int:
    """Return a descriptor of this process's pid namespace."""
    return os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)


MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18
MNT_DETACH = 2
_ST_FLAGS = ((1, 1), (2, 2), (4, 4), (8, 8), (1024, 1024), (2048, 2048), (4096, 1 << 21))  # statvfs -> mount


def build_root(
    place: str, readable: list[str], hidden: list[str], scratch_bytes: int
) -> tuple[list[str], dict[str, str]]:
    """Replace the file system by one that holds `readable` (read-only), /proc, /dev and scratch space.

    Args:
        place: an existing folder, used as mount point until the old root is gone.
        readable: folders and files of the old root.
        hidden: real paths of what is left out of them.
        scratch_bytes: size of the memory file system behind /box, /tmp and /dev/shm.

    Returns:
        The folders that can be written to, the working directory first; and what could not be provided, with
        the reason.
    """
    missing = {}
    writable = []
    check(libc.unshare(CLONE_NEWNS), "new mount namespace")
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    _mount("root", place, "tmpfs", MS_NOSUID, "mode=0755,size=1m")
    for path in readable:
        if os.path.islink(path):
            _make_parents(place, path)
            os.symlink(os.readlink(path), place + path)
        elif os.path.exists(path) and not os.path.exists(place + path) and not _is_hidden(path, hidden):
            _bind_read_only(path, place)
    for path in _hidden_below(readable, hidden):
        if os.path.isdir(place + path):
            _mount("hidden", place + path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "mode=0000,size=4k")
        elif os.path.exists(place + path):
            _mount("/dev/null", place + path, None, MS_BIND)
    for device in ("null", "zero", "full", "random", "urandom"):
        _make_parents(place, f"/dev/{device}")
        _write(f"{place}/dev/{device}", "")
        _mount(f"/dev/{device}", f"{place}/dev/{device}", None, MS_BIND)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{place}/dev/{name}")
    os.symlink("/proc/self/fd", f"{place}/dev/fd")
    os.makedirs(f"{place}/proc", exist_ok=True)
    try:
        _mount("proc", f"{place}/proc", "proc", MS_NOSUID | MS_NODEV)
    except OSError as error:
        missing["/proc"] = (
            f"{error.strerror}: no /dev/stdin for programs, and memory is limited for each process alone"
        )
    os.mkdir(f"{place}/scratch")
    options = f"mode=0755,size={scratch_bytes},nr_inodes=8192"
    _mount("scratch", f"{place}/scratch", "tmpfs", MS_NOSUID | MS_NODEV, options)
    for name, target in (("box", "/box"), ("tmp", "/tmp"), ("shm", "/dev/shm")):
        if any(path == target or path.startswith(target + "/") for path in readable):
            continue  # an interpreter that lives below /tmp must stay visible
        writable.append(target)
        os.mkdir(f"{place}/scratch/{name}")
        if not os.path.isdir(place + target):
            os.makedirs(place + target)
        _mount(f"{place}/scratch/{name}", place + target, None, MS_BIND)
    os.chdir(place)
    syscall(_NUMBERS["pivot_root"][_column()], b".", b".")
    check(libc.umount2(b".", MNT_DETACH), "leave the old root")
    os.chdir("/")
    _remount_read_only("/")
    return writable, missing


def holds_any(folder: str, paths: Iterable[str]) -> bool:
    """Whether one of `paths` is, or lies below, `folder` (a real path)."""
    return any(_is_hidden(path, [folder]) for path in paths)


def _is_hidden(path: str, hidden: Iterable[str]) -> bool:
    """Whether `path` is one of `hidden` (real paths) or lies below one."""
    real = os.path.realpath(path)
    return any(real == one or real.startswith(one + "/") for one in hidden)


def _hidden_below(paths: Iterable[str], hidden: Iterable[str]) -> list[str]:
    """Return the names that `hidden` (real paths) have below `paths`, which may be links themselves."""
    names = []
    for path in paths:
        real = os.path.realpath(path)
        names += [path + one[len(real) :] for one in hidden if one.startswith(real + "/")]
    return names


def _bind_read_only(path: str, place: str) -> None:
    target = place + path
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        _make_parents(place, path)
        _write(target, "")
    _mount(path, target, None, MS_BIND)  # not MS_REC: what is mounted below stays out
    _remount_read_only(target)


def _remount_read_only(target: str) -> None:
    """Make a mount read-only; flags it already has are locked inside a user namespace and must be kept."""
    have = os.statvfs(target).f_flag
    kept = sum(mount for stat, mount in _ST_FLAGS if have & stat)
    _mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | kept)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    result = libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() if options else None,
    )
    check(result, f"mount {target}")


def _make_parents(place: str, path: str) -> None:
    os.makedirs(place + os.path.dirname(path), exist_ok=True)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


# --- Landlock -----------------------------------------------------------------------------------------------

_LL_CREATE, _LL_ADD, _LL_RESTRICT = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


def landlock_version() -> int:
    """Version of the kernel's Landlock interface; OSError where there is none."""
    return syscall(_LL_CREATE, None, 0, 1)


def landlock_ruleset(readable: Iterable[str], writable: Iterable[str], hidden: list[str]) -> int:
    """Return a descriptor of a rule set: read and execute below `readable`, everything below `writable`.

    `hidden` (real paths) is left out of `readable`: the names of the files there can be seen, their content
    cannot, since rules only ever add rights.  TCP is refused (kernel 6.7 and later), signals and abstract
    sockets stay inside (6.12 and later).
    """
    version = landlock_version()
    files = (1 << 13) - 1
    if version >= 2:
        files |= _REFER
    if version >= 3:
        files |= _TRUNCATE
    if version >= 5:
        files |= _IOCTL_DEV
    attributes = struct.pack("=Q", files)
    if version >= 4:
        attributes += struct.pack("=Q", 3)  # bind and connect over TCP
    if version >= 6:
        attributes += struct.pack("=Q", 3)  # abstract unix sockets, signals
    ruleset = syscall(_LL_CREATE, attributes, len(attributes), 0)
    whole, listed = _split_around(readable, hidden)
    for paths, rights in (
        (whole, _EXECUTE | _READ_FILE | _READ_DIR),
        (listed, _READ_DIR),
        (writable, files & ~_IOCTL_DEV),
    ):
        for path in paths:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            allowed = rights if os.path.isdir(path) else rights & _FILE_RIGHTS
            syscall(_LL_ADD, ruleset, 1, struct.pack("=Qi", allowed, fd), 0)
            os.close(fd)
    return ruleset


def _split_around(paths: Iterable[str], hidden: list[str]) -> tuple[list[str], list[str]]:
    """Return what of `paths` can be given whole, and the folders on the way to something hidden."""
    whole, listed, left = [], [], list(paths)
    while left:
        path = left.pop()
        if _is_hidden(path, hidden):
            continue
        if _hidden_below([path], hidden):
            listed.append(path)
            # Links are left out: whether their targets may be read is up to where those lie.
            left += [entry.path for entry in os.scandir(path) if not entry.is_symlink()]
        else:
            whole.append(path)
    return whole, listed


def landlock_restrict(ruleset: int) -> None:
    """Apply a rule set to this process and its future children."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    syscall(_LL_RESTRICT, ruleset, 0)


# --- seccomp ------------------------------------------------------------------------------------------------

_ARCH = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}.get(platform.machine(), "")
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_NEWEST = 450  # later system calls do not exist for a program: libraries fall back to the older ones

# name: (x86-64, aarch64), None where the architecture has no such call
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # into other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    # namespaces and mounts
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # large kernel interfaces that no graded program needs
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "lookup_dcookie": (212, 18),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "uselib": (134, None),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "personality": (135, 92),
    "capset": (126, 91),
    # memory and queues that outlive a process or escape its limits
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "msgctl": (71, 187),
    "semget": (64, 190),
    "semctl": (66, 191),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    # network (socketpair stays: asyncio and multiprocessing need it)
    "socket": (41, 198),
    # other people's files: Landlock does not cover modes, owners, times and attributes
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "truncate": (76, 45),
    "mknod": (133, None),
    "mknodat": (259, 33),
    # new processes and signals
    "clone": (56, 220),
    "clone3": (435, 435),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    # some uses only
    "fcntl": (72, 25),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "ioctl": (16, 29),
}
_NAMES = list(_NUMBERS)
_ALWAYS = _NAMES[: _NAMES.index("chmod")]
_FOREIGN_FILES = _NAMES[_NAMES.index("chmod") : _NAMES.index("clone")]
_NEW_PROCESSES = ["fork", "vfork", "execve", "execveat"]
_SIGNALS = ["kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"]

_LOAD, _JEQ, _JGT, _JSET, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_NUMBER_AT, _ARCH_AT = 0, 4


def program_filter(arch: str = _ARCH) -> bytes:
    """Return the filter (BPF) that a program and its supervisor run under."""
    conditions = [
        (
            "clone3",
            None,
            (),
            errno.ENOSYS,
        ),  # its flags lie in memory, out of a filter's sight; glibc uses clone then
        ("clone", 0, _mask(NEW_NAMESPACE), errno.EPERM),
        ("prlimit64", 0, "nonzero", errno.EPERM),  # other processes' limits
        ("fcntl", 1, (8, 10, 15), errno.EPERM),  # F_SETOWN, F_SETSIG, F_SETOWN_EX: signals to anybody
        ("ioctl", 1, (0x5412, 0x541C), errno.EPERM),  # TIOCSTI, TIOCLINUX: typing into a terminal
    ]
    return _assemble(_ALWAYS, conditions, arch)


def child_filter(arch: str = _ARCH) -> bytes:
    """Return the filter added in each child where there are no namespaces to keep it apart.

    No new processes, no signals, no changes of modes, owners and times; threads are allowed.
    """
    conditions = [
        ("clone", 0, _mask(CLONE_THREAD, want=True), errno.EPERM),
        ("prctl", 0, (PR_SET_PDEATHSIG,), errno.EPERM),
    ]
    return _assemble(_FOREIGN_FILES + _NEW_PROCESSES + _SIGNALS, conditions, arch)


def install_filter(program: bytes) -> None:
    """Apply a filter to this process and its future children."""
    if not _ARCH:
        raise OSError(errno.ENOSYS, f"no system call table for {platform.machine()}")
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    syscall(_SECCOMP[_ARCH], 1, 0, header)


def _mask(bits: int, want: bool = False) -> tuple[str, int, bool]:
    """Condition on an argument's bits: refused if any is set, or (`want`) if none is."""
    return ("mask", bits, want)


def _assemble(denied: list[str], conditions: list[tuple], arch: str) -> bytes:
    """Translate refused calls and conditions into BPF."""
    column = _column(arch)
    code = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_JEQ, 1, 0, _AUDIT_ARCH.get(arch, 0)),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JGT, 0, 1, _NEWEST),  # also every x32 call, whose numbers begin at 2**30
        (_RETURN, 0, 0, _refuse(errno.ENOSYS)),
    ]
    for name, argument, test, number in conditions:
        call = _NUMBERS[name][column]
        if call is None:
            continue
        block = _condition(argument, test, number)
        code += [(_JEQ, 0, len(block), call), *block]
    calls = [_NUMBERS[name][column] for name in denied if _NUMBERS[name][column] is not None]
    for start in range(0, len(calls), 200):  # jumps reach 255 instructions
        part = calls[start : start + 200]
        code += [(_JEQ, len(part) - n, 0, call) for n, call in enumerate(part)]
        code += [(0x05, 0, 0, 1), (_RETURN, 0, 0, _refuse(errno.EPERM))]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in code)


def _condition(argument: int | None, test: object, number: int) -> list[tuple[int, int, int, int]]:
    """Instructions that refuse or allow a call, which already matched, by the low 32 bits of one argument."""
    refuse, allow = (_RETURN, 0, 0, _refuse(number)), (_RETURN, 0, 0, _ALLOW)
    if argument is None:
        return [refuse]
    load = (_LOAD, 0, 0, 16 + 8 * argument)
    if test == "nonzero":
        return [load, (_JEQ, 1, 0, 0), refuse, allow]
    if test[0] == "mask":
        _, bits, want = test
        return [load, (_JSET, *((1, 0) if want else (0, 1)), bits), refuse, allow]
    block = [load]
    for left, value in zip(range(len(test), 0, -1), test, strict=True):
        block.append((_JEQ, left, 0, value))
    return [*block, allow, refuse]


def _column(arch: str = _ARCH) -> int:
    return 0 if arch == "x86_64" else 1


def _refuse(number: int) -> int:
    return 0x00050000 | number
