"""Runs a program and the tests that must share its process: source for the sandbox, which imports nothing of
this package (`tipprobe.problems.inprocess.guarded_source`).

Everything the tests rely on is imported and remembered before the program is loaded: what the program
rebinds then is put back, what it rebinds while the tests run is noticed at the end, and only this file, which
knows a token, says how it went.  A program that searches the frames below it for that token can still forge
the outcome: a process cannot keep a secret from itself.
"""

import builtins
import contextlib
import importlib
import os
import sys
import traceback
import types


def run(program, tests, token, guarded, entry_point):
    """Load `program`, run `tests` on it, and print ``<token> <outcome> <detail>`` as a line of its own.

    Outcomes: ``passed``, ``wrong_output`` (an assertion failed), ``runtime_error``, ``compile_error``,
    ``missing_library`` (the detail is the module's name), ``left_early``, ``no_tests``, ``tampered``.

    Args:
        program: source that a model wrote.
        tests: the benchmark's source, run in the program's module.
        token: says that a line comes from here.
        guarded: names of the modules that the tests use.
        entry_point: the function under test, which may be called like a builtin.
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
    sys.modules["candidate"] = module
    outcome = "compile_error"
    try:
        code = compile(program, "candidate.py", "exec", dont_inherit=True)
        outcome = ""
        exec(code, module.__dict__)
        memory.restore()
        module = memory.module_for_tests(module, entry_point)
        exec(compile(tests, "tests.py", "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:
        changed = memory.changes(module.__dict__)
        memory.restore()
        fail()
        detail = traceback.format_exception_only(error)[-1].strip()
        if isinstance(error, ModuleNotFoundError) and error.name:
            outcome, detail = "missing_library", error.name.partition(".")[0]
        elif type(error).__name__ == "NoTestsRan":
            outcome = "no_tests"
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
        self.places = [(module, True, functions(module)) for module in self.modules.values()]
        classes = {
            value: None
            for name, module in self.modules.items()
            if name.split(".")[0] == "unittest"
            for value in vars(module).values()
            if isinstance(value, type) and value.__module__.split(".")[0] == "unittest"
        }
        self.places += [(cls, False, dict(vars(cls))) for cls in classes]

    def differences(self):
        """Yield (owner, name, value before or None, value now or None) of everything that was rebound."""
        for owner, is_module, before in self.places:
            now = vars(owner)
            for name, value in before.items():
                if now.get(name) is not value:
                    yield owner, name, value, now.get(name)
            if not is_module:
                for name in [name for name in now if name not in before and name not in CACHES]:
                    yield owner, name, None, now[name]

    def changes(self, namespace):
        """Return the first name that the program rebound, ``""`` if there is none.

        Beyond builtins and unittest only what the program itself defined counts: libraries rebind, too.
        """
        for owner, name, _, now in self.differences():
            where = (
                getattr(owner, "__module__", owner.__name__) if isinstance(owner, type) else owner.__name__
            )
            ours = where.split(".")[0] in ("builtins", "unittest")
            if ours or getattr(now, "__globals__", None) is namespace:
                return f"{where}.{name}"
        return ""

    def restore(self):
        """Put everything back."""
        sys.settrace(None)
        sys.setprofile(None)
        for owner, name, before, _ in list(self.differences()):
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        sys.modules.update(self.modules)

    def module_for_tests(self, module, entry_point):
        """Return the program's module; where it shadows builtins other than `entry_point`, a copy that does
        not."""
        namespace = vars(module)
        namespace["__builtins__"] = builtins
        shadows = {name for name in vars(builtins) if name in namespace and not name.startswith("__")}
        shadows.discard(entry_point)
        if not shadows:
            return module
        tests = types.ModuleType("tests")
        tests.__dict__.update({name: value for name, value in namespace.items() if name not in shadows})
        tests.__dict__["__name__"] = "tests"
        sys.modules["tests"] = tests
        return tests


#: Attributes that classes get by being used.
CACHES = frozenset({"_abc_impl", "__abstractmethods__", "_classSetupFailed", "_class_cleanups"})


def functions(module):
    """Return what can be called in a module; the rest is state, which may change."""
    return {name: value for name, value in vars(module).items() if callable(value)}
