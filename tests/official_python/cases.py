"""What Queen's official Python client, unchanged, must find in the broker at the URL given.

Every function named `case_…` is one case. They run at the same time, each with queues and groups of its own, because
several of them have to wait. Exits with 1 when a case fails.
"""

import asyncio
import inspect
import sys
import time
import traceback
from datetime import datetime, timedelta, timezone
from urllib.parse import quote

from queen import Queen


def numbers(messages):
    return [message["data"]["n"] for message in messages]


async def push_numbers(lane, wanted):
    results = await lane.push([{"data": {"n": n}} for n in wanted])
    assert [result["status"] for result in results] == ["queued"] * len(wanted), results


def looking(lane):
    """A pop that looks once. Left alone, the builder parks for 30 s."""
    return lane.wait(False)


def waiting(lane):
    """A pop that parks until there is something."""
    return lane.wait(True).timeout_millis(10_000)


async def case_create_and_configure_echo_every_option(queen):
    created = await queen.queue("py.create").create()
    assert created["configured"] is True and created["queue"] == "py.create", created
    assert len(created["options"]) == 17, created
    assert created["options"]["leaseTime"] == 300 and created["options"]["retryLimit"] == 3, created
    options = {"retryLimit": 7, "lease_time": 11, "deadLetterQueue": False}
    configured = await queen.queue("py.create").config(options).create()
    assert configured["queueId"] == created["queueId"]
    options = configured["options"]
    assert (options["retryLimit"], options["leaseTime"], options["deadLetterQueue"]) == (7, 11, False), options
    configured = await queen.queue("py.create").namespace("shop").task("mail").create()
    assert (configured["namespace"], configured["task"]) == ("shop", "mail"), configured
    assert configured["options"]["retryLimit"] == 3 and configured["options"]["deadLetterQueue"] is True, configured


