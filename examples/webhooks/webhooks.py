"""Pushes 726 real webhook bodies, consumes them with two groups of four workers meanwhile, and counts.

usage: webhooks.py BROKER_URL FOLDER_OF_THE_UNPACKED_PACKAGE

Every tenth body fails on its first delivery to each group, and one body fails on every delivery. What a broker may
not do with that is lose a body, complete one twice, change one, or hand out a partition's bodies in another order
than they were pushed in. Exits with 1 when any number is wrong.
"""

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path

from queen import Queen

QUEUE = "github.webhooks"
GROUPS = ("deployments", "notifications")
WORKERS = 4
BODIES = 726
RETRY_LIMIT = 3
TENTH = 10
# A finished workflow_job of the busiest repository. It stands far enough behind the last tenth body of its partition
# that no batch holds both, so that its own failures, and nothing else, use up the retry budget.
POISON = 318
# Five at a time: small enough that the tenth bodies of one batch cannot use up the budget together.
BATCH = 5
PARTITIONS_PER_POP = 3
PUSHED_TOGETHER = 20
DEADLINE_SECONDS = 60

# Where a body says what it is about, first match first.
OWNERS = (
    ("repository", "full_name"),
    ("organization", "login"),
    ("installation", "account", "login"),
    ("sender", "login"),
)


class Webhook:
    """One body of the package, and what makes it a message."""

    def __init__(self, index, body):
        self.index = index
        self.body = body
        self.partition = partition_of(body)
        self.transaction_id = f"webhook-{index:03}"
        self.fails_once = index % TENTH == TENTH - 1
        self.fails_always = index == POISON


def partition_of(body):
    """The repository's full name; what has no repository is ordered by whose it is."""
    for path in OWNERS:
        value = body
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value:
            return value
    return "Default"


def read_webhooks(package):
    """All examples of all versions of GitHub, in the order of the files."""
    webhooks = []
    for file in sorted(Path(package).glob("*/index.json")):
        for event in json.loads(file.read_text(encoding="utf-8")):
            for body in event["examples"]:
                webhooks.append(Webhook(len(webhooks), body))
    return webhooks


class Delivery:
    """What one pop handed out of one partition, and how far the worker settled it."""

    def __init__(self, positions, received_at):
        self.positions = positions
        self.received_at = received_at
        self.settled_to = positions[0]
        self.last_sent_at = received_at


