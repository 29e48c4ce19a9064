//! Where a group starts that is new somewhere.

use serde_json::{Value, json};

use crate::world::{World, encode, ids};

behaviour!(
    a_new_group_skips_the_backlog_and_nothing_else,
    an_empty_first_pop_registers_a_new_group,
    a_new_group_by_discovery_skips_the_backlog,
    an_unknown_start_is_refused_on_every_route,
    every_spelling_of_a_start_is_understood,
    queue_mode_has_no_subscription,
    a_group_starts_at_a_time,
    the_first_subscription_wins,
    one_partition_pops_do_not_register,
    a_one_partition_pop_stands_where_it_started,
    a_changed_time_counts_for_partitions_born_later,
    the_default_start_is_the_brokers,
    a_registration_outlives_a_restart,
);

// check: 17
async fn a_new_group_skips_the_backlog_and_nothing_else(world: World) {
    world.put_in("q", "a", &ids("old", 3)).await;
    assert!(world.pop("q", "consumerGroup=g&subscriptionMode=new").await.is_empty());
    world.put_in("q", "a", &["a1"]).await;
    world.put_in("q", "b", &["b1", "b2"]).await;
    assert_eq!(world.pop("q", "consumerGroup=g&subscriptionMode=new").await.ids(), ["a1"]);
    assert_eq!(world.pop("q", "consumerGroup=g").await.ids(), ["b1", "b2"], "from its first message");
    assert!(world.pop("q", "consumerGroup=g").await.is_empty());
    assert_eq!(
        world.pop("q", "consumerGroup=other").await.ids(),
        ids("old", 3).into_iter().chain(["a1".into()]).collect::<Vec<_>>()
    );
}

async fn an_empty_first_pop_registers_a_new_group(world: World) {
    assert!(world.pop("q", "consumerGroup=g&subscriptionMode=new").await.is_empty());
    world.put("q", &["x"]).await;
    assert_eq!(world.pop("q", "consumerGroup=g&subscriptionMode=new").await.ids(), ["x"]);
    // The same with a parked call, which registers when it comes and not when it is served.
    let (popped, ()) =
        tokio::join!(world.pop("r", "consumerGroup=g&subscriptionMode=new&wait=true&timeout=5000"), async {
            world.sleep(1).await;
            world.put("r", &["y"]).await;
        });
    assert_eq!(popped.ids(), ["y"]);
}

async fn a_new_group_by_discovery_skips_the_backlog(world: World) {
    world.put("n.1", &["old"]).await;
    world.put("n.2", &["old"]).await;
    assert!(world.discover("namespace=n&consumerGroup=g&subscriptionMode=new&partitions=0").await.is_empty());
    world.put("n.1", &["x"]).await;
    world.put("n.2", &["y"]).await;
    let popped = world.discover("namespace=n&consumerGroup=g&partitions=0").await;
    assert_eq!(popped.ids(), ["x", "y"]);
    // What discovery registered holds for the queue's own route, also on a partition born later.
    world.put_in("n.1", "born", &["z"]).await;
    assert_eq!(world.pop("n.1", "consumerGroup=g").await.ids(), ["z"]);
}

// check: 18
async fn an_unknown_start_is_refused_on_every_route(world: World) {
    world.put("q", &["x"]).await;
    for route in ["/api/v1/pop/queue/q?", "/api/v1/pop/queue/q/partition/Default?", "/api/v1/pop?namespace=q&"] {
        for (name, value) in [
            ("subscriptionFrom", "garbage"),
            ("subscriptionFrom", "2026-13-01T00:00:00Z"),
            ("subscriptionFrom", "yesterday"),
            ("subscriptionMode", "latest"),
            ("subscriptionMode", "NEW"),
            ("subscriptionMode", "al"),
        ] {
            let path = format!("{route}consumerGroup=g&{name}={value}");
            let error = world.get(&path).await.error(400);
            assert!(error.contains(name), "{path}: {error}");
            let known: &[&str] = if name == "subscriptionMode" { &["all", "new"] } else { &["now"] };
            assert!(known.iter().all(|word| error.contains(word)), "{path}: {error}");
        }
    }
    assert_eq!(world.get("/api/v1/consumer-groups").await.expect(200).text(), "[]", "nothing is registered");
    // So the first good one decides.
    assert!(world.pop("q", "consumerGroup=g&subscriptionMode=new").await.is_empty());
}

