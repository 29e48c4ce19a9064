//! Every variable and flag: what it accepts, what it refuses, and that the refusal names it.

use super::*;

fn check<const N: usize>(variables: [(&str, &str); N]) -> Result<Settings, Wrong> {
    Settings::check(ServeFlags::default(), &Environment::from(variables))
}

fn flags(listen: &str) -> ServeFlags {
    ServeFlags { listen: Some(listen.into()), ..ServeFlags::default() }
}

fn refusal(name: &str, value: &str) -> String {
    match check([(name, value)]) {
        Err(wrong) => wrong.0,
        Ok(_) => panic!("{name}={value:?} was accepted"),
    }
}

#[test]
fn nothing_set_gives_the_documented_defaults() {
    let expected = Settings {
        listen: "127.0.0.1:6632".into(),
        advertise: None,
        store: Store::Memory,
        max_body_bytes: 67_108_864,
        default_timeout: Span::from_secs(30),
        default_start: StartFrom::All,
        hot_list: true,
        window_batch: 100,
        require_lease: false,
        dedup_cache_bytes: 512 << 20,
        refresh: Span::from_secs(60),
        retention: Retention {
            interval: Span::from_secs(5),
            batch: 1_000,
            partition_idle: Some(Span::from_days(30)),
            history_age: Span::from_days(90),
        },
        log_level: LevelFilter::INFO,
        log_format: LogFormat::Auto,
        without_effect: Vec::new(),
    };
    assert_eq!(check([]), Ok(expected.clone()));
    // An empty variable is one that is not set.
    assert_eq!(check([("PORT", ""), ("QUEEN_HOTLIST", " "), ("JWT_SECRET", "")]), Ok(expected));
}

#[test]
fn the_flag_goes_before_its_variable_and_that_before_port() {
    let listen = |flags, variables: [(&str, &str); 2]| Settings::check(flags, &variables.into()).map(|s| s.listen);
    let both = [("TIDEGATE_LISTEN", "0.0.0.0:2"), ("PORT", "3")];
    assert_eq!(listen(flags("[::1]:1"), both), Ok("[::1]:1".into()));
    assert_eq!(listen(ServeFlags::default(), both), Ok("0.0.0.0:2".into()));
    assert_eq!(listen(ServeFlags::default(), [("PORT", "3"), ("OTHER", "")]), Ok("127.0.0.1:3".into()));
    assert_eq!(listen(flags("localhost:0"), both), Ok("localhost:0".into()));
}

#[test]
fn every_value_is_read() {
    let settings = check([
        ("QUEEN_MAX_BODY_BYTES", "1024"),
        ("DEFAULT_TIMEOUT", "1500"),
        ("POP_DEFAULT_TIMEOUT_MS", "99"),
        ("DEFAULT_SUBSCRIPTION_MODE", "New-Only"),
        ("QUEEN_HOTLIST", "off"),
        ("QUEEN_HOTLIST_WINDOW_BATCH", "7"),
        ("TIDEGATE_REQUIRE_LEASE", "YES"),
        ("LOG_LEVEL", "DEBUG"),
        ("TIDEGATE_LOG_FORMAT", "json"),
        ("TIDEGATE_STORE", "memory"),
    ])
    .expect("all of these parse");
    assert_eq!(settings.max_body_bytes, 1_024);
    assert_eq!(settings.default_timeout, Span::from_millis(1_500));
    assert_eq!(settings.default_start, StartFrom::New);
    assert!(!settings.hot_list);
    assert_eq!(settings.window_batch, 7);
    assert!(settings.require_lease);
    assert_eq!(settings.log_level, LevelFilter::DEBUG);
    assert_eq!(settings.log_format, LogFormat::Json);
    let second = check([("POP_DEFAULT_TIMEOUT_MS", "99")]).map(|settings| settings.default_timeout);
    assert_eq!(second, Ok(Span::from_millis(99)));
}

