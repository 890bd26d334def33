from agent_env import names


def test_each_host_has_a_queue_of_its_own() -> None:
    queues = {names.host_queue(host) for host in ("a", "b", "a@b")}

    assert len(queues) == 3
    assert not queues & {names.TASK_QUEUE, names.CONTROL_QUEUE}
    assert names.host_queue("myhost-k3f9q2") == "episodes@myhost-k3f9q2"