async fn every_spelling_of_a_start_is_understood(world: World) {
    world.put("q", &["old"]).await;
    let everything = ["", "subscriptionMode=all", "subscriptionMode=from_beginning", "subscriptionFrom="];
    let nothing = [
        "subscriptionMode=new",
        "subscriptionMode=new-only",
        "subscriptionFrom=now",
        "subscriptionMode=all&subscriptionFrom=now",
    ];
    for (n, query) in everything.into_iter().enumerate() {
        assert_eq!(world.pop("q", &format!("consumerGroup=all{n}&{query}")).await.ids(), ["old"], "{query}");
        assert_eq!(
            world.pop_partition("q", "Default", &format!("consumerGroup=one{n}&{query}")).await.ids(),
            ["old"],
            "{query}"
        );
    }
    for (n, query) in nothing.into_iter().enumerate() {
        assert!(world.pop("q", &format!("consumerGroup=new{n}&{query}")).await.is_empty(), "{query}");
        assert!(
            world.pop_partition("q", "Default", &format!("consumerGroup=skip{n}&{query}")).await.is_empty(),
            "{query}"
        );
    }
    world.put("q", &["x"]).await;
    for (n, query) in nothing.into_iter().enumerate() {
        assert_eq!(world.pop("q", &format!("consumerGroup=new{n}")).await.ids(), ["x"], "{query}");
        assert_eq!(
            world.pop_partition("q", "Default", &format!("consumerGroup=skip{n}")).await.ids(),
            ["x"],
            "{query}"
        );
    }
}

// check: 19
async fn queue_mode_has_no_subscription(world: World) {
    world.put("q", &["x"]).await;
    assert_eq!(world.pop("q", "subscriptionMode=new").await.ids(), ["x"]);
    world.put("r", &["x"]).await;
    assert_eq!(world.pop("r", "subscriptionFrom=now&consumerGroup=__QUEUE_MODE__").await.ids(), ["x"]);
    world.put("s", &["x"]).await;
    assert_eq!(world.pop_partition("s", "Default", "subscriptionMode=new").await.ids(), ["x"]);
}

async fn a_group_starts_at_a_time(world: World) {
    world.put("q", &["x1", "x2"]).await;
    world.sleep(10).await;
    world.put("q", &["y1", "y2"]).await;
    world.sleep(10).await;
    world.put("q", &["z"]).await;
    let everything = world.pop("q", "").await;
    let time = |id: &str| encode(everything.message(id)["createdAt"].as_str().expect("a text"));
    let from = |group: &str, time: &str| format!("consumerGroup={group}&subscriptionFrom={time}");
    for pop in ["queue", "partition", "labels"] {
        let ask = async |group: String, time: &str| {
            let query = from(&group, time);
            match pop {
                "queue" => world.pop("q", &query).await,
                "partition" => world.pop_partition("q", "Default", &query).await,
                _ => world.discover(&format!("namespace=q&{query}")).await,
            }
        };
        assert_eq!(
            ask(format!("{pop}1"), &time("y1")).await.ids(),
            ["y1", "y2", "z"],
            "{pop}: the segment of that time"
        );
        assert_eq!(ask(format!("{pop}2"), &time("z")).await.ids(), ["z"], "{pop}");
        assert_eq!(
            ask(format!("{pop}3"), "1970-01-01T00%3A00%3A00Z").await.ids(),
            ["x1", "x2", "y1", "y2", "z"],
            "{pop}"
        );
        assert!(ask(format!("{pop}4"), "2026-01-02T00%3A00%3A00Z").await.is_empty(), "{pop}: a time to come");
        // The time beats the mode.
        assert_eq!(ask(format!("{pop}5&subscriptionMode=new"), &time("z")).await.ids(), ["z"], "{pop}");
    }
}

