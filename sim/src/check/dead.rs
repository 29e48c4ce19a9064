//! A dead letter is filed once, with the step of the cursor over its message, and names what it was (S14).

use super::shadow::Shadow;
use crate::history::{Committed, Findings, Written};

pub fn law(shadow: &Shadow, commit: &Committed, place: u32, findings: &mut Findings) {
    let letters = commit.writes.iter().filter_map(|write| match write {
        Written::DeadLetter { partition, group, offset, message, retries, .. } => {
            Some((*partition, *group, *offset, *message, *retries))
        }
        _ => None,
    });
    let letters: Vec<_> = letters.collect();
    for (n, (partition, group, offset, message, retries)) in letters.iter().enumerate() {
        let Some(row) = shadow.partition(*partition) else { continue };
        let (old, what) = (row.cursor(*group), message.0);
        if row.log.get(*offset as usize).is_none_or(|stored| stored.message != *message) {
            findings.violate("dead-letter", place, || {
                format!("message {what} is filed as dead at {offset}, where it is not")
            });
        }
        let stepped = commit.writes.iter().any(|write| {
            matches!(write, Written::Cursor { partition: p, group: g, next, .. } if (p, g) == (partition, group) && *next == offset + 1)
        });
        if !stepped || old.is_some_and(|old| *offset < old.next) {
            findings.violate("dead-letter", place, || {
                format!("message {what} is filed as dead and the cursor does not step over it")
            });
        }
        if letters[..n].iter().any(|other| (other.0, other.1, other.2) == (*partition, *group, *offset)) {
            findings.violate("dead-letter", place, || format!("message {what} is filed as dead twice"));
        }
        if old.is_some_and(|old| old.retries != *retries) {
            findings.violate("dead-letter", place, || {
                format!("message {what} is filed with {retries} retries, not {old:?}")
            });
        }
    }
}
