//! tmp
#![allow(clippy::print_stdout)]
use tidegate_sim::duel::{self, Plan};
fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let start = std::time::Instant::now();
    let mut shown = 0;
    std::panic::set_hook(Box::new(|i| eprintln!("{i}")));
    for seed in a[0]..a[1] {
        let plan = Plan::random(seed, 200);
        let fails = |plan: &Plan| match std::panic::catch_unwind(|| duel::over_memory(plan)) {
            Ok(Ok(())) => None,
            Ok(Err(f)) => Some(f.to_string()),
            Err(_) => Some("panic".into()),
        };
        if let Some(why) = fails(&plan) {
            println!("seed {seed}: {why}");
            let small = duel::shrink(&plan, |p| fails(p).is_some());
            println!("{:?}", small.options);
            for s in &small.steps { println!("  {s:?}"); }
            println!("{}", fails(&small).unwrap());
            shown += 1;
            if shown == 4 { return; }
        }
    }
    println!("ok {:?}", start.elapsed());
}
