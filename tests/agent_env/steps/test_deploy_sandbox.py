from typing import ClassVar

import pytest
from pydantic import JsonValue

from agent_env.errors import InvalidSpecError
from agent_env.status import StepStatus
from agent_env.steps.deploy_sandbox import DeploySandbox
from agent_env.testing.step_contract import StepContract
from tests.agent_env.steps.real_host import BOX, RUN_ID, RealHost


class TestDeploySandbox(StepContract):
    step = DeploySandbox
    good_params: ClassVar = {
        "sandbox_name": "box",
        "sandbox_mode": "vm",
        "memory_mb": 8192,
        "disk_size_gb": 10,
        "ttl_seconds": 3600,
        "exposed_ports": None,
        "metadata": {"team": "a"},
    }
    bad_params: ClassVar = {"sandbox_name": "box", "sandbox_mode": "jail"}


async def test_a_sandbox_is_up_and_named(host: RealHost) -> None:
    reports = await host.play(BOX)

    (ref,) = reports["box"].sandboxes
    assert (ref.type, ref.name) == ("local", "box")
    assert reports["box"].output == {"sandbox_type": "local", "sandbox_id": ref.id}
    assert await host.providers.open("local").list_owned(RUN_ID) == [ref]


async def test_its_environment_and_limits_hold(host: RealHost) -> None:
    box: dict[str, JsonValue] = {
        **BOX, "env_vars": {"NAME": "Ada"}, "disk_size_gb": 0.001, "memory_mb": 512,
    }  # fmt: skip

    reports = await host.play(
        box,
        {"id": "env", "type": "run_code", "command": "echo $NAME; ulimit -f; ulimit -v"},
    )

    assert isinstance(reports["env"].output, dict)
    name, blocks, kilobytes = str(reports["env"].output["stdout"]).split()
    assert (name, int(blocks) * 512, int(kilobytes)) == ("Ada", 1024**2, 512 * 1024)


async def test_one_name_is_given_once(host: RealHost) -> None:
    reports = await host.play(BOX, {**BOX, "id": "again"})

    assert (reports["again"].status, reports["again"].error_type) == (
        StepStatus.FAILED,
        "StepFailed",
    )
    assert "'box' is up already" in str(reports["again"].error)


async def test_an_unknown_provider_fails_with_the_nearest_name(host: RealHost) -> None:
    reports = await host.play({**BOX, "sandbox_type": "locl"})

    assert reports["box"].error_type == "UnknownType"
    assert "did you mean 'local'" in str(reports["box"].error)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"image": "python:3.12"}, "image: a local sandbox runs no images"),
        ({"sandbox_mode": "container"}, "sandbox_mode: a container needs an image"),
        ({"exposed_ports": [80]}, "nothing outside a sandbox reaches its ports"),
        ({"port": 80}, "nothing outside a sandbox reaches its ports"),
        (
            {"network_policy": {"mode": "allowlist", "allow_hosts": ["a.example"]}},
            "network_policy: a sandbox can't be limited to some hosts",
        ),
    ],
)
async def test_what_a_provider_can_not_do_is_said_before_the_run(
    host: RealHost, params: dict[str, JsonValue], message: str
) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        await host.play({**BOX, **params})

    assert message in str(caught.value)
    assert await host.providers.open("local").owners() == set()


@pytest.mark.parametrize(
    ("policy", "is_open"),
    [(None, False), ({"mode": "allowlist"}, False), ({"mode": "allow_all"}, True), ({}, True)],
)
async def test_a_sandbox_has_a_network_only_if_asked(
    host: RealHost, policy: JsonValue, is_open: bool
) -> None:
    interfaces: dict[str, JsonValue] = {
        "id": "net", "type": "run_code", "command": "tail -n +3 /proc/net/dev | cut -d: -f1",
    }  # fmt: skip

    reports = await host.play({**BOX, "network_policy": policy}, interfaces)

    assert isinstance(reports["net"].output, dict)
    seen = set(str(reports["net"].output["stdout"]).split())
    assert (seen > {"lo"}) is is_open
