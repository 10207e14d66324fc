"""The scheduler: which operations may go to the backend now, and which wait for a row.

Backends preserve the order of what they are given. The scheduler holds back only what would
overwrite a row of the slot table before it is read (a reset behind a step still in flight), and
what is queued behind that for the same environment. The environments of a group take their rows
together and share a queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from agym.engine.calls.ticket import Ticket
from agym.protocol.arguments import Ids, runs
from agym.protocol.messages.operations import Operation, Step


class Scheduler:
    """The owner of each row, and the operations that wait for it."""

    def __init__(self, num_envs: int, env_groups: Sequence[range] = ()) -> None:
        """Begin with no row owned.

        Args:
            num_envs: Number of environments.
            env_groups: The groups of environments that are one vector environment each.
        """
        self._groups = {i: ids for ids in env_groups for i in ids}
        # Shared, and copied before the first write: compared by identity.
        self._all_free: list[Ticket | None] = [None] * num_envs
        self._owners = self._all_free
        self._owned = 0
        # The ticket that owns every row, as long as none of them was freed.
        self._whole: Ticket | None = None
        self._held: dict[int, deque[Operation]] = {}
        self._seized: set[int] = set()
        # No row is owned and nothing waits.
        self.idle = True

    def stepping(self, ids: Ids) -> int | None:
        """Return an environment with a step in flight or queued, preferably one still running."""
        found = None
        for i in ids:
            owner = self._owners[i]
            if owner is not None and owner.kind is Step:
                found = i
                if not owner.has_ended(i):
                    return i
            elif any(type(operation.message) is Step for operation in self._queue(i)):
                return i
        return found

    def owner(self, slot: int) -> Ticket | None:
        """Return the ticket that owns an environment's row: its step, reset or move."""
        return self._owners[slot]

    def last_plane(self, slot: int) -> int | None:
        """Return the plane that an environment's last operation will write, if it has not ended."""
        for operation in reversed(self._queue(slot)):
            if operation.message.writes_rows and operation.start <= slot < operation.stop:
                plane: int = operation.message.plane  # type: ignore[attr-defined]
                return plane
        owner = self._owners[slot]  # perhaps about others of its group alone
        if owner is None or not owner.message.writes_rows or slot not in owner.ids:
            return None
        return owner.plane

    def held(self, ticket: Ticket) -> set[int]:
        """Return the environments whose part of a ticket still waits for a row."""
        return {
            i
            for i in ticket.ids
            if any((part.number, part.start) == (ticket.number, i) for part in self._queue(i))
        }

    def is_free(self, slot: int) -> bool:
        """Whether no step or reset of an environment is under way or queued."""
        return self._owners[slot] is None and not self._queue(slot)

    def seize(self, slot: int, ticket: Ticket) -> None:
        """Hold back all operations of a free environment until ``ticket`` is released."""
        self._set_owner(slot, ticket)
        self._seized.add(slot)
        self.idle = False

    def take_all(self, ticket: Ticket) -> bool:
        """Take all rows for a ticket, if none is owned and nothing waits."""
        if not self.idle or len(ticket.ids) < len(self._owners):
            return False
        if ticket.message.writes_rows:
            self._owned = count = len(self._all_free)
            self._owners = [ticket] * count
            self._whole = ticket
            self.idle = False
        return True

    def free_all(self, ticket: Ticket) -> bool:
        """Undo :meth:`take_all`, if nothing waits for a row and none was freed before."""
        if self._whole is not ticket or self._held:
            return False
        self._whole = None
        self._owners = self._all_free
        self._owned = 0
        self.idle = True
        return True

    def admit(self, ticket: Ticket, operation: Operation) -> Iterator[Operation]:
        """Take the rows that are free and yield what may be submitted; queue the rest.

        Args:
            ticket: The ticket that takes the rows.
            operation: Its operation, over the range from its first to its last environment. For
                scattered ids, the message's values are in their order.
        """
        ids = ticket.ids
        row = ticket.message.writes_rows
        waiting = {
            i
            for i in ids
            if self._queue(i) or i in self._seized or (row and self._owners[i] is not None)
        }
        position = {slot: k for k, slot in enumerate(ids)}

        def part(run: range) -> Operation:
            message = operation.message.pick([position[i] for i in run])
            return Operation(operation.number, run.start, run.stop, message)

        for i in ids:
            if i in waiting:
                self._held.setdefault(self._key(i), deque()).append(part(range(i, i + 1)))
            elif row:
                self._set_owner(i, ticket)
        self.idle = not self._owned and not self._held
        free = tuple(i for i in ids if i not in waiting)
        if free:
            yield from map(part, runs(free))

    def _key(self, slot: int) -> int:
        """Return the key of an environment's queue: the first of its group."""
        return self._groups[slot].start if self._groups else slot

    def _queue(self, slot: int) -> Sequence[Operation]:
        return self._held.get(self._key(slot), ())

    def _set_owner(self, slot: int, ticket: Ticket) -> None:
        if self._owners is self._all_free:
            self._owners = list(self._all_free)
        for i in self._groups.get(slot, (slot,)):
            if self._owners[i] is None:
                self._owners[i] = ticket
                self._owned += 1

    def forget(self, ticket: Ticket) -> None:
        """Remove a ticket's parts from the queues."""
        for slot in ticket.ids:
            key, queue = self._key(slot), self._queue(slot)
            left = deque(operation for operation in queue if operation.number != ticket.number)
            if left:
                self._held[key] = left
            else:
                self._held.pop(key, None)

    def release(self, ticket: Ticket, ids: Ids, tickets: dict[int, Ticket]) -> list[Operation]:
        """Free some rows of a ticket; return the operations that may be submitted now."""
        freed: list[Operation] = []
        self._whole = None
        if not (self._groups or self._held or self._seized):  # the usual case
            for i in ids:
                if self._owners[i] is ticket:
                    self._owners[i] = None
                    self._owned -= 1
            self.idle = not self._owned
            return freed
        ids = tuple(dict.fromkeys(j for i in ids for j in self._groups.get(i, (i,))))
        for i in ids:
            if self._owners[i] is ticket:
                self._owners[i] = None
                self._owned -= 1
                self._seized.discard(i)
        for i in dict.fromkeys(map(self._key, ids)):
            if i in self._seized:
                continue
            queue = self._held.get(i)
            while queue:
                part = queue[0]
                if part.message.writes_rows:
                    waiting = tickets[part.number]
                    if self._owners[part.start] not in (None, waiting):
                        break
                    self._set_owner(part.start, waiting)
                freed.append(queue.popleft())
            if queue is not None and not queue:
                del self._held[i]
        self.idle = not self._owned and not self._held
        return [*_joined(freed)] if len(freed) > 1 else freed


def _joined(parts: list[Operation]) -> Iterator[Operation]:
    """Join parts for neighbours again, oldest ticket first."""
    parts.sort(key=lambda part: (part.number, part.start))
    whole = parts[0]
    for part in parts[1:]:
        if part.number == whole.number and part.start == whole.stop:
            whole = whole.join(part)
        else:
            yield whole
            whole = part
    yield whole
