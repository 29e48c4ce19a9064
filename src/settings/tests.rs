//! Every variable and flag: what it accepts, what it refuses, and that the refusal names it.

use tidegate_core::seal::Key;
use tidegate_transport_http::{Algorithms, TokenRules};

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
        keys: Keys::default(),
        tokens: None,
        tenants: false,
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
fn encryption_keys_are_64_hexadecimal_characters() {
    // req: OPT-23
    let (one, two) = ("00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF", "ab".repeat(32));
    let keys = |variables: &[(&str, &str)]| {
        Settings::check(ServeFlags::default(), &Environment::from_pairs(variables)).map(|settings| settings.keys)
    };
    let both = keys(&[("QUEEN_ENCRYPTION_KEY", one), ("QUEEN_ENCRYPTION_KEY_PREVIOUS", &format!("{two}, {one},"))]);
    let key = |text: &str| Key::from_hex(text).expect("a key");
    assert_eq!(both, Ok(Keys { current: Some(key(one)), previous: vec![key(&two), key(one)] }));
    assert_eq!(keys(&[("QUEEN_ENCRYPTION_KEY", " ")]), Ok(Keys::default()));
    for wrong in ["hunter2", &one[1..], &format!("{one}0"), &one.replace('0', "g"), &format!("{one},{two}")] {
        for name in ["QUEEN_ENCRYPTION_KEY", "QUEEN_ENCRYPTION_KEY_PREVIOUS"] {
            if name.ends_with("PREVIOUS") && wrong.contains(',') {
                continue;
            }
            let text = refusal(name, wrong);
            assert!(text.starts_with(name) && text.contains("64 hexadecimal characters"), "{text}");
            assert!(!text.contains(wrong), "{text}");
        }
    }
    let shown = format!("{:?}", check([("QUEEN_ENCRYPTION_KEY", one)]));
    assert!(!shown.contains("0011") && !shown.contains("17, 34"), "{shown}");
}

#[test]
fn tokens_are_checked_with_what_is_set() {
    let secret = "hunter2-hunter2-hunter2-hunter2-hunter2";
    let tokens = |variables: &[(&str, &str)]| {
        let mut all = vec![("JWT_ENABLED", "true")];
        all.extend(variables);
        let settings = Settings::check(ServeFlags::default(), &Environment::from_pairs(&all));
        settings.map(|settings| (settings.tokens.expect("they are checked"), settings.without_effect))
    };
    let (of_secret, idle) = tokens(&[("JWT_SECRET", secret)]).expect("a secret is enough");
    assert_eq!((of_secret.rules, of_secret.set, idle), (TokenRules::default(), None, Vec::new()));
    let pem = include_str!("../../transport-http/src/auth/keys/ed25519.pub.pem").replace('\n', "\\n");
    let (all, _) = tokens(&[
        ("JWT_ALGORITHM", "eddsa"),
        ("JWT_PUBLIC_KEY", &pem),
        ("JWT_ISSUER", "i"),
        ("JWT_AUDIENCE", "a"),
        ("JWT_CLOCK_SKEW", "0"),
        ("JWT_SKIP_PATHS", "/health, /docs/,"),
    ])
    .expect("all of these parse");
    let expected = TokenRules {
        algorithms: Algorithms::WORDS[6].1,
        issuer: Some("i".into()),
        audience: Some("a".into()),
        skew_seconds: 0,
        skip_paths: vec!["/health".into(), "/docs/".into()],
    };
    assert_eq!(all.rules, expected);
    let (file, _) = tokens(&[("JWT_ALGORITHM", "auto"), ("JWT_JWKS_FILE", "/keys.json")]).expect("it is read later");
    assert_eq!(file.set, Some("/keys.json".into()));
    for (variables, expected) in [
        (&[][..], "JWT_ENABLED is set without a key"),
        (&[("JWT_SECRET", secret), ("JWT_ALGORITHM", "RS256")], "JWT_ENABLED is set without a key"),
        (&[("JWT_PUBLIC_KEY", &pem)], "JWT_ENABLED is set without a key"),
        (&[("JWT_SECRET", secret), ("JWT_JWKS_URL", "https://x")], "JWT_JWKS_URL is set"),
        (&[("JWT_SECRET", secret), ("JWT_SECRT", secret)], "JWT_SECRT is set, but has no meaning"),
    ] {
        let text = tokens(variables).expect_err(expected).0;
        assert!(text.starts_with(expected) && !text.contains("hunter2"), "{text}");
    }
    // Wrong values stop the start even where tokens are not checked.
    for (name, value, expected) in [
        ("JWT_ALGORITHM", "none", "one of HS256"),
        ("JWT_ALGORITHM", "ES256", "one of HS256"),
        ("JWT_PUBLIC_KEY", "hunter2", "is no public key"),
        ("JWT_CLOCK_SKEW", "-1", "a whole number"),
        ("JWT_CLOCK_SKEW", "x", "a whole number"),
        ("JWT_SKIP_PATHS", "health", "begin with a slash"),
    ] {
        let text = refusal(name, value);
        assert!(text.starts_with(name) && text.contains(expected) && !text.contains("hunter2"), "{text}");
    }
    let shown = format!("{:?}", tokens(&[("JWT_SECRET", secret)]));
    assert!(!shown.contains("hunter2"), "{shown}");
    assert_eq!(check([("JWT_ENABLED", "off"), ("QUEEN_TENANCY_HEADER", "on")]).map(|it| it.tenants), Ok(true));
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

#[test]
fn an_advertised_address_is_a_bare_one() {
    let advertised = |value| check([("TIDEGATE_ADVERTISE", value)]).map(|settings| settings.advertise);
    assert_eq!(advertised("http://10.0.0.5:6632/"), Ok(Some("http://10.0.0.5:6632".into())));
    for wrong in ["x", "http://", "https://h:1", "http://h:99999", "http://h:1/path", "http://h:1?q", "http://u:p@h:1"]
    {
        let said = refusal("TIDEGATE_ADVERTISE", wrong);
        assert!(said.contains("TIDEGATE_ADVERTISE") && said.contains("expected an HTTP address"), "{said}");
    }
}
