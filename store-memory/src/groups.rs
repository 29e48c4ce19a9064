//! Group names, each stored once: a cursor names its group by four bytes.

use hashbrown::HashTable;
use tidegate_core::name::{GroupName, TransactionHash};

/// A group's number in one slot.
pub(crate) type GroupIndex = u32;

#[derive(Clone)]
struct Row {
    name: GroupName,
    /// Cursors that name it; a row without any is free for another name.
    cursors: u64,
}

/// The names that cursors of one slot use.
#[derive(Clone, Default)]
pub(crate) struct Groups {
    rows: Vec<Row>,
    free: Vec<GroupIndex>,
    by_name: HashTable<GroupIndex>,
}

impl Groups {
    /// The group's number, if a cursor names it.
    pub(crate) fn find(&self, name: &GroupName) -> Option<GroupIndex> {
        self.by_name.find(hash(name), |index| self.rows[*index as usize].name == *name).copied()
    }

    /// The group's name.
    pub(crate) fn name(&self, index: GroupIndex) -> &GroupName {
        &self.rows[index as usize].name
    }

    /// The group's number for a cursor that does not exist yet.
    pub(crate) fn enter(&mut self, name: GroupName) -> GroupIndex {
        if let Some(index) = self.find(&name) {
            self.rows[index as usize].cursors += 1;
            return index;
        }
        let hash_of_name = hash(&name);
        let row = Row { name, cursors: 1 };
        let index = match self.free.pop() {
            Some(index) => {
                self.rows[index as usize] = row;
                index
            }
            None => {
                self.rows.push(row);
                (self.rows.len() - 1) as GroupIndex
            }
        };
        let rows = &self.rows;
        self.by_name.insert_unique(hash_of_name, index, |other| hash(&rows[*other as usize].name));
        index
    }

    /// A cursor of the group is gone.
    pub(crate) fn leave(&mut self, index: GroupIndex) {
        let row = &mut self.rows[index as usize];
        row.cursors -= 1;
        if row.cursors == 0 {
            let hash = hash(&row.name);
            if let Ok(entry) = self.by_name.find_entry(hash, |other| *other == index) {
                entry.remove();
            }
            self.free.push(index);
        }
    }
}

/// Any good hash does: the order of the table is never seen.
fn hash(name: &GroupName) -> u64 {
    TransactionHash::of(name.as_str()).0 as u64
}

#[cfg(test)]
impl Groups {
    /// Whether no cursor names a group.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty() && self.free.len() == self.rows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_as_long_as_cursors_use_it() {
        let name = |text: &str| GroupName::new(text).expect("a valid name");
        let mut groups = Groups::default();
        let (a, b) = (groups.enter(name("a")), groups.enter(name("b")));
        assert_eq!((groups.enter(name("a")), groups.find(&name("a")), groups.name(b)), (a, Some(a), &name("b")));
        groups.leave(a);
        assert_eq!(groups.find(&name("a")), Some(a));
        groups.leave(a);
        assert_eq!(groups.find(&name("a")), None);
        // Its number serves the next name.
        assert_eq!((groups.enter(name("c")), groups.find(&name("a"))), (a, None));
        groups.leave(a);
        groups.leave(b);
        assert!(groups.is_empty());
    }
}
