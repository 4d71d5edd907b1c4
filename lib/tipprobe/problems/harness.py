"""Runs a program and the tests that must share its process: source for the sandbox, which imports nothing of
this package (`tipprobe.problems.inprocess.guarded_source`).

It runs in a namespace that no module holds, with builtins of its own.  Everything the tests rely on is
imported and remembered before the program is loaded: what the program rebinds then is put back, what it
rebinds while the tests run is noticed at the end.  Program and tests have a namespace each: the tests see
what the program defined, the program sees nothing of the tests.  Only this file, which knows a token, says
how it went.  A program that walks the frames below it, or the heap, can still find token and tests: a process
cannot keep a secret from itself.
"""

import builtins
import contextlib
import importlib
import os
import sys
import traceback
import types


def run(program, tests, token, guarded, entry_point, imports=()):
    """Load `program`, run `tests` on it, and print ``<token> <outcome> <detail>`` as a line of its own.

    Outcomes: ``passed``, ``wrong_output`` (an assertion failed), ``runtime_error``, ``compile_error``,
    ``missing_library`` (the detail is the module's name), ``left_early``, ``no_tests``, ``tampered``.

    Args:
        program: source that a model wrote.
        tests: the benchmark's source.
        token: says that a line comes from here.
        guarded: names of the modules that the tests use.
        entry_point: the function under test, which may be called like a builtin.
        imports: statements of the tests.  The benchmark runs program and tests as one file, so the program
            finds what they import.
    """
    write, fail = os.write, traceback.print_exc

    def say(outcome, detail=""):
        for stream in (sys.stdout, sys.__stdout__):
            with contextlib.suppress(BaseException):
                stream.flush()
        line = " ".join([token, outcome, *detail.split()])[:500]
        write(1, f"\n{line}\n".encode("utf-8", "backslashreplace"))

    memory = Memory(["builtins", *guarded])
    module = types.ModuleType("candidate")
    vars(module)["__builtins__"] = builtins  # not those of this file
    sys.modules["candidate"] = module
    outcome = "compile_error"
    try:
        code = compile(program, "candidate.py", "exec", dont_inherit=True)
        outcome = ""
        for statement in imports:
            with contextlib.suppress(Exception):  # the tests will say so
                exec(statement, module.__dict__)
        exec(code, module.__dict__)
        memory.restore()
        namespace = namespace_for_tests(module, entry_point)
        exec(compile(tests, "tests.py", "exec", dont_inherit=True), namespace)
    except BaseException as error:
        changed = memory.changes(module.__dict__)
        memory.restore()
        fail()
        detail = traceback.format_exception_only(error)[-1].strip()
        if isinstance(error, ModuleNotFoundError) and error.name:
            outcome, detail = "missing_library", error.name.partition(".")[0]
        elif type(error).__name__ == "NoTestsRan":
            outcome = "no_tests"
        elif type(error).__name__ == "Tampered":
            outcome, detail = "tampered", f"TestCases.{error}"
        elif changed:
            outcome, detail = "tampered", changed
        elif isinstance(error, SystemExit):
            outcome = "left_early"
        elif isinstance(error, AssertionError):
            outcome = "wrong_output"
        say(outcome or "runtime_error", detail)
        raise SystemExit(1) from None
    changed = memory.changes(module.__dict__)
    memory.restore()
    say(*(("tampered", changed) if changed else ("passed",)))
    if changed:
        raise SystemExit(1)


class Memory:
    """What modules and the classes of ``unittest`` were like before the program was loaded."""

    def __init__(self, names):
        self.modules = {}
        for name in names:
            try:
                self.modules[name] = importlib.import_module(name)
            except Exception:  # whoever needs it will say so
                continue
        if "unittest" in self.modules:
            family = {n: m for n, m in sys.modules.items() if n.split(".")[0] == "unittest"}
            self.modules |= family
        self.places = [(module, True, remembered(functions(module))) for module in self.modules.values()]
        classes = {
            value: None
            for name, module in self.modules.items()
            if name.split(".")[0] == "unittest"
            for value in vars(module).values()
            if isinstance(value, type) and value.__module__.split(".")[0] == "unittest"
        }
        self.places += [(cls, False, remembered(vars(cls))) for cls in classes]

    def differences(self):
        """Yield (owner, name, value before or None, what its function was like, value now or None) of
        everything that was rebound, or whose code was replaced."""
        for owner, is_module, before in self.places:
            now = vars(owner)
            for name, (value, inside) in before.items():
                replaced = any(a is not b for a, b in zip(inside, inside_of(value), strict=True))
                if replaced or now.get(name) is not value:
                    yield owner, name, value, inside, now.get(name)
            if not is_module:
                for name in [name for name in now if name not in before and name not in CACHES]:
                    yield owner, name, None, (), now[name]

    def changes(self, namespace):
        """Return the first name that the program rebound, ``""`` if there is none.

        Beyond builtins and unittest only replaced code and what the program itself defined count: libraries
        rebind, too.
        """
        for owner, name, before, _, now in self.differences():
            where = (
                getattr(owner, "__module__", owner.__name__) if isinstance(owner, type) else owner.__name__
            )
            ours = where.split(".")[0] in ("builtins", "unittest")
            if ours or now is before or getattr(now, "__globals__", None) is namespace:
                return f"{where}.{name}"
        return ""

    def restore(self):
        """Put everything back."""
        sys.settrace(None)
        sys.setprofile(None)
        for owner, name, before, inside, now in list(self.differences()):
            if before is None and not inside:
                delattr(owner, name)
                continue
            if now is not before:
                setattr(owner, name, before)
            if inside:
                function = function_in(before)
                function.__code__, function.__defaults__, function.__kwdefaults__ = inside
        sys.modules.update(self.modules)


def namespace_for_tests(module, entry_point):
    """Return globals for the tests: what the program defined, apart from shadows of builtins other than
    `entry_point`.  It goes by the program's name, so that tests can patch what the program uses."""
    vars(module)["__builtins__"] = builtins
    shadows = {name for name in vars(builtins) if not name.startswith("__")} - {entry_point}
    return {name: value for name, value in vars(module).items() if name not in shadows}


#: Attributes that classes get by being used.
CACHES = frozenset({"_abc_impl", "__abstractmethods__", "_classSetupFailed", "_class_cleanups"})


def functions(module):
    """Return what can be called in a module; the rest is state, which may change."""
    return {name: value for name, value in vars(module).items() if callable(value)}


def remembered(names):
    """Return {name: (value, what its function is like)}."""
    return {name: (value, inside_of(value)) for name, value in names.items()}


def function_in(value):
    """Return the function written in Python that `value` is or wraps, None if there is none."""
    if type(value) in (staticmethod, classmethod):
        value = value.__func__
    elif type(value) is property:
        value = value.fget
    return value if type(value) is types.FunctionType else None


def inside_of(value):
    """Return what a function can have replaced without being another object, () for anything else."""
    function = function_in(value)
    return () if function is None else (function.__code__, function.__defaults__, function.__kwdefaults__)