class Group:
    """One consumer group: its workers and everything that is counted."""

    def __init__(self, name, webhooks):
        self.name = name
        self.by_transaction_id = {webhook.transaction_id: webhook for webhook in webhooks}
        self.position = {}
        lengths = {}
        for webhook in webhooks:
            self.position[webhook.index] = lengths.get(webhook.partition, 0)
            lengths[webhook.partition] = self.position[webhook.index] + 1
        self.deliveries = {partition: [] for partition in lengths}
        self.seen = set()
        self.failed_once = set()
        self.completed = set()
        self.dead_lettered = set()
        self.delivered = self.failed = self.completed_twice = 0
        self.changed = self.refused = self.left_over = 0
        self.dead_letters = []
        self.settled = False

    async def work(self, queen):
        """One worker: take, handle in order, settle one by one, until the group is through."""
        lane = queen.queue(QUEUE).group(self.name).batch(BATCH).partitions(PARTITIONS_PER_POP)
        while not self.settled:
            messages = await lane.wait(True).timeout_millis(500).pop()
            received_at = time.monotonic()
            by_partition = {}
            for message in messages:
                by_partition.setdefault(message["partition"], []).append(message)
            for partition, batch in by_partition.items():
                await self.handle(queen, partition, batch, received_at)

    async def handle(self, queen, partition, batch, received_at):
        webhooks = [self.by_transaction_id[message["transactionId"]] for message in batch]
        delivery = Delivery([self.position[webhook.index] for webhook in webhooks], received_at)
        self.deliveries[partition].append(delivery)
        self.delivered += len(batch)
        self.seen.update(webhook.index for webhook in webhooks)
        for message, webhook in zip(batch, webhooks):
            if message["data"] != webhook.body or partition != webhook.partition:
                self.changed += 1
            if not await self.settle(queen, delivery, message, webhook):
                # The lease is gone with the failure: what follows in this partition comes again, to whoever is free.
                break

    async def settle(self, queen, delivery, message, webhook):
        """Completes or fails one message. True while the rest of the batch is still ours."""
        first_failure = webhook.fails_once and webhook.index not in self.failed_once
        delivery.last_sent_at = time.monotonic()
        if webhook.fails_always or first_failure:
            self.failed_once.add(webhook.index)
            self.failed += 1
            reason = f"cannot handle {webhook.transaction_id}"
            answer = await queen.ack(message, False, {"group": self.name, "error": reason})
            if answer.get("dlq"):
                self.dead_lettered.add(webhook.index)
                delivery.settled_to += 1
        else:
            answer = await queen.ack(message, True, {"group": self.name})
            if answer.get("success"):
                self.completed_twice += webhook.index in self.completed
                self.completed.add(webhook.index)
                delivery.settled_to += 1
        if not answer.get("success"):
            self.refused += 1
            print(f"{self.name}: ack of {webhook.transaction_id} refused: {answer.get('error')}", file=sys.stderr)
        if len(self.completed | self.dead_lettered) == len(self.by_transaction_id):
            self.settled = True
        return answer.get("success") and not (webhook.fails_always or first_failure)

    def violations(self, partition):
        """How often a delivery was not the next unsettled messages of its partition, in the order of the pushes.

        The deliveries of a partition form a chain: each begins where the one before it was settled to, and reached
        its worker after the acks that settled that one had been sent.
        """
        found = 0
        expected, settled_at = 0, 0.0
        chain = sorted(self.deliveries[partition], key=lambda it: (it.positions[0], it.settled_to, it.received_at))
        for delivery in chain:
            start = delivery.positions[0]
            in_order = delivery.positions == list(range(start, start + len(delivery.positions)))
            if start != expected or not in_order or delivery.received_at < settled_at:
                found += 1
            expected, settled_at = delivery.settled_to, delivery.last_sent_at
        return found

    async def inspect(self, queen):
        """What is left once all is settled: nothing to take, and exactly the one body among the dead letters."""
        everything = queen.queue(QUEUE).group(self.name).batch(BODIES).partitions(BODIES)
        self.left_over = len(await everything.wait(False).pop())
        page = await queen.queue(QUEUE).dlq(self.name).limit(100).get()
        self.dead_letters = page["messages"]


async def push(queen, webhooks, pushed):
    """Some at a time, side by side where the partitions differ; within a partition in order."""
    for begin in range(0, len(webhooks), PUSHED_TOGETHER):
        lanes = {}
        for webhook in webhooks[begin : begin + PUSHED_TOGETHER]:
            item = {"transactionId": webhook.transaction_id, "data": webhook.body}
            lanes.setdefault(webhook.partition, []).append(item)
        pushes = (queen.queue(QUEUE).partition(partition).push(items) for partition, items in lanes.items())
        for answer in await asyncio.gather(*pushes):
            pushed += [result for result in answer if result["status"] == "queued"]


async def run(url, webhooks, groups, report):
    """Pushes and consumes at the same time until every group is through."""
    async with Queen(url) as queen:
        # A second run on the same broker starts from nothing too.
        await queen.queue(QUEUE).delete()
        await queen.queue(QUEUE).config({"retryLimit": RETRY_LIMIT}).create()
        workers = asyncio.gather(*(group.work(queen) for group in groups for _ in range(WORKERS)))
        started = time.monotonic()
        await push(queen, webhooks, report["pushed"])
        report["push_seconds"] = time.monotonic() - started
        report["during_push"] = [len(group.completed) for group in groups]
        await workers
        report["seconds"] = time.monotonic() - started
        for group in groups:
            await group.inspect(queen)