#[test]
fn booleans_take_eight_words_in_any_case() {
    for word in ["true", "1", "yes", "on", "True", "ON", " yes "] {
        assert_eq!(check([("TIDEGATE_REQUIRE_LEASE", word)]).map(|s| s.require_lease), Ok(true), "{word}");
    }
    for word in ["false", "0", "no", "off", "FALSE", "No"] {
        assert_eq!(check([("QUEEN_HOTLIST", word)]).map(|s| s.hot_list), Ok(false), "{word}");
    }
}

#[test]
fn what_does_not_parse_names_its_variable_and_what_was_expected() {
    let numbers =
        ["PORT", "QUEEN_MAX_BODY_BYTES", "DEFAULT_TIMEOUT", "POP_DEFAULT_TIMEOUT_MS", "QUEEN_HOTLIST_WINDOW_BATCH"];
    for name in numbers {
        for value in ["abc", "-1", "1.5", "99999999999999999999", "0x10"] {
            let text = refusal(name, value);
            assert!(text.starts_with(name) && text.contains("a whole number from"), "{text}");
        }
    }
    for name in ["QUEEN_HOTLIST", "TIDEGATE_REQUIRE_LEASE", "JWT_ENABLED", "QUEEN_TENANCY_HEADER"] {
        let text = refusal(name, "maybe");
        assert!(text.starts_with(name) && text.contains("true or false"), "{text}");
    }
    for name in ["DEFAULT_SUBSCRIPTION_MODE", "LOG_LEVEL", "TIDEGATE_LOG_FORMAT"] {
        let text = refusal(name, "maybe");
        assert!(text.starts_with(name) && text.contains("one of "), "{text}");
    }
    for value in ["6632", "localhost", "http://localhost:1", "::1:5", "host:70000", ":5", "host:"] {
        let text = refusal("TIDEGATE_LISTEN", value);
        assert!(text.starts_with("TIDEGATE_LISTEN") && text.contains("host:port"), "{text}");
    }
    // What is overridden is checked as well.
    let text = Settings::check(flags("127.0.0.1:0"), &[("PORT", "x")].into()).map_err(|wrong| wrong.0);
    assert!(text.is_err_and(|text| text.starts_with("PORT")));
    let text = Settings::check(flags("nowhere"), &[].into()).map_err(|wrong| wrong.0);
    assert!(text.is_err_and(|text| text.starts_with("--listen is \"nowhere\"")));
}

