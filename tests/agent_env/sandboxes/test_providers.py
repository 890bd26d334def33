"""Providers are found by type, and all that an owner has is destroyed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_env.errors import SandboxUnavailableError, UnknownTypeError
from agent_env.results import SandboxRef
from agent_env.sandboxes import Providers, SandboxProvider, SandboxSpec
from agent_env.sandboxes.local import LocalProvider
from agent_env.testing import FakeSandboxProvider


async def made(provider: FakeSandboxProvider, key: str, *, owner: str = "run") -> SandboxRef:
    return await provider.create(SandboxSpec(type="fake", name=key), owner=owner, key=key)


def test_a_built_in_type_is_opened_once(tmp_path: Path) -> None:
    providers = Providers(tmp_path)

    first = providers.open("local")

    assert isinstance(first, LocalProvider)
    assert providers.open("local") is first


def test_a_given_provider_wins_over_a_built_in_one(tmp_path: Path) -> None:
    fake = FakeSandboxProvider(type="local")

    assert Providers(tmp_path, {"local": fake}).open("local") is fake


def test_a_misspelled_type_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(UnknownTypeError, match=r"'locl'.*did you mean 'local'\?.*Known: .*local"):
        Providers(tmp_path).open("locl")


async def test_everything_an_owner_has_is_destroyed_on_every_provider(tmp_path: Path) -> None:
    fake = FakeSandboxProvider()
    providers = Providers(tmp_path, {"fake": fake})
    await made(fake, "a")
    await made(fake, "b")
    theirs = await made(fake, "a", owner="another")
    local = providers.open("local")
    await local.create(SandboxSpec(type="local", name="c"), owner="run", key="c")

    left = await providers.destroy_owned("run")

    assert left == []
    assert fake.live == [theirs]
    assert await local.owners() == set()


async def test_destroying_that_fails_twice_and_then_works_leaves_nothing(tmp_path: Path) -> None:
    fake = FakeSandboxProvider(fail_destroy_times=2)
    await made(fake, "a")

    left = await Providers(tmp_path, {"fake": fake}).destroy_owned("run")

    assert (left, fake.live) == ([], [])


async def test_what_could_not_be_destroyed_is_returned(tmp_path: Path) -> None:
    fake = FakeSandboxProvider(fail_destroy_times=3)
    ref = await made(fake, "a")
    providers = Providers(tmp_path, {"fake": fake})

    left = await providers.destroy_owned("run")
    then = await providers.destroy_owned("run")

    assert (left, then, fake.live) == ([ref], [], [])


async def test_one_sandbox_that_stays_up_does_not_keep_the_others(tmp_path: Path) -> None:
    class Stuck(FakeSandboxProvider):
        async def destroy(self, ref: SandboxRef) -> None:
            if ref.name == "stuck":
                raise SandboxUnavailableError("no")
            await super().destroy(ref)

    fake = Stuck()
    await made(fake, "before")
    stuck = await made(fake, "stuck")
    await made(fake, "after")

    left = await Providers(tmp_path, {"fake": fake}).destroy_owned("run")

    assert left == [stuck]
    assert fake.live == [stuck]


async def test_a_provider_that_was_not_opened_yet_is_asked_when_its_type_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeSandboxProvider()
    await made(fake, "a")
    providers = Providers(tmp_path)

    def load(type: str) -> Callable[[Path], SandboxProvider]:
        return LocalProvider if type == "local" else lambda _: fake

    monkeypatch.setattr(providers, "_load", load)

    left = await providers.destroy_owned("run", types=["late"])

    assert (left, fake.live) == ([], [])


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two installed providers: one that works, and one that can't be imported."""
    folder = tmp_path / "installed"
    (folder / "mine-1.dist-info").mkdir(parents=True)
    (folder / "mine-1.dist-info" / "METADATA").write_text("Name: mine\nVersion: 1\n")
    (folder / "mine-1.dist-info" / "entry_points.txt").write_text(
        "[durable_episodes.sandboxes]\n"
        "good = agent_env.sandboxes.local:LocalProvider\nbad = no.such.module:Provider\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.mark.usefixtures("plugins")
def test_all_that_is_installed_is_found_and_what_is_broken_is_said(tmp_path: Path) -> None:
    fake = FakeSandboxProvider()
    providers = Providers(tmp_path, {"fake": fake})

    found, broken = providers.installed()

    assert found["fake"] is fake
    assert {type for type, each in found.items() if isinstance(each, LocalProvider)} == {
        "local",
        "good",
    }
    assert list(broken) == ["bad"]
    assert isinstance(broken["bad"], ModuleNotFoundError)


@pytest.mark.usefixtures("plugins")
def test_looking_for_all_that_is_installed_brings_none_of_it_into_use(tmp_path: Path) -> None:
    providers = Providers(tmp_path)
    providers.installed()

    assert providers.local() == [providers.open("local")]
