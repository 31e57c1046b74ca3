"""Each row of a CSV file has an answer in its place: figures, or the reason why there are none."""

from __future__ import annotations

from importlib.resources import files

import pytest

from headway.errors import Refused
from headway.sizing.answered_rows import AnsweredRow, answer_rows
from headway.sizing.parameters import shipped_calibration

HEADING = "src,model,n,d,L,seq,gpus,gpu,mem,tp,pp,vp,cp,mbs,m,gbs,recompute,shard,vocab,kvf,ffn"
GOOD = "x,own,8e9,4096,32,8192,8,h100,80,1,1,1,1,1,1,8,full,fsdp,128256,0.25,swiglu"


def answers(*rows: str, heading: str = HEADING) -> list[AnsweredRow]:
    return answer_rows("\n".join([heading, *rows]).encode(), "runs.csv", shipped_calibration().parameters)


def test_published_rows_have_all_figures() -> None:
    data = files("headway.sizing").joinpath("data/published_runs.csv").read_bytes()
    found = answer_rows(data, "runs.csv", shipped_calibration().parameters)
    assert [one.row for one in found] == list(range(1, 149))
    assert not [one.error for one in found if one.error]
    assert all(
        one.fits and one.tok_s_gpu and one.memory_bytes == pytest.approx(sum((one.memory or {}).values()), abs=9)
        for one in found
    )


def test_known_sources_need_no_column_for_attention() -> None:
    with_column = files("headway.sizing").joinpath("data/published_runs.csv").read_text(encoding="utf-8")
    without = "\n".join(line.rpartition(",")[0] for line in with_column.splitlines())
    parameters = shipped_calibration().parameters
    one, other = (answer_rows(text.encode(), "runs.csv", parameters) for text in (with_column, without))
    assert [row.tok_s_gpu for row in one] == [row.tok_s_gpu for row in other]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"gpu": "v100"}, "gpu: 'v100' is not known; known are a100"),
        ({"gpu": ""}, "gpu: 'nothing' is not known"),
        ({"seq": "many"}, "seq: 'many' is not a number"),
        ({"seq": "-1"}, "seq: -1 is out of range"),
        ({"seq": "nan"}, "seq: nan is out of range"),
        ({"gpus": "0"}, "gpus: 0 is not a whole number of at least 1"),
        ({"gpus": "1.5"}, "gpus: 1.5 is not a whole number"),
        ({"gpus": ""}, "gpus: is missing"),
        ({"tp": "3"}, "gpus: 8 is not a multiple of tp x pp x cp = 3"),
        ({"recompute": "some"}, "recompute: 'some' is not one of none, selective, full"),
        ({"shard": "stage9"}, "shard: 'stage9' is not one of"),
        ({"d": "", "n": ""}, "model: give d and L"),
        ({"d": "1e300"}, "d: 1e300 is out of range"),
        ({"pp": "64", "gpus": "64"}, "pp: 64 stages are more than 32 layers"),
    ],
)
def test_a_row_that_cannot_be_answered_says_why(change: dict[str, str], error: str) -> None:
    cells = dict(zip(HEADING.split(","), GOOD.split(","), strict=True)) | change
    found = answers(GOOD, ",".join(cells.values()), GOOD)
    assert [bool(one.error) for one in found] == [False, True, False]
    assert found[1].error.startswith(error)
    assert found[1].tok_s_gpu is None


def test_short_and_long_rows_and_other_spellings() -> None:
    found = answers(
        "own,4096,32,8192,8,H100",
        "own,4096",
        "own,4096,32,8192,8,H100,more,cells",
        "",
        heading="model,hidden,layers,seq_len,GPUs,GPU",
    )
    assert [bool(one.error) for one in found] == [False, True, False]


def test_known_models_need_no_shape() -> None:
    found = answers("Mixtral 8x7B,4096,64,h100,8", "llama3-8b,4096,8,b200,1", heading="model,seq,gpus,gpu,ep")
    assert not [one.error for one in found if one.error]
    assert "no published run of a mixture of experts" in found[0].outside
    assert found[1].band is not None
    assert found[1].band > 0.2  # no published run on this GPU


def test_semicolons_and_a_byte_order_mark() -> None:
    data = ("\ufeff" + HEADING + "\r\n" + GOOD + "\r\n").replace(",", ";").encode()
    (found,) = answer_rows(data, "runs.csv", shipped_calibration().parameters)
    assert found.error == ""


@pytest.mark.parametrize("data", [b"", b" \n", b"\xff\xfe\x00"])
def test_what_is_no_csv_file_is_refused(data: bytes) -> None:
    with pytest.raises(Refused, match=r"runs\.csv"):
        answer_rows(data, "runs.csv", shipped_calibration().parameters)


def test_more_parameters_than_a_dense_model_has_are_a_mixture() -> None:
    cells = dict(zip(HEADING.split(","), GOOD.split(","), strict=True))
    dense, mixture = answers(GOOD, ",".join((cells | {"model": "own-8x7b", "n": "46.7e9", "gpus": "64"}).values()))
    assert "no published run of a mixture of experts" not in dense.outside
    assert "no published run of a mixture of experts" in mixture.outside
    assert (mixture.tok_s_gpu or 0) < 0.8 * (dense.tok_s_gpu or 0)


@pytest.mark.parametrize("column", ["recompute", "shard"])
def test_other_words_for_layouts(column: str) -> None:
    words = {"recompute": ("yes", "block", "op", ""), "shard": ("ZeRO-3", "hsdp", "zero_2", "distributed-optimizer")}[
        column
    ]
    cells = dict(zip(HEADING.split(","), GOOD.split(","), strict=True))
    assert not [
        one.error for one in answers(*[",".join((cells | {column: word}).values()) for word in words]) if one.error
    ]
