"""Stores that break their word about statuses and messages; ``test_broken_stores.py`` runs the suite against each."""

from dataclasses import replace

from divebook.stores import MemoryStore
from divebook.stores.backend import StoredMessage


class ForgetsThatItWaits(MemoryStore):
    def _write_one(self, batch):
        change = batch.status_change and replace(
            batch.status_change,
            status="running" if batch.status_change.ended_at is None else batch.status_change.status,
        )
        return super()._write_one(replace(batch, status=None, status_change=change))


class WaitsAfterTheEnd(MemoryStore):
    def _extend(self, log, batch):
        super()._extend(log, batch)
        log.status_columns = replace(log.status_columns, status=batch.status or log.status_columns.status)


class ForgetsWhenToWake(MemoryStore):
    def _write_one(self, batch):
        return super()._write_one(replace(batch, wake_at=None))


class KeepsWakingUp(MemoryStore):
    def _extend(self, log, batch):
        super()._extend(log, replace(batch, wake_at=batch.wake_at or log.wake_at))


class TakesMessagesInTwice(MemoryStore):
    def _extend(self, log, batch):
        super()._extend(log, batch)
        log.taken = batch.taken


class LetsTheLastMessageWin(MemoryStore):
    def _post(self, message, payload):
        for number, kept in list(self._messages.items()):
            if (kept.execution_id, kept.kind, kept.key) == (message.execution_id, message.kind, message.key):
                del self._messages[number]
        return super()._post(message, payload)


class TakesEveryMessage(MemoryStore):
    def _post(self, message, payload):
        self._find(message.execution_id)
        self._last_number += 1
        numbered = replace(message, number=self._last_number)
        self._messages[self._last_number] = StoredMessage.of(numbered, payload)
        return numbered


class AnswersWithTheLaterMessage(MemoryStore):
    def _post(self, message, payload):
        return replace(message, number=super()._post(message, payload).number)


class MixesKindsOfMessages(MemoryStore):
    def _post(self, message, payload):
        return super()._post(replace(message, kind="answer"), payload)


class TakesMessagesForNobody(MemoryStore):
    def __init__(self):
        super().__init__()
        self._find = self._logs.get


class KeepsMessagesOfTheDeleted(MemoryStore):
    def _drop(self, execution_id):
        del self._logs[execution_id]


class GivesNumbersAgain(MemoryStore):
    def _drop(self, execution_id):
        super()._drop(execution_id)
        self._last_number = max(self._messages, default=0)


class NumbersMessagesPerExecution(MemoryStore):
    def _post(self, message, payload):
        self._last_number = len(self.inbox(message.execution_id))
        return super()._post(message, payload)


class DeliversMessagesOnce(MemoryStore):
    def new_messages(self, after):
        found = super().new_messages(after)
        self._messages.clear()
        return found


class LeavesWhatItCannotDecryptOutOfAnInbox(MemoryStore):
    def inbox(self, execution_id, after=0):
        self._find(execution_id)
        return [message for message in self.new_messages(after) if message.execution_id == execution_id]


class KeepsMessagesToItself(MemoryStore):
    def _wait_for_news(self, seen, seconds):
        return 0


class AlwaysHasNews(MemoryStore):
    def _wait_for_news(self, seen, seconds):
        return seen + 1


class HandsOutItsOwnMessages(MemoryStore):
    def __init__(self):
        super().__init__()
        self._posted = []

    def _post(self, message, payload):
        self._posted.append(super()._post(message, payload))
        return self._posted[-1]

    def new_messages(self, after):
        return [message for message in self._posted if message.number > after]


class RecoversWhatOnlyWaits(MemoryStore):
    def orphans(self, now=None):
        driven = {lease.execution_id for lease in self.live_leases(now)}
        return [record for record in self.unended() if record.execution_id not in driven]


class ForgetsWhoWasAnswered(MemoryStore):
    def _last_addressee(self, kind, key):
        found = super()._last_addressee(kind, key)
        return found if found in self.untaken() else None


class ForgetsMessagesWhenRecovering(MemoryStore):
    def orphans(self, now=None):
        return [record for record in super().orphans(now) if record.status != "waiting" or record.wake_at]


class ForgetsParents(MemoryStore):
    def _write_one(self, batch):
        return super()._write_one(replace(batch, to_parent=None))


class TellsParentsOfRefusedEnds(MemoryStore):
    def _write_one(self, batch):
        refusal = super()._write_one(batch)
        if refusal is not None and batch.to_parent is not None:
            self._post(*batch.to_parent)
        return refusal


class TellsParentsThatHaveEnded(MemoryStore):
    def _write_one(self, batch):
        refusal = super()._write_one(replace(batch, to_parent=None))
        if refusal is None and batch.to_parent is not None and batch.to_parent[0].execution_id in self._logs:
            self._post(*batch.to_parent)
        return refusal


class TellsParentsOfTheFirstEndOnly(MemoryStore):
    def _write_one(self, batch):
        if batch.to_parent is not None:
            message, payload = batch.to_parent
            batch = replace(batch, to_parent=(replace(message, key=message.source), payload))
        return super()._write_one(batch)


class IgnoresWhatTheWriterHasNotRead(MemoryStore):
    def _write_one(self, batch):
        return super()._write_one(replace(batch, last_message=None))


class ReadsOnlyWhatTheLogLacks(MemoryStore):
    def _write_one(self, batch):
        log = self._logs.get(batch.execution_id)
        if batch.last_message is not None and log is not None:
            batch = replace(batch, last_message=max(batch.last_message, log.taken))
        return super()._write_one(batch)


class RefusesForMessagesToOthers(MemoryStore):
    def _newest_message(self, execution_id):
        return self._last_number


class TakesMessagesAfterTheEnd(MemoryStore):
    def _post(self, message, payload):
        log = self._find(message.execution_id)
        columns = log.status_columns
        log.status_columns = replace(columns, status="running")
        try:
            return super()._post(message, payload)
        finally:
            log.status_columns = columns


class RefusesMessagesToWhatHasFailed(MemoryStore):
    def _post(self, message, payload):
        log = self._find(message.execution_id)
        columns = log.status_columns
        if columns.status == "failed":
            log.status_columns = replace(columns, status="completed")
        try:
            return super()._post(message, payload)
        finally:
            log.status_columns = columns


class GivesALeaseForEveryMessage(MemoryStore):
    def _post_and_acquire(self, message, payload, owner, moment, after):
        self._find(message.execution_id).lease = None
        return super()._post_and_acquire(message, payload, owner, moment, after)


class GivesALeaseForALaterMessage(MemoryStore):
    def _post_and_acquire(self, message, payload, owner, moment, after):
        stored, lease = super()._post_and_acquire(message, payload, owner, moment, after)
        return stored, lease or self._acquire(message.execution_id, owner, moment, moment.plus(30), None)


class ForgetsEarlierMessagesOfALease(MemoryStore):
    def _post_and_acquire(self, message, payload, owner, moment, after):
        stored, lease = super()._post_and_acquire(message, payload, owner, moment, after)
        return stored, lease and replace(lease, unread=[stored])


class KeepsNoMessageForAHeldLease(MemoryStore):
    def _post_and_acquire(self, message, payload, owner, moment, after):
        if self._find(message.execution_id).lease is not None:
            return message, None
        return super()._post_and_acquire(message, payload, owner, moment, after)
