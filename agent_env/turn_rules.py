"""What the player of a turn may do when. Pure."""

from agent_env.turns import MAX_CALLS, EndTurn, OpenTurn, RecordTurn

Order = RecordTurn | EndTurn


def refusal(state: OpenTurn, order: Order, *, is_busy: bool) -> str | None:
    """Why an open turn refuses what its player asks for, if it does.

    Args:
        state: The turn.
        order: What is asked for.
        is_busy: Whether something that was asked for before is not done.
    """
    if is_repeat(state, order):
        return None
    if is_busy:
        return "another message of this turn is being worked on; wait for its tools"
    if order.seq != state.messages:
        return (
            f"the turn has {state.messages} messages by now, not {order.seq}: another trainer "
            "plays it; ask next_turn() where it is"
        )
    record = order.record
    if record is None:
        return None
    if isinstance(order, EndTurn) and record.calls:
        return "the last message calls tools that have not run; call them first"
    if len(record.calls) > MAX_CALLS:
        return f"a message calls at most {MAX_CALLS} tools, not {len(record.calls)}"
    if len({ref.id for ref in record.calls}) < len(record.calls):
        return "two tool calls of the message have one id"
    if unknown := [ref.name for ref in record.calls if ref.name not in state.tools]:
        return f"the turn offers no tool {unknown[0]!r}; it offers {[*state.tools]}"
    if not record.by_model and isinstance(order, RecordTurn) and state.model_calls:
        return "the last message that was recorded made no such call"
    return None


def is_repeat(state: OpenTurn, order: Order) -> bool:
    """Whether it was done before: the engine forgets in a new execution what it was asked."""
    last = state.last
    if last is None or not isinstance(order, RecordTurn):
        return False
    return (last.seq, last.digest) == (order.seq, order.record.digest)
