import pytest
from starlette.datastructures import Headers

from agent_env.explorer.security import Access, is_loopback, is_same_origin, local_path

ACCESS = Access(token=None, names=["Episodes.example.org"])


@pytest.mark.parametrize(
    "header",
    [
        "127.0.0.1:8321",
        "127.0.0.1",
        "[::1]:8321",
        "localhost:8321",
        "LOCALHOST",
        "10.1.2.3:80",
        "episodes.example.org",
        "EPISODES.example.org:443",
        "localhost.:8321",
    ],
)
def test_addresses_and_names_of_ours_are_hosts(header: str) -> None:
    assert ACCESS.is_host(header)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "evil.example",
        "evil.example:8321",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "evil.example#127.0.0.1",
        "[::1].evil.example",
        "[",
        "localhost:evil",
        "1",
    ],
)
def test_other_names_are_none_of_our_hosts(header: str) -> None:
    assert not ACCESS.is_host(header)


@pytest.mark.parametrize(
    ("headers", "is_ours"),
    [
        ({"host": "h:1"}, True),
        ({"host": "h:1", "origin": "http://h:1"}, True),
        ({"host": "h", "origin": "https://h"}, True),
        ({"host": "h:1", "origin": "http://h:2"}, False),
        ({"host": "h:1", "origin": "http://evil.example"}, False),
        ({"host": "h:1", "origin": "null"}, False),
        ({"host": "h:1", "origin": ""}, False),
        ({"host": "h:1", "origin": "ftp://h:1"}, False),
        ({"host": "h:1", "origin": "http://[h:1"}, False),
        ({"host": "h:1", "sec-fetch-site": "cross-site"}, False),
        ({"host": "h:1", "sec-fetch-site": "same-site"}, False),
        ({"host": "h:1", "sec-fetch-site": "same-origin"}, True),
        ({"host": "h:1", "sec-fetch-site": "none"}, True),
    ],
)
def test_a_change_comes_from_our_own_origin(headers: dict[str, str], is_ours: bool) -> None:
    assert is_same_origin(Headers(headers)) is is_ours


@pytest.mark.parametrize(
    ("to", "found"),
    [
        ("/runs?text=a b", "/runs?text=a%20b"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("/runs\r\nset-cookie: x", "/"),
        ("", "/"),
        ("/run?id=%2Fa", "/run?id=%2Fa"),
    ],
)
def test_signing_in_leads_only_to_our_own_pages(to: str, found: str) -> None:
    assert local_path(to) == found


def test_a_key_works_once() -> None:
    access = Access(token="0123456789abcdef")
    key = access.one_time_key()

    assert not access.redeem("guess")
    assert access.redeem(key)
    assert not access.redeem(key)


def test_a_key_gets_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_env.explorer.security._KEY_LIVES_S", -1.0)
    access = Access(token="0123456789abcdef")

    assert not access.redeem(access.one_time_key())


def test_the_cookie_is_not_the_token() -> None:
    access = Access(token="0123456789abcdef")

    assert access.is_token("0123456789abcdef")
    assert not access.is_token(access.cookie)
    assert "0123456789abcdef" not in access.cookie


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("example.org", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, found: bool) -> None:
    assert is_loopback(host) is found
