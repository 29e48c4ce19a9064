//! Named situations that a good run of seeds has to meet: a promise that was never put to the test was not checked.
//!
//! Each is one line below; whoever notices it calls `Marks::hit`. The nightly run fails when one was not reached.

macro_rules! marks {
    ($($name:ident $text:literal;)*) => {
        /// A situation. Its text is its name for people and never changes its meaning.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Mark {
            $(#[doc = $text] $name,)*
        }

        /// All of them.
        pub const ALL: &[(Mark, &str)] = &[$((Mark::$name, $text),)*];
    };
}

marks! {
    PushQueued "push: stored";
    PushDuplicate "push: duplicate refused in the window";
    PushUnknown "push: outcome unknown";
    PushFailed "push: refused";
}

/// How often each situation occurred.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Marks {
    counts: [u32; ALL.len()],
}

impl Default for Marks {
    fn default() -> Self {
        Marks { counts: [0; ALL.len()] }
    }
}

impl Marks {
    /// It occurred.
    pub fn hit(&mut self, mark: Mark) {
        let count = &mut self.counts[mark as usize];
        *count = count.saturating_add(1);
    }

    /// How often it did.
    pub fn count(&self, mark: Mark) -> u32 {
        self.counts[mark as usize]
    }

    /// How many did.
    pub fn reached(&self) -> usize {
        self.counts.iter().filter(|count| **count > 0).count()
    }

    /// The texts of those that never did.
    pub fn unreached(&self) -> impl Iterator<Item = &'static str> {
        ALL.iter().filter(|(mark, _)| self.count(*mark) == 0).map(|(_, text)| *text)
    }

    /// Takes those of another run into account.
    pub fn add(&mut self, other: &Marks) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
    }
}
