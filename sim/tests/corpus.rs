//! Lists that once failed, and that show what a checker has to find: none fails any more.

use std::fs;
use std::path::Path;

use tidegate_sim::{list, night};

#[test]
fn no_list_of_the_corpus_fails() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut seen = 0;
    let mut failed = Vec::new();
    for entry in fs::read_dir(folder).expect("the corpus is there") {
        let path = entry.expect("the corpus is readable").path();
        let text = fs::read_to_string(&path).expect("a list is text");
        let list = list::parse(&text).unwrap_or_else(|wrong| panic!("{}: {wrong}", path.display()));
        assert_eq!(list::parse(&list.to_string()).as_ref(), Ok(&list), "{} reads back", path.display());
        if let Some(violation) = night::judge(&list, false).violations.first() {
            failed.push(format!("{}: {}: {}", path.display(), violation.checker, violation.what));
        }
        seen += 1;
    }
    assert!(seen > 0, "the corpus is empty");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