async fn the_first_subscription_wins(world: World) {
    world.put("q", &["old"]).await;
    assert!(world.pop("q", "consumerGroup=g&subscriptionMode=new").await.is_empty());
    assert!(world.pop("q", "consumerGroup=g&subscriptionMode=all").await.is_empty());
    assert!(world.pop("q", "consumerGroup=g&subscriptionFrom=1970-01-01T00:00:00Z").await.is_empty());
    assert!(world.pop_partition("q", "Default", "consumerGroup=g").await.is_empty());
    world.put("q", &["x"]).await;
    assert_eq!(world.pop("q", "consumerGroup=g").await.ids(), ["x"]);
}

async fn one_partition_pops_do_not_register(world: World) {
    world.put_in("q", "a", &["a1"]).await;
    world.put_in("q", "b", &["b1"]).await;
    assert!(world.pop_partition("q", "a", "consumerGroup=g&subscriptionMode=new").await.is_empty());
    // The cursor stands on that partition alone; the first queue-wide pop decides about the others.
    assert_eq!(world.pop("q", "consumerGroup=g&partitions=0").await.ids(), ["b1"]);
}

async fn a_one_partition_pop_stands_where_it_started(world: World) {
    world.put("q", &["old"]).await;
    assert!(world.pop_partition("q", "Default", "consumerGroup=g&subscriptionFrom=now").await.is_empty());
    world.put("q", &["x"]).await;
    world.restart().await;
    assert_eq!(world.pop_partition("q", "Default", "consumerGroup=g").await.ids(), ["x"]);
}

async fn a_changed_time_counts_for_partitions_born_later(world: World) {
    world.put_in("q", "old", &["o"]).await;
    assert!(world.pop("q", "consumerGroup=g&subscriptionMode=new").await.is_empty());
    let change = async |group: &str, time: &str| {
        world
            .post(&format!("/api/v1/consumer-groups/{group}/subscription"), json!({"subscriptionTimestamp": time}))
            .await
    };
    let answer = change("g", "2026-01-01T01:00:00Z").await.expect(200).json();
    assert_eq!(
        answer,
        json!({"success": true, "consumerGroup": "g", "newTimestamp": "2026-01-01T01:00:00Z", "rowsUpdated": 1})
    );
    // No cursor moves: the old partition goes on from the registration.
    world.put_in("q", "old", &["x"]).await;
    assert_eq!(world.pop("q", "consumerGroup=g&autoAck=true").await.ids(), ["x"]);
    world.put_in("q", "born", &["early"]).await;
    assert!(world.pop("q", "consumerGroup=g").await.is_empty(), "before the new time");
    world.sleep(3_600).await;
    world.put_in("q", "born", &["late"]).await;
    assert_eq!(world.pop("q", "consumerGroup=g").await.ids(), ["late"]);

    let nobody = change("nobody", "2026-01-01T01:00:00Z").await.expect(200).json();
    assert_eq!((&nobody["success"], &nobody["rowsUpdated"]), (&Value::Bool(true), &json!(0)));
    for body in [json!({}), json!({"subscriptionTimestamp": ""}), json!({"subscriptionTimestamp": null})] {
        let error = world.post("/api/v1/consumer-groups/g/subscription", body).await.error(400);
        assert_eq!(error, "subscriptionTimestamp is required");
    }
}

async fn the_default_start_is_the_brokers(world: World) {
    world.restart_with(|settings| settings.default_start = tidegate_core::record::StartFrom::New).await;
    world.put("q", &["old"]).await;
    assert!(world.pop("q", "consumerGroup=g").await.is_empty());
    assert_eq!(world.pop("q", "consumerGroup=h&subscriptionMode=all").await.ids(), ["old"]);
    assert_eq!(world.pop("q", "").await.ids(), ["old"], "queue mode has none");
    world.put("q", &["x"]).await;
    assert_eq!(world.pop("q", "consumerGroup=g").await.ids(), ["x"]);
}

async fn a_registration_outlives_a_restart(world: World) {
    world.put_in("q", "a", &["old"]).await;
    assert!(world.pop("q", "consumerGroup=g&subscriptionMode=new").await.is_empty());
    world.put_in("q", "b", &["x"]).await;
    world.restart().await;
    world.put_in("q", "a", &["y"]).await;
    let popped = world.pop("q", "consumerGroup=g&partitions=0").await;
    let mut ids = popped.ids();
    ids.sort_unstable();
    assert_eq!(ids, ["x", "y"]);
}
