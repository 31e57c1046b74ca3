"""Answers to the rows of a CSV file: throughput and memory of each described training."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass

from headway.errors import Refused
from headway.sizing.accuracy import expected_error
from headway.sizing.memory import training_memory
from headway.sizing.parameters import StepParameters
from headway.sizing.run_rows import RowError, training_run
from headway.sizing.step_time import tokens_per_second_per_gpu

MAX_BYTES = 20_000_000


@dataclass(frozen=True, slots=True)
class AnsweredRow:
    """The answer to one row. `error`: why there is none; then the figures are None. Memory: bytes of one GPU by part."""

    row: int  # 1 is the first after the heading
    model: str
    tok_s_gpu: float | None
    memory_bytes: float | None
    memory: dict[str, float] | None
    fits: bool | None
    band: float | None  # half width, as a share of the throughput
    outside: tuple[str, ...]  # what the published runs do not contain
    error: str


def answer_rows(data: bytes, name: str, parameters: StepParameters) -> list[AnsweredRow]:
    """Returns an answer for each row of a CSV file, in its order. Raises Refused if the file is no CSV file in UTF-8 with a
    heading."""
    if len(data) > MAX_BYTES:
        raise Refused(f"{name}: larger than {MAX_BYTES // 1_000_000} MB", hint="divide the file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused(f"{name}: not a text file in UTF-8", hint="give a CSV file") from None
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise Refused(f"{name}: the file is empty", hint="the first line names the columns: model,d,L,seq,gpus,gpu")
    heading = lines[0]
    delimiter = max(",;\t", key=heading.count)
    try:
        rows = list(csv.DictReader(lines, delimiter=delimiter))
    except csv.Error as error:
        raise Refused(f"{name}: {error}", hint="give a CSV file, a row a line") from None
    return [_answer(number, row, parameters) for number, row in enumerate(rows, 1)]


def _answer(number: int, row: dict[str, str], parameters: StepParameters) -> AnsweredRow:
    model = row.get("model") or ""
    try:
        run = training_run(row)
    except RowError as error:
        return AnsweredRow(number, model, None, None, None, None, None, (), str(error))
    speed = tokens_per_second_per_gpu(run, parameters)
    memory = training_memory(run)
    return AnsweredRow(
        number, model, round(speed, 2), round(memory.total), {name: round(value) for name, value in asdict(memory).items()},
        memory.total <= run.gpu.memory_bytes, *expected_error(run), "",
    )  # fmt: skip
