//! What is said of a failing seed: what broke, how to see it again, and the list to keep.

use crate::list::List;
use crate::night;
use crate::shrink;

/// A failing run for people: what is wrong, the command that replays it, and the shortest list that still fails.
pub fn failure(list: &List, replay: &str) -> String {
    let Some(violation) = night::judge(list, false).violations.into_iter().next() else {
        return format!("{replay} fails no more\n");
    };
    let short = shrink::shrink(list);
    let last = night::judge(&short, false).violations.into_iter().next();
    let last = last.map_or_else(|| violation.what.clone(), |violation| violation.what);
    let quoted = last.lines().map(|line| format!("# {line}\n")).collect::<String>();
    format!(
        "FAILED: {}: {}\nagain:  {replay}\nshown:  {replay} --trace\nreduced from {} steps to {}; as a file of sim/corpus:\n\n# {}\n{quoted}{short}\n",
        violation.checker,
        violation.what,
        list.steps.len(),
        short.steps.len(),
        violation.checker,
    )
}
