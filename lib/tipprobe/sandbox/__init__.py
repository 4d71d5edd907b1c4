"""Running untrusted programs, and comparing what they give on the caller's side.

>>> with Sandbox() as sandbox:
...     runs = sandbox.run([Job("print(int(input()) * 2)", inputs=("21", "4"))])
"""

from tipprobe.sandbox.compare import canonical, grading_flag, is_correct, vote_key
from tipprobe.sandbox.extract import Extraction, extract_code, program_of
from tipprobe.sandbox.isolation import IsolationError, IsolationReport
from tipprobe.sandbox.pool import Sandbox
from tipprobe.sandbox.types import Executor, Job, Limits, Run, StopWhen, first_failure, first_time_limit
from tipprobe.sandbox.worker.literals import decode_arguments, decode_value, encode_value

__all__ = [
    "Executor",
    "Extraction",
    "IsolationError",
    "IsolationReport",
    "Job",
    "Limits",
    "Run",
    "Sandbox",
    "StopWhen",
    "canonical",
    "decode_arguments",
    "decode_value",
    "encode_value",
    "extract_code",
    "first_failure",
    "first_time_limit",
    "grading_flag",
    "is_correct",
    "program_of",
    "vote_key",
]
