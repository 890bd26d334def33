"""Puts up a sandbox that later steps work in."""

from collections.abc import Mapping, Sequence
from typing import Literal, cast

from pydantic import Field, JsonValue, model_validator
from typing_extensions import override

from agent_env._model import EdgeModel
from agent_env.errors import StepFailedError
from agent_env.sandboxes import SandboxSpec
from agent_env.steps.base import Params, Step, StepContext, StepResult


class NetworkPolicy(EdgeModel):
    """What a sandbox may reach, as agentenv-framework writes it."""

    mode: Literal["allow_all", "allowlist"] = "allow_all"
    """``allowlist`` without entries is the same as no policy: no network."""
    allow_hosts: tuple[str, ...] = ()
    """Not supported yet: a sandbox has the network or it has none."""
    allow_cidrs: tuple[str, ...] = ()
    """As ``allow_hosts``."""


class DeploySandboxParams(Params):
    """Which sandbox, how large, and what it may do."""

    sandbox_name: str = Field(min_length=1)
    """What later steps call it."""
    sandbox_type: str = "local"
    """Its provider. ``local`` runs on the episode's host."""
    sandbox_mode: Literal["vm", "container"] | None = None
    """``container`` needs an image. Nothing else depends on it."""
    image: str | None = None
    """Container image, for providers that have such."""
    cpu: float | None = Field(default=None, gt=0)
    """CPUs. A local sandbox may use what is free."""
    memory_mb: int | None = Field(default=None, gt=0)
    """Memory, in MiB; of each process in a local sandbox. None is the provider's default."""
    disk_size_gb: float | None = Field(default=None, gt=0)
    """Disk, in GiB; of each file in a local sandbox. None is the provider's default."""
    processes: int | None = Field(default=None, gt=0)
    """Most processes at once. None is the provider's default."""
    env_vars: Mapping[str, str] = {}
    """Environment of every command."""
    network_policy: NetworkPolicy | None = None
    """None means no network. ``{"mode": "allow_all"}`` opens it."""
    ttl_seconds: float | None = Field(default=None, gt=0)
    """Has no effect: a sandbox is destroyed when its episode ends, however it ends."""
    boot_mode: str | None = None
    """Has no effect: it says how agentenv-framework boots a virtual machine."""
    exposed_ports: tuple[int, ...] = ()
    """Not supported: nothing outside a sandbox reaches its ports."""
    port: int | None = None
    """As ``exposed_ports``."""
    metadata: Mapping[str, JsonValue] = {}
    """Notes of the task's author; without effect."""

    @model_validator(mode="before")
    @classmethod
    def _nulls_are_defaults(cls, data: object) -> object:
        # agentenv-framework writes every field, those without a value as null.
        if not isinstance(data, Mapping):
            return data
        given = cast("Mapping[str, object]", data)
        return {name: value for name, value in given.items() if value is not None}


class DeploySandbox(Step[DeploySandboxParams]):
    """Ends once the sandbox can be used. Its output is the sandbox's type and id."""

    type = "deploy_sandbox"

    @override
    async def run(self, params: DeploySandboxParams, ctx: StepContext) -> StepResult:
        if any(
            ref.name == params.sandbox_name for report in ctx.reports for ref in report.sandboxes
        ):
            raise StepFailedError(
                f"a sandbox {params.sandbox_name!r} is up already; give each a name of its own"
            )
        ref = await ctx.deploy(_spec(params))
        return StepResult({"sandbox_type": ref.type, "sandbox_id": ref.id})

    @override
    def deploys(self, params: DeploySandboxParams) -> Sequence[str]:
        return (params.sandbox_name,)

    @override
    def problems(self, params: DeploySandboxParams) -> Sequence[str]:
        found: list[str] = []
        policy = params.network_policy
        if policy is not None and (policy.allow_hosts or policy.allow_cidrs):
            found.append(
                "network_policy: a sandbox can't be limited to some hosts; leave network_policy "
                "out for no network, or write {'mode': 'allow_all'}"
            )
        if params.exposed_ports or params.port is not None:
            found.append(
                "exposed_ports, port: nothing outside a sandbox reaches its ports; remove them and "
                "let commands in the sandbox talk to its servers"
            )
        if params.sandbox_type == "local" and params.image is not None:
            found.append(
                "image: a local sandbox runs no images, it has this machine's programs; remove "
                "image, or name another sandbox_type"
            )
        elif params.sandbox_mode == "container" and params.image is None:
            found.append("sandbox_mode: a container needs an image; add image, or remove the mode")
        return found


def _spec(params: DeploySandboxParams) -> SandboxSpec:
    return SandboxSpec(
        type=params.sandbox_type,
        name=params.sandbox_name,
        image=params.image,
        network=params.network_policy is not None and params.network_policy.mode == "allow_all",
        env=params.env_vars,
        cpu=params.cpu,
        memory_mb=params.memory_mb,
        disk_mb=None if params.disk_size_gb is None else max(1, int(params.disk_size_gb * 1024)),
        processes=params.processes,
    )


STEP = DeploySandbox
