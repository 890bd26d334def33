import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env._data_files import MAX_FILE_BYTES, SUFFIXES, read_data
from agent_env.errors import InvalidSpecError

Written = Callable[[str, str | bytes], Path]

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Writes a file and gives its path."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def said_of(path: Path) -> list[str]:
    """What is wrong with a file, without its name at the start."""
    with pytest.raises(InvalidSpecError) as caught:
        read_data(path)
    problems = [str(problem) for problem in caught.value.problems]
    assert all(problem.startswith(f"{path}: ") for problem in problems)
    return [problem.removeprefix(f"{path}: ") for problem in problems]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", '{"id": "a", "steps": [{"x": 1.5, "ok": true, "none": "é"}]}'),
        (
            "a.json",
            b'\xef\xbb\xbf{"id": "a", "steps": [{"x": 1.5, "ok": true, "none": "\xc3\xa9"}]}',
        ),
        ("a.yaml", "id: a\nsteps:\n- &s {x: 1.5, ok: true, none: é}\n"),
        ("a.yml", "{id: a, steps: [{x: 1.5, ok: true, none: é}]}"),
        ("a.toml", 'id = "a"\n[[steps]]\nx = 1.5\nok = true\nnone = "é"\n'),
    ],
)
def test_every_format_gives_the_same_data(
    written: Written, name: str, content: str | bytes
) -> None:
    assert read_data(written(name, content)) == {
        "id": "a",
        "steps": [{"x": 1.5, "ok": True, "none": "é"}],
    }


@given(JSON_VALUES)
def test_json_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    path = tmp_path_factory.mktemp("json") / "a.json"
    path.write_text(json.dumps(value), encoding="utf-8")

    assert read_data(path) == value


@given(st.sampled_from(sorted(SUFFIXES)), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / f"a{suffix}"
    path.write_bytes(content)

    try:
        data = read_data(path)
    except InvalidSpecError as error:
        said = str(error)
    else:
        said = f"{path}: {json.dumps(data, allow_nan=False)}"
    assert said.startswith(f"{path}: ")
    said.encode()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", '{"id": 1, "id": 2}', "id: is given twice; keep one"),
        ("a.json", '{"steps": [{}, {"x": {"y": 1, "y": 1}}]}', "steps[1].x.y: is given twice"),
        ("a.yaml", "id: 1\nx: 2\nid: 3\n", 'line 3, column 1: the key "id" is given twice'),
        (
            "a.toml",
            "id = 1\nid = 2\n",
            "line 2, column 7: is not TOML: Cannot overwrite a value; a key",
        ),
        ("a.toml", "[a]\n[a]\n", "is given twice, keep one"),
        ("a.json", '{"x": NaN}', "x: a number must be finite, not nan"),
        ("a.json", "[-Infinity]", "[0]: a number must be finite, not -inf"),
        ("a.json", '{"x": 1e999}', "x: a number must be finite, not inf"),
        ("a.yaml", "x: [.nan]", "x[0]: a number must be finite, not nan"),
        ("a.yaml", "x: 1e999", "x: a number must be finite, not inf"),
        ("a.toml", "x = nan", "x: a number must be finite, not nan"),
        ("a.toml", "x = -1e999", "x: a number must be finite, not -inf"),
        ("a.json", '{"x": "\\ud800"}', "x: holds half of a surrogate pair"),
        ("a.json", '{"\\ud800": 1}', "'\\ud800': holds half of a surrogate pair"),
        ("a.yaml", "x: 2026-01-31", "x: JSON has no date; quote it"),
        ("a.yaml", "x: !!binary aGk=", "x: JSON has no bytes"),
        ("a.yaml", "!!set {a, b}", "the file: JSON has no set"),
        ("a.toml", "x = 10:30:00", "x: JSON has no time"),
        ("a.yaml", "1: x", "1: a key must be text, not int; quote it"),
        ("a.yaml", "a: {true: x}", "a.True: a key must be text, not bool"),
        ("a.json", '{"x": 1,\n "y" 2}', "line 2, column 6: is not JSON: Expecting ':'"),
        ("a.json", "", "line 1, column 1: is not JSON"),
        ("a.yaml", "a: [1,\n", "line 2, column 1: is not YAML: expected the node content"),
        ("a.yaml", "a: 1\n--- 2\n", "line 2, column 1: is not YAML: but found another document"),
        (
            "a.yaml",
            "a: !!python/object:os.x {}",
            "line 1, column 4: is not YAML: could not determine",
        ),
        ("a.yaml", "a: \x07", "is not YAML: unacceptable character #x0007"),
        ("a.yaml", "a: 2026-99-99", "can't be read: month must be in 1..12"),
        ("a.toml", "x = ", "end of document: is not TOML: Invalid value"),
        ("a.json", "9" * 5000, "can't be read: Exceeds the limit"),
        ("a.json", b'{"a":\n "caf\xe9"}', "line 2, byte 6: is not UTF-8"),
        ("a.json", "[" * 200_000, "is nested deeper than 100 levels"),
        ("a.json", "[" * 150 + "]" * 150, "is nested deeper than 100 levels"),
        ("a.yaml", "&a [*a]", "is nested deeper than 100 levels"),
        ("a.yaml", "[" * 3_000, "is nested deeper than 100 levels"),
        ("a.toml", "x = " + "[" * 10_000, "is nested deeper than 100 levels"),
        ("a.json", " " * (MAX_FILE_BYTES + 1), "is over the limit of 1,048,576 bytes"),
        ("a.txt", "{}", "unknown suffix '.txt'; known: .json, .toml, .yaml, .yml"),
        ("a.jsn", "{}", "unknown suffix '.jsn': did you mean '.json'? Known:"),
        ("a", "{}", "unknown suffix ''"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_not_plain_data_is_refused_with_place_and_cure(
    written: Written, name: str, content: str | bytes, says: str
) -> None:
    (said,) = said_of(written(name, content))

    assert says in said
    assert len(said) < 600


def test_everything_that_is_not_plain_data_is_listed(written: Written) -> None:
    path = written("a.json", '{"a": NaN, "a": [1, Infinity], "b": {"c": -1e999}}')

    assert [said.partition(":")[0] for said in said_of(path)] == ["a", "a[1]", "b.c"]


def test_aliases_that_multiply_are_refused(written: Written) -> None:
    levels = (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12))

    (said,) = said_of(written("a.yaml", "\n".join(["a0: &a0 [x, x]", *levels])))

    assert "aliases make this too large" in said


def test_a_large_integer_and_a_small_float_are_kept(written: Written) -> None:
    data = read_data(written("a.json", "[123456789012345678901234567890, 5e-324]"))

    assert data == [123456789012345678901234567890, math.ulp(0)]


def test_a_file_that_can_not_be_opened_is_named(tmp_path: Path) -> None:
    assert said_of(tmp_path / "gone.json") == ["can't be read: No such file or directory"]
