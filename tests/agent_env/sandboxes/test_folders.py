"""Local sandboxes are found again by owner, key and reference, complete or not."""

from pathlib import Path

import pytest

from agent_env.errors import SandboxLostError
from agent_env.results import SandboxRef
from agent_env.sandboxes.base import Sandbox, SandboxSpec
from agent_env.sandboxes.local import LocalProvider


@pytest.fixture
def provider(tmp_path: Path) -> LocalProvider:
    return LocalProvider(tmp_path / "state")


async def made(provider: LocalProvider) -> tuple[SandboxRef, Sandbox]:
    spec = SandboxSpec(type="local", name="box")
    ref = await provider.create(spec, owner="run", key="k")
    return ref, await provider.attach(ref)


async def test_a_half_made_sandbox_is_found_and_destroyed(
    provider: LocalProvider, tmp_path: Path
) -> None:
    ref, _ = await made(provider)
    ((tmp_path / "state/sandboxes" / ref.id) / "sandbox.json").unlink()

    listed = await provider.list_owned("run")

    assert [half.id for half in listed] == [ref.id]
    assert await provider.owners() == {"run"}
    with pytest.raises(SandboxLostError):
        await provider.attach(ref)
    await provider.destroy(listed[0])
    assert await provider.owners() == set()


async def test_a_half_made_sandbox_is_finished_by_the_next_create(
    provider: LocalProvider, tmp_path: Path
) -> None:
    ref, _ = await made(provider)
    ((tmp_path / "state/sandboxes" / ref.id) / "sandbox.json").unlink()

    again, sandbox = await made(provider)

    assert again.id == ref.id
    await sandbox.write_file("x", b"usable")
    assert await sandbox.read_file("x") == b"usable"


async def test_another_state_folder_knows_nothing_of_it(
    provider: LocalProvider, tmp_path: Path
) -> None:
    ref, _ = await made(provider)

    with pytest.raises(SandboxLostError):
        await LocalProvider(tmp_path / "other").attach(ref)


async def test_a_reference_that_climbs_out_is_not_one_of_ours(
    provider: LocalProvider, tmp_path: Path
) -> None:
    ref, _ = await made(provider)
    (tmp_path / "state/outside").mkdir()
    climbing = ref.model_copy(update={"id": "../outside"})

    await provider.destroy(climbing)

    assert (tmp_path / "state/outside").is_dir()
    with pytest.raises(SandboxLostError):
        await provider.attach(climbing)


async def test_an_owner_whose_note_was_lost_is_noted_again(
    provider: LocalProvider, tmp_path: Path
) -> None:
    ref, _ = await made(provider)
    (tmp_path / "state/sandboxes" / ref.id).parent.joinpath("owner").unlink()

    await provider.create(SandboxSpec(type="local", name="box"), owner="run", key="another")

    assert await provider.owners() == {"run"}
    assert len(await provider.list_owned("run")) == 2