async def case_a_pushed_message_comes_back_as_it_was(queen):
    item = {"transactionId": "order-7", "data": {"total": 19.99}}
    pushed = await queen.queue("py.push").partition("customer-42").push([item])
    assert len(pushed) == 1 and pushed[0]["status"] == "queued" and pushed[0]["transaction_id"] == "order-7", pushed
    messages = await looking(queen.queue("py.push").partition("customer-42")).pop()
    assert len(messages) == 1, messages
    message = messages[0]
    assert message["id"] == pushed[0]["message_id"], message
    assert message["transactionId"] == "order-7" and message["partition"] == "customer-42", message
    assert message["data"] == {"total": 19.99} and message["traceId"] is None, message
    created = datetime.strptime(message["createdAt"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    assert abs(datetime.now(timezone.utc) - created) < timedelta(minutes=1), message
    acked = await queen.ack(message)
    assert acked["success"] is True, acked
    assert await looking(queen.queue("py.push").partition("customer-42")).pop() == []


async def case_a_repeated_transaction_id_is_a_duplicate(queen):
    def item(name):
        return {"transactionId": name, "data": {"name": name}}

    duplicates = []

    async def note(items, error):
        duplicates.append((items, error))

    first = await queen.queue("py.duplicate").push([item("a"), item("a")])
    assert [it["status"] for it in first] == ["queued", "duplicate"], first
    assert first[0]["message_id"] == first[1]["message_id"], first
    second = await queen.queue("py.duplicate").push([item("b"), item("a"), item("c")]).on_duplicate(note)
    if second is not None:
        assert [it["status"] for it in second] == ["queued", "duplicate", "queued"], second
    assert duplicates, "the client saw no duplicate"
    messages = await looking(queen.queue("py.duplicate").batch(10)).pop()
    assert [it["transactionId"] for it in messages] == ["a", "b", "c"], messages


async def case_every_group_consumes_every_message_in_order(queen):
    lanes = ["red", "green", "blue"]
    for lane in lanes:
        await push_numbers(queen.queue("py.consume").partition(lane), range(10))

    async def consume(group):
        seen = []
        done = asyncio.Event()

        async def handle(message):
            seen.append((message["partition"], message["data"]["n"]))
            if len(seen) == 30:
                done.set()

        consumer = queen.queue("py.consume").group(group).concurrency(4).idle_millis(1000).timeout_millis(300)
        await asyncio.wait_for(consumer.consume(handle, signal=done), 20)
        for lane in lanes:
            assert [n for partition, n in seen if partition == lane] == list(range(10)), (group, seen)
        assert await looking(queen.queue("py.consume").group(group)).pop() == []

    await asyncio.gather(consume("py-billing"), consume("py-shipping"))


async def case_consume_in_batches_and_fail_once(queen):
    await push_numbers(queen.queue("py.batches"), range(6))
    attempts = []

    async def handle(messages):
        attempts.append(numbers(messages))
        if len(attempts) == 1:
            raise ValueError("not yet")

    consumer = queen.queue("py.batches").group("py-batches").batch(6).idle_millis(700).timeout_millis(200)
    try:
        await asyncio.wait_for(consumer.consume(handle), 20)
    except ValueError:
        # Without an error callback the client passes the handler's error on, after the nack.
        await asyncio.wait_for(consumer.consume(handle), 20)
    assert attempts == [list(range(6))] * 2, attempts
    assert await looking(queen.queue("py.batches").group("py-batches").batch(6)).pop() == []


async def case_acks_settle_a_batch_and_only_for_their_group(queen):
    def lane(group):
        return queen.queue("py.ack").group(group).batch(5)

    await push_numbers(queen.queue("py.ack"), range(5))
    batch = await looking(lane("py-a")).pop()
    assert numbers(batch) == [0, 1, 2, 3, 4], batch
    assert await looking(lane("py-a")).pop() == [], "leased"
    assert len(await looking(lane("py-b")).pop()) == 5, "leased for another group only"
    group = {"group": "py-a"}
    partial = await queen.ack(batch[2], True, group)
    assert partial["success"] is True and partial["leaseReleased"] is False, partial
    again = await queen.ack(batch[1], True, group)
    assert again["success"] is True and again["noop"] is True, again
    given_back = await queen.ack(batch[3], "retry", group)
    assert given_back["success"] is True and given_back["leaseReleased"] is True, given_back
    late = await queen.ack(batch[4], True, group)
    assert late["success"] is False and late["error"] == "invalid or expired lease", late
    rest = await looking(lane("py-a")).pop()
    assert numbers(rest) == [3, 4], rest
    await queen.ack(rest, True, group)
    assert await looking(lane("py-a")).pop() == []


async def case_an_exhausted_message_goes_to_the_dead_letters_and_back(queen):
    await queen.queue("py.risky").config({"retryLimit": 1}).create()
    await push_numbers(queen.queue("py.risky"), range(2))
    lane = queen.queue("py.risky").group("py-risky").batch(2)
    group = {"group": "py-risky"}

    first = await queen.ack((await looking(lane).pop())[0], False, {**group, "error": "boom 1"})
    assert first["success"] is True and first["dlq"] is False, first
    dead = (await looking(lane).pop())[0]
    second = await queen.ack(dead, False, {**group, "error": "boom 2"})
    assert second["success"] is True and second["dlq"] is True, second

    page = await queen.queue("py.risky").dlq("py-risky").limit(10).get()
    assert page["total"] == 1, page
    row = page["messages"][0]
    assert row["errorMessage"] == "boom 2" and row["transactionId"] == dead["transactionId"], row
    assert row["data"] == {"n": 0} and row["retryCount"] == 1, row
    assert (await queen.queue("py.risky").dlq("py-other").get())["total"] == 0

    rest = await looking(lane).pop()
    assert numbers(rest) == [1], rest
    await queen.ack(rest[0], True, group)
    retried = await queen.admin.retry_message(dead["partitionId"], dead["transactionId"])
    assert retried["success"] is True, retried
    assert (await queen.queue("py.risky").dlq().get())["total"] == 0
    replayed = await looking(lane).pop()
    assert numbers(replayed) == [0] and replayed[0]["transactionId"] != dead["transactionId"], replayed
    assert (await queen.ack(replayed[0], True, group))["success"] is True


async def case_a_renewed_lease_outlives_its_first_end(queen):
    for name in ["py.renewed", "py.expired"]:
        await queen.queue(name).config({"leaseTime": 1}).create()
        await push_numbers(queen.queue(name), range(1))
    renewed = await looking(queen.queue("py.renewed").group("py-lease")).pop()
    expired = await looking(queen.queue("py.expired").group("py-lease")).pop()
    answer = await queen.renew(renewed[0])
    assert answer["success"] is True and answer["newExpiresAt"], answer
    await asyncio.sleep(1.3)
    assert await looking(queen.queue("py.renewed").group("py-lease")).pop() == [], "renewed"
    acked = await queen.ack(renewed[0], True, {"group": "py-lease"})
    assert acked["success"] is True, acked
    late = await queen.ack(expired[0], True, {"group": "py-lease"})
    assert late["success"] is False and late["error"] == "invalid or expired lease", late
    again = await looking(queen.queue("py.expired").group("py-lease")).pop()
    assert [it["id"] for it in again] == [expired[0]["id"]], again


async def refusal(transaction):
    try:
        answer = await transaction.commit()
    except Exception as error:
        return str(error)
    raise AssertionError(f"committed: {answer}")


async def case_a_transaction_does_all_or_nothing(queen):
    await push_numbers(queen.queue("py.input"), range(2))
    source = queen.queue("py.input").group("py-txn")
    sink = queen.queue("py.output").group("py-txn").batch(10)
    group = {"consumer_group": "py-txn"}

    def push(transaction, n, name):
        return transaction.queue("py.output").push([{"transactionId": name, "data": {"n": n}}])

    first = await looking(source).pop()
    done = await push(queen.transaction().ack(first[0], "completed", group), 100, "out-1").commit()
    assert done["success"] is True and all(it["success"] for it in done["results"]), done
    out = await looking(sink).pop()
    assert numbers(out) == [100] and out[0]["transactionId"] == "out-1", out
    await queen.ack(out[0], True, {"group": "py-txn"})

    second = await looking(source).pop()
    assert numbers(second) == [1], second
    error = await refusal(push(queen.transaction().ack(second[0], "completed", group), 101, "out-1"))
    assert "rolled back" in error, error
    ghost = {**second[0], "transactionId": "never-pushed"}
    error = await refusal(push(queen.transaction().ack(ghost, "completed", group), 102, "out-2"))
    assert "rolled back" in error and "unknown transactionId" in error, error
    assert await looking(sink).pop() == []
    done = await push(queen.transaction().ack(second[0], "completed", group), 103, "out-3").commit()
    assert done["success"] is True, done
    assert await looking(source).pop() == []
    assert numbers(await looking(sink).pop()) == [103]


async def case_a_transaction_under_an_expired_lease_does_nothing(queen):
    await queen.queue("py.lapsed").config({"leaseTime": 1}).create()
    await push_numbers(queen.queue("py.lapsed"), range(1))
    taken = await looking(queen.queue("py.lapsed").group("py-lapsed")).pop()
    await asyncio.sleep(1.3)
    bundle = queen.transaction().ack(taken[0], "completed", {"consumer_group": "py-lapsed"})
    error = await refusal(bundle.queue("py.lapsed.out").push([{"data": {"n": 1}}]))
    assert "rolled back" in error and "lease" in error, error
    assert await looking(queen.queue("py.lapsed.out").group("py-lapsed")).pop() == []
    assert numbers(await looking(queen.queue("py.lapsed").group("py-lapsed")).pop()) == [0]


async def case_a_new_group_skips_the_backlog_and_nothing_else(queen):
    await push_numbers(queen.queue("py.news"), range(3))

    def lane(group):
        return queen.queue("py.news").group(group).batch(10).partitions(10)

    fresh = lane("py-fresh").subscription_mode("new")
    assert await looking(fresh).pop() == []
    await push_numbers(queen.queue("py.news"), range(3, 5))
    await push_numbers(queen.queue("py.news").partition("born-later"), range(5, 6))
    assert sorted(numbers(await looking(fresh).pop())) == [3, 4, 5]
    assert len(await looking(lane("py-all")).pop()) == 6
    assert await looking(lane("py-now").subscription_from("now")).pop() == []
    assert len(await looking(lane("py-early").subscription_from("2020-01-01T00:00:00.000Z")).pop()) == 6


async def case_a_deleted_group_replays(queen):
    await push_numbers(queen.queue("py.replay"), range(3))
    lane = queen.queue("py.replay").group("py-replay").batch(10)
    await queen.ack(await looking(lane).pop(), True, {"group": "py-replay"})
    assert await looking(lane).pop() == []
    sought = await queen.admin.seek_consumer_group("py-replay", "py.replay", {"timestamp": "1970-01-01T00:00:00Z"})
    assert sought["success"] is True and sought["partitionsUpdated"] == 1, sought
    replayed = await looking(lane).pop()
    assert numbers(replayed) == [0, 1, 2], replayed
    await queen.ack(replayed, True, {"group": "py-replay"})
    deleted = await queen.delete_consumer_group("py-replay")
    assert deleted["success"] is True, deleted
    assert numbers(await looking(lane).pop()) == [0, 1, 2]
    names = {row["name"] for row in await queen.admin.list_consumer_groups()}
    assert "py-replay" in names, names


async def case_a_parked_pop_is_woken_by_a_push(queen):
    pushed_at = []

    async def ring():
        await asyncio.sleep(0.5)
        pushed_at.append(time.monotonic())
        await push_numbers(queen.queue("py.bell").partition("p"), range(1))

    ringing = asyncio.create_task(ring())
    messages = await waiting(queen.queue("py.bell").group("py-bell")).pop()
    answered_at = time.monotonic()
    await ringing
    assert numbers(messages) == [0], messages
    assert answered_at - pushed_at[0] < 1.5, answered_at - pushed_at[0]
    begun = time.monotonic()
    assert await queen.queue("py.bell").group("py-bell").wait(True).timeout_millis(400).pop() == []
    assert time.monotonic() - begun >= 0.4, time.monotonic() - begun


async def case_delayed_processing_holds_messages_back(queen):
    await queen.queue("py.later").config({"delayedProcessing": 2}).create()
    await push_numbers(queen.queue("py.later"), range(3))
    begun = time.monotonic()
    lane = queen.queue("py.later").group("py-later").batch(10)
    assert await looking(lane).pop() == []
    assert numbers(await waiting(lane).pop()) == [0, 1, 2]
    assert 1.8 < time.monotonic() - begun < 8, time.monotonic() - begun


async def case_window_buffer_gathers(queen):
    await queen.queue("py.window").config({"windowBuffer": 2}).create()
    await push_numbers(queen.queue("py.window"), range(2))
    begun = time.monotonic()
    await push_numbers(queen.queue("py.window"), range(2, 3))
    lane = queen.queue("py.window").group("py-window").batch(10)
    assert await looking(lane).pop() == []
    assert numbers(await waiting(lane).pop()) == [0, 1, 2]
    assert 1.8 < time.monotonic() - begun < 8, time.monotonic() - begun


async def case_window_buffer_gives_early_when_full(queen):
    await queen.queue("py.full").config({"windowBuffer": 60}).create()
    await push_numbers(queen.queue("py.full"), range(99))
    assert await looking(queen.queue("py.full").group("py-full").batch(200)).pop() == []
    await push_numbers(queen.queue("py.full"), range(99, 100))
    assert numbers(await looking(queen.queue("py.full").group("py-full").batch(200)).pop()) == list(range(100))


async def case_discovery_finds_queues_by_namespace_and_task(queen):
    labels = [("py.d.a", "py-shop", "py-mail"), ("py.d.b", "py-shop", "py-print"), ("py.d.c", "py-shopping", "py-mail")]
    for n, (name, namespace, task) in enumerate(labels):
        await queen.queue(name).namespace(namespace).task(task).create()
        await push_numbers(queen.queue(name), [n])
    await push_numbers(queen.queue("py-shop.py-mail.urgent"), [3])

    def discover(group):
        return queen.queue().group(group).batch(10).partitions(10)

    assert sorted(numbers(await looking(discover("py-d1").namespace("py-shop")).pop())) == [0, 1, 3]
    assert sorted(numbers(await looking(discover("py-d2").task("py-mail")).pop())) == [0, 2, 3]
    both = await looking(discover("py-d3").namespace("py-shop").task("py-mail")).pop()
    assert sorted(numbers(both)) == [0, 3], both
    for message in both:
        assert (await queen.ack(message, True, {"group": "py-d3"}))["success"] is True
    assert await looking(discover("py-d3").namespace("py-shop").task("py-mail")).pop() == []
    assert await looking(discover("py-d4").namespace("py-sho")).pop() == []


async def case_awkward_names(queen):
    """The client puts names into paths as they are, so its user quotes them there, and only there."""
    queues = ["py with space", "py/with/slash", "py Grüße 🌊", "py:with:colon"]
    partitions = ["lane with space/and-slash", "p" * 200]
    for name in queues:
        created = await queen.queue(name).create()
        assert created["queue"] == name, created
        in_path = quote(name, safe="")
        for n, partition in enumerate(partitions):
            await push_numbers(queen.queue(name).partition(partition), [n])
            one = await looking(queen.queue(in_path).partition(quote(partition, safe="")).group("py-awkward")).pop()
            assert numbers(one) == [n] and one[0]["partition"] == partition, (name, partition, one)
            assert (await queen.ack(one[0], True, {"group": "py-awkward"}))["success"] is True
        await push_numbers(queen.queue(name), [9])
        messages = await looking(queen.queue(in_path).group("py-awkward").batch(10)).pop()
        assert numbers(messages) == [9], (name, messages)
        if "/" not in name:
            await push_numbers(queen.queue(name).partition("plain"), [10])
            assert numbers(await looking(queen.queue(name).group("py-awkward")).pop()) == [10], name
            # Its read routes do quote, all but the slash.
            assert (await queen.admin.get_queue(name))["name"] == name
        deleted = await queen.queue(in_path).delete()
        assert deleted["existed"] is True, deleted


async def case_payloads_come_back_unchanged(queen):
    deep = "core"
    for level in range(100):
        deep = {"level": level, "inner": [deep]}
    payloads = [
        None,
        True,
        0,
        -1.5,
        2**53 - 1,
        -(2**53 - 1),
        2**64 + 1,
        "",
        "quote \" backslash \\ slash / newline \n tab \t nul \0 bell \7 \u2028 ünïcödé 🌊",
        [],
        {},
        [1, [2, [3, [None, {"a": {"": "empty key"}}]]]],
        deep,
        {"big": "x" * 512 * 1024},
    ]
    # One push: the client makes the order of the array the order of the partition.
    await queen.queue("py.payloads").push([{"data": payload} for payload in payloads])
    messages = await looking(queen.queue("py.payloads").batch(100)).pop()
    received = [message["data"] for message in messages]
    assert len(received) == len(payloads), len(received)
    for got, expected in zip(received, payloads):
        assert got == expected and type(got) is type(expected), (str(got)[:200], str(expected)[:200])


async def case_one_pop_takes_several_partitions_under_one_lease(queen):
    for lane in ["a", "b", "c"]:
        await push_numbers(queen.queue("py.sparse").partition(lane), range(2))
    lane = queen.queue("py.sparse").group("py-sparse").batch(5).partitions(3)
    batch = await looking(lane).pop()
    assert len(batch) == 5 and len({message["leaseId"] for message in batch}) == 1, batch
    await queen.ack(batch, True, {"group": "py-sparse"})
    assert numbers(await looking(lane).pop()) == [1]
    at_once = await looking(queen.queue("py.sparse").group("py-at-once").batch(10).partitions(3).auto_ack(True)).pop()
    assert len(at_once) == 6, at_once
    assert await looking(queen.queue("py.sparse").group("py-at-once").batch(10).partitions(3)).pop() == []


async def case_buffered_pushes_arrive(queen):
    for n in range(25):
        await queen.queue("py.buffer").buffer({"message_count": 10, "time_millis": 5000}).push([{"data": {"n": n}}])
    await queen.flush_all_buffers()
    assert numbers(await looking(queen.queue("py.buffer").batch(100)).pop()) == list(range(25))


async def case_health_and_listings(queen):
    assert (await queen.admin.health())["status"] == "healthy"
    await push_numbers(queen.queue("py.listed"), range(3))
    rows = {row["name"]: row for row in (await queen.admin.list_queues())["queues"]}
    assert rows["py.listed"]["messages"]["total"] == 3, rows["py.listed"]


async def case_the_admin_reaches_what_operators_need(queen):
    admin = queen.admin
    await push_numbers(queen.queue("py.admin").namespace("py-admin").task("mail"), range(2))
    messages = await waiting(queen.queue("py.admin").group("py-admin").subscription_mode("all")).batch(1).pop()
    message = messages[0]
    await queen.ack(message, "failed", {"group": "py-admin"})
    depth = await admin.get_queue_depth("py.admin", "py-admin")
    assert depth["total"] == 2 and [row["group"] for row in depth["groups"]] == ["py-admin"], depth
    listed = (await admin.list_messages(queue="py.admin"))["messages"]
    assert [row["queue"] for row in listed] == ["py.admin"] * 2, listed
    found = await admin.get_message(message["partitionId"], message["transactionId"])
    assert found["id"] == message["id"], found
    overview = await admin.get_overview()
    assert overview["queues"] >= 1 and overview["messages"]["total"] >= 2, overview
    assert any(row["namespace"] == "py" for row in (await admin.get_namespaces())["namespaces"])
    assert isinstance((await admin.get_tasks())["tasks"], list)
    status = await admin.get_status()
    assert status["bucketMinutes"] == 1 and status["queues"]["total"] >= 1, status
    stats = await admin.get_queue_stats(queue="py.admin")
    assert [row["name"] for row in stats["queues"]] == ["py.admin"], stats
    detail = await admin.get_queue_detail("py.admin")
    assert detail["totals"]["messages"]["total"] == 2, detail
    assert isinstance((await admin.get_analytics())["dataPoints"], list)
    assert (await admin.get_system_metrics())["replicas"][0]["workerId"] == 0
    assert isinstance((await admin.get_worker_metrics())["queues"], list)
    assert isinstance((await admin.get_postgres_stats())["tableSizes"], list)
    assert (await admin.refresh_consumer_stats())["queuesUpdated"] >= 1
    assert isinstance(await admin.get_lagging_consumers(0), list)
    assert "queues" not in await admin.get_consumer_group("py-nobody")
    # Other cases run meanwhile: nothing is switched on.
    assert (await admin.set_maintenance_mode(False))["maintenanceMode"] is False
    assert (await admin.get_maintenance_mode())["popMaintenanceMode"] is False
    assert (await admin.set_pop_maintenance_mode(False))["popMaintenanceMode"] is False
    assert (await admin.get_pop_maintenance_mode())["popMaintenanceMode"] is False
    assert await admin.metrics()


async def case_traces_are_left_and_found(queen):
    await push_numbers(queen.queue("py.trace"), range(1))

    async def handle(message):
        left = await message["trace"]({"traceName": ["py-trace"], "eventType": "step", "data": {"step": 7}})
        assert left["success"], left

    await queen.queue("py.trace").limit(1).each().consume(handle)
    names = await queen.admin.get_trace_names(limit=100)
    assert "py-trace" in [row["trace_name"] for row in names["trace_names"]], names
    traces = (await queen.admin.get_traces_by_name("py-trace"))["traces"]
    assert len(traces) == 1 and traces[0]["event_type"] == "step" and traces[0]["data"]["step"] == 7, traces
    row = traces[0]
    of_message = await queen.admin.get_traces_for_message(row["partition_id"], row["transaction_id"])
    assert len(of_message["traces"]) == 1, of_message


async def run(url, name, case):
    try:
        async with Queen(url) as queen:
            await asyncio.wait_for(case(queen), 60)
    except Exception:
        print(f"FAILED {name}\n{traceback.format_exc()}")
        return False
    print(f"ok {name}")
    return True


async def main(url):
    cases = {name: it for name, it in globals().items() if name.startswith("case_") and inspect.iscoroutinefunction(it)}
    passed = await asyncio.gather(*(run(url, name, case) for name, case in cases.items()))
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(asyncio.run(main(sys.argv[1])))