#[test]
fn a_store_that_is_none_is_refused_without_repeating_its_password() {
    for address in ["postgres://u:hunter2@db:x/x", "mysql://u:hunter2@db/x", "disk"] {
        let text = refusal("TIDEGATE_STORE", address);
        assert!(text.starts_with("TIDEGATE_STORE") && text.contains("expected"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn variables_fill_what_the_url_of_a_database_leaves_out() {
    let url = |store: &str, variables: &[(&str, &str)]| {
        let mut all = vec![("TIDEGATE_STORE", store)];
        all.extend(variables);
        let environment = Environment::from_pairs(&all);
        match Settings::check(ServeFlags::default(), &environment).map(|settings| settings.store) {
            Ok(Store::Postgres(Postgres(settings))) => settings.url,
            other => panic!("{other:?}"),
        }
    };
    let filled =
        [("PG_HOST", "db"), ("PG_PORT", "6000"), ("PG_USER", "u"), ("PG_PASSWORD", "p w"), ("PG_DATABASE", "d")];
    assert_eq!(url("postgres://", &[]), "postgres://postgres@localhost:5432/postgres");
    assert_eq!(url("postgres://", &filled), "postgres://u:p%20w@db:6000/d");
    assert_eq!(url("postgres://a:b@c:1/e?sslmode=require", &filled), "postgres://a:b@c:1/e?sslmode=require");
    assert_eq!(url("postgresql://c/e", &[("PG_DB", "x")]), "postgresql://postgres@c:5432/e");
    assert!(refusal("PG_PORT", "x").starts_with("PG_PORT") && refusal("DB_POOL_SIZE", "0").starts_with("DB_POOL_SIZE"));
    let settings = check([("TIDEGATE_STORE", "postgres://u:hunter2@db/x")]).expect("a store");
    assert!(!format!("{settings:?}").contains("hunter2"));
}

#[test]
fn what_would_leave_messages_unprotected_stops_the_start() {
    let key = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    for (name, value) in [("JWT_ENABLED", "true"), ("QUEEN_TENANCY_HEADER", "1"), ("QUEEN_ENCRYPTION_KEY", key)] {
        let text = refusal(name, value);
        assert!(text.starts_with(name) && text.contains("this version cannot"), "{text}");
        assert!(!text.contains(key), "{text}");
    }
    assert!(check([("JWT_ENABLED", "false"), ("QUEEN_TENANCY_HEADER", "off")]).is_ok());
}

#[test]
fn variables_without_a_meaning_here_are_listed_by_name_alone() {
    let settings = check([
        ("POP_WAIT_MAX_INTERVAL_MS", "x"),
        ("QUEEN_V2_ZSTD_LEVEL", "3"),
        ("RETENTION_PARALLELISM", "1"),
        ("JWT_SECRET", "hunter2"),
        ("TIDEGATE_LISTNE", "127.0.0.1:1"),
        ("TIDEGATE_STORE", "memory"),
        ("HOME", "/"),
        ("QUEEN_SYNC_ENABLED", ""),
    ]);
    let expected =
        ["JWT_SECRET", "POP_WAIT_MAX_INTERVAL_MS", "QUEEN_V2_ZSTD_LEVEL", "RETENTION_PARALLELISM", "TIDEGATE_LISTNE"];
    assert_eq!(settings.map(|settings| settings.without_effect), Ok(expected.map(str::to_owned).to_vec()));
}

#[test]
fn the_command_line_is_consistent() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}

#[test]
fn others_must_be_able_to_reach_the_address() {
    let postgres = ("TIDEGATE_STORE", "postgres://db/queen");
    for listen in ["0.0.0.0:6632", "[::]:6632"] {
        let wrong = check([("TIDEGATE_LISTEN", listen), postgres]).expect_err("it names no machine").0;
        assert!(wrong.contains("--advertise") && wrong.contains(listen), "{wrong}");
        assert!(check([("TIDEGATE_LISTEN", listen)]).is_ok(), "in memory nobody needs to");
        let named = check([("TIDEGATE_LISTEN", listen), ("TIDEGATE_ADVERTISE", "http://10.0.0.5:6632/"), postgres]);
        assert_eq!(named.map(|settings| settings.advertise), Ok(Some("http://10.0.0.5:6632".into())));
    }
    for wrong in ["10.0.0.5:6632", "https://x", "http://", "http://x/path", "ftp://x"] {
        assert!(refusal("TIDEGATE_ADVERTISE", wrong).starts_with("TIDEGATE_ADVERTISE "), "{wrong}");
    }
}

#[test]
fn retention_has_the_defaults_of_the_wire_page_and_refuses_what_does_not_parse() {
    let set = [
        ("RETENTION_INTERVAL", "250"),
        ("RETENTION_BATCH_SIZE", "7"),
        ("PARTITION_CLEANUP_DAYS", "3"),
        ("METRICS_RETENTION_DAYS", "2"),
    ];
    let retention = check(set).expect("they parse").retention;
    let expected = Retention {
        interval: Span::from_millis(250),
        batch: 7,
        partition_idle: Some(Span::from_days(3)),
        history_age: Span::from_days(2),
    };
    assert_eq!(retention, expected);
    let never = check([("QUEEN_PARTITION_CLEANUP_ENABLED", "off")]).expect("it parses").retention;
    assert_eq!(never.partition_idle, None);
    for (name, _) in set.into_iter().chain([("QUEEN_PARTITION_CLEANUP_ENABLED", "")]) {
        for wrong in ["0", "-1", "1.5", "soon", "99999999999"] {
            if (name, wrong) != ("QUEEN_PARTITION_CLEANUP_ENABLED", "0") {
                let error = check([(name, wrong)]).expect_err("it does not parse").0;
                assert!(error.starts_with(name), "{error}");
            }
        }
    }
}
