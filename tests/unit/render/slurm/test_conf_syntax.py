"""The slurm.conf codec parses handwritten files, round-trips its own output and refuses unsafe values."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.render.slurm import conf_syntax
from headway.render.slurm.conf_syntax import ConfLine

KEYS = st.text(string.ascii_letters + string.digits + "_.", min_size=1, max_size=12)
VALUES = st.text(
    st.characters(exclude_categories=("C", "Zl", "Zp"), exclude_characters='#"\\'), min_size=1, max_size=20
).filter(lambda text: all(c == " " or not c.isspace() for c in text))
COMMENTS = (
    st.text(st.characters(categories=("L", "N", "P")), max_size=20).map(str.strip).filter(lambda c: "\\" not in c)
)
PATHS = st.text(string.ascii_letters + "/._-", min_size=1, max_size=20)
LINES = st.one_of(
    st.builds(ConfLine, pairs=st.lists(st.tuples(KEYS, VALUES), max_size=4).map(tuple), comment=COMMENTS),
    st.builds(ConfLine, include=PATHS, comment=COMMENTS),
)


@given(st.lists(LINES, max_size=6))
def test_written_lines_parse_back_unchanged(lines: list[ConfLine]) -> None:
    assert list(conf_syntax.parse_lines(conf_syntax.format_lines(lines))) == lines


@given(st.text(max_size=200))
def test_any_text_formats_stably_or_is_refused(text: str) -> None:
    try:
        once = conf_syntax.format_lines(conf_syntax.parse_lines(text))
    except ValueError:
        return
    assert conf_syntax.format_lines(conf_syntax.parse_lines(once)) == once


@given(KEYS, st.text(max_size=30))
def test_value_cannot_add_line_or_key(key: str, text: str) -> None:
    try:
        written = conf_syntax.format_lines([ConfLine(((key, text), ("After", "1")))])
    except ValueError:
        return
    assert written.count("\n") == 1
    assert conf_syntax.parse_lines(written)[0].pairs == ((key, text), ("After", "1"))


def test_parses_handwritten_slurm_conf() -> None:
    text = (
        "# a site's file\r\n"
        "clustername=Lab   # trailing words = no pair\n"
        "SlurmctldHost = head(10.0.0.1)\n"
        "NodeName=n[1-3] CPUs=4 \\\n   RealMemory=1000 State=UNKNOWN\n"
        'PartitionName=a Nodes=ALL TRESBillingWeights="CPU=1, Mem=2" Default=YES\n'
        "include /etc/slurm/extra.conf\n"
        "MailProg=/bin/\\#mail\n"
    )
    lines = conf_syntax.parse_lines(text)
    assert lines[0] == ConfLine(comment="a site's file")
    assert lines[1] == ConfLine((("clustername", "Lab"),), comment="trailing words = no pair")
    assert lines[2].get("slurmctldhost") == "head(10.0.0.1)"
    assert lines[3].pairs == (("NodeName", "n[1-3]"), ("CPUs", "4"), ("RealMemory", "1000"), ("State", "UNKNOWN"))
    assert lines[4].get("TRESBILLINGWEIGHTS") == "CPU=1, Mem=2"
    assert lines[5].include == "/etc/slurm/extra.conf"
    assert lines[6].get("MailProg") == "/bin/#mail"
    assert conf_syntax.settings(lines) == {
        "clustername": "Lab",
        "slurmctldhost": "head(10.0.0.1)",
        "mailprog": "/bin/#mail",
    }


def test_last_value_of_repeated_key_wins() -> None:
    assert ConfLine((("A", "1"), ("a", "2"))).get("A") == "2"


@pytest.mark.parametrize("text", ["justwords", "Key", "=value", 'Key="open', "Key=a b", "Key="])
def test_parse_error_names_invalid_line(text: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        conf_syntax.parse_lines("A=1\n" + text + "\n")


@pytest.mark.parametrize("text", ["a\nb", "a#b", 'a"b', "a\\", "", "a\rb", "a\x00b", "a\u2028b", "a\x85b"])
def test_refuses_value_that_would_break_out_of_line(text: str) -> None:
    with pytest.raises(ValueError, match="a Slurm value"):
        conf_syntax.format_lines([ConfLine((("Key", text),))])


def test_refuses_unsafe_comments_keys_and_includes() -> None:
    with pytest.raises(ValueError, match="comment"):
        conf_syntax.format_lines([ConfLine(comment="a\nb")])
    with pytest.raises(ValueError, match="key"):
        conf_syntax.format_lines([ConfLine((("a b", "1"),))])
    with pytest.raises(ValueError, match="Include"):
        conf_syntax.format_lines([ConfLine(include="a b")])