def rows(webhooks, groups, report):
    """The table: what is counted, what it must be (a number or a test of one), what it was for each group."""
    tenths = sum(webhook.fails_once for webhook in webhooks)
    deliveries_of_poison = RETRY_LIMIT + 1
    pushed = len(report["pushed"])
    lost = [len(webhooks) - len(group.completed | group.dead_lettered) for group in groups]
    violations = [sum(map(group.violations, group.deliveries)) for group in groups]
    dead = [[row["transactionId"] for row in group.dead_letters] for group in groups]
    return [
        ("bodies pushed", BODIES, [pushed] * len(groups)),
        ("completed while pushing", "some", report["during_push"]),
        ("delivered", "more", [group.delivered for group in groups]),
        ("redelivered", "some", [group.delivered - len(group.seen) for group in groups]),
        ("failed on purpose", tenths + deliveries_of_poison, [group.failed for group in groups]),
        ("completed", BODIES - 1, [len(group.completed) for group in groups]),
        ("dead-lettered", 1, [len(ids) for ids in dead]),
        ("another body dead-lettered", 0, [sum(id != webhooks[POISON].transaction_id for id in ids) for ids in dead]),
        ("order violations", 0, violations),
        ("lost", 0, lost),
        ("completed twice", 0, [group.completed_twice for group in groups]),
        ("changed on the way", 0, [group.changed for group in groups]),
        ("acks refused", 0, [group.refused for group in groups]),
        ("left over", 0, [group.left_over for group in groups]),
    ]


def is_right(expected, number):
    if expected == "some":
        return number > 0
    if expected == "more":
        return number > BODIES
    return number == expected


def print_partitions(groups):
    print(f"{'partition':<50} {'bodies':>7}  completed by each group, order violations")
    for partition in sorted(groups[0].deliveries):
        bodies = [it for it in groups[0].by_transaction_id.values() if it.partition == partition]
        completed = [sum(it.index in group.completed for it in bodies) for group in groups]
        violations = [group.violations(partition) for group in groups]
        counts = "".join(f"{number:>6}" for number in completed + violations)
        print(f"{partition:<50} {len(bodies):>7} {counts}")


def print_table(table, groups):
    print(f"{'':<28} {'expected':>10} " + " ".join(f"{group.name:>14}" for group in groups))
    for label, expected, numbers in table:
        wrong = "" if all(is_right(expected, number) for number in numbers) else "   <-- wrong"
        shown = f"> {BODIES}" if expected == "more" else "> 0" if expected == "some" else expected
        print(f"{label:<28} {shown:>10} " + " ".join(f"{number:>14}" for number in numbers) + wrong)


def main(url, package):
    webhooks = read_webhooks(package)
    groups = [Group(name, webhooks) for name in GROUPS]
    report = {"pushed": [], "push_seconds": 0.0, "during_push": [0] * len(groups), "seconds": 0.0}
    in_time = True
    try:
        # What the client itself prints goes with the complaints, not into the table.
        with contextlib.redirect_stdout(sys.stderr):
            asyncio.run(asyncio.wait_for(run(url, webhooks, groups, report), DEADLINE_SECONDS))
    except asyncio.TimeoutError:
        in_time = False
    table = rows(webhooks, groups, report)
    print_partitions(groups)
    print()
    print_table(table, groups)
    print()
    if not in_time:
        print(f"not through after {DEADLINE_SECONDS} s")
        return 1
    right = all(is_right(expected, number) for _, expected, numbers in table for number in numbers)
    verdict = "every number is right" if right else "wrong numbers, see above"
    print(f"pushed in {report['push_seconds']:.1f} s, everything settled after {report['seconds']:.1f} s: {verdict}")
    return 0 if right else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
