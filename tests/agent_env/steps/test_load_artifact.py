from typing import ClassVar

import pytest
from pydantic import JsonValue

from agent_env.errors import InvalidSpecError
from agent_env.steps.load_artifact import LoadArtifact
from agent_env.testing.step_contract import StepContract
from tests.agent_env.steps.real_host import BOX, RealHost


class TestLoadArtifact(StepContract):
    step = LoadArtifact
    good_params: ClassVar = {"artifact_id": "kit", "destination_path": "/app/kit", "env_id": None}
    bad_params: ClassVar = {"artifact_id": ""}


@pytest.mark.parametrize("where", ["/app/kit", "/loaded", "kit/deep"])
async def test_an_artifact_is_in_the_sandbox(host: RealHost, where: str) -> None:
    host.artifact("kit", {"a.txt": "one", "deep/b.txt": "two"})

    reports = await host.play(
        BOX,
        {"id": "load", "type": "load_artifact", "artifact_id": "kit", "destination_path": where},
        {"id": "look", "type": "run_code", "command": "cat a.txt deep/b.txt", "cwd": where},
    )

    assert reports["load"].output == {"destination_path": where}
    assert isinstance(reports["look"].output, dict)
    assert reports["look"].output["stdout"] == "onetwo"


async def test_files_of_the_same_name_are_replaced_and_others_stay(host: RealHost) -> None:
    host.artifact("kit", {"a.txt": "one"})
    load: dict[str, JsonValue] = {
        "type": "load_artifact", "artifact_id": "kit", "destination_path": "/app/kit",
    }  # fmt: skip

    reports = await host.play(
        BOX,
        {"id": "first", **load},
        {"id": "agent", "type": "run_code", "cwd": "/app/kit",
         "command": "echo theirs > a.txt; chmod 0 a.txt; echo mine > b.txt"},
        {"id": "again", **load},
        {"id": "look", "type": "run_code", "command": "cat a.txt b.txt", "cwd": "/app/kit"},
    )  # fmt: skip

    assert [report.error for report in reports.values()] == [None] * 5
    assert isinstance(reports["look"].output, dict)
    assert reports["look"].output["stdout"] == "onemine\n"


async def test_an_artifact_that_is_not_in_the_store_fails_the_step(host: RealHost) -> None:
    host.refs["kit"] = "sha256:" + "0" * 64

    report = await host.play_in_box(type="load_artifact", artifact_id="kit")

    assert report.error_type == "StepFailed"
    assert "there is no artifact 'sha256:000" in str(report.error)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"urls": ["x"]}, "urls: is not supported; put the files into a folder"),
        ({"env_id": "x"}, "env_id: is not supported; name the sandbox"),
        ({"artifact_version": 3}, "artifact_version: is not supported"),
        ({"artifact_id": "kitt"}, "unknown artifact 'kitt': did you mean 'kit'?"),
        ({"sandbox_name": "other"}, "unknown sandbox 'other'"),
    ],
)
async def test_what_can_not_be_loaded_is_refused_before_the_run(
    host: RealHost, params: dict[str, JsonValue], message: str
) -> None:
    host.artifact("kit", {"a.txt": "one"})

    with pytest.raises(InvalidSpecError) as caught:
        await host.play_in_box(**{"type": "load_artifact", "artifact_id": "kit", **params})

    assert message in str(caught.value)
