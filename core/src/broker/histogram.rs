//! Counts by size, for the shell to export.

/// How many buckets a histogram has: one for each bound, and one for what is above the last.
const BUCKETS: usize = 14;

/// How often something of which size was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    bounds: &'static [u64; BUCKETS - 1],
    counts: [u64; BUCKETS],
    sum: u64,
}

/// Milliseconds.
pub const AGES: [u64; BUCKETS - 1] =
    [1, 5, 10, 50, 100, 500, 1_000, 5_000, 30_000, 300_000, 3_600_000, 21_600_000, 86_400_000];
/// Writes.
pub const SIZES: [u64; BUCKETS - 1] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096];

impl Histogram {
    pub(super) const fn new(bounds: &'static [u64; BUCKETS - 1]) -> Self {
        Histogram { bounds, counts: [0; BUCKETS], sum: 0 }
    }

    /// Notes `count` things of one size.
    pub(super) fn note(&mut self, size: u64, count: u64) {
        let at = self.bounds.partition_point(|bound| *bound < size);
        self.counts[at.min(BUCKETS - 1)] += count;
        self.sum = self.sum.saturating_add(size.saturating_mul(count));
    }

    pub(super) fn add(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Each bound with how many were not above it, and how many there were in all.
    pub fn buckets(&self) -> (impl Iterator<Item = (u64, u64)> + '_, u64) {
        let mut so_far = 0;
        let up_to = self.bounds.iter().zip(self.counts).map(move |(bound, count)| {
            so_far += count;
            (*bound, so_far)
        });
        (up_to, self.counts.iter().sum())
    }

    /// All sizes added up.
    pub fn sum(&self) -> u64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_size_counts_up_to_its_bound() {
        let mut sizes = Histogram::new(&SIZES);
        for (size, count) in [(1, 2), (3, 1), (4, 1), (5_000, 1)] {
            sizes.note(size, count);
        }
        let mut twice = sizes.clone();
        twice.add(&sizes);
        let (buckets, all) = twice.buckets();
        let buckets: Vec<_> = buckets.collect();
        assert_eq!((&buckets[..4], buckets[12], all), (&[(1, 4), (2, 4), (4, 8), (8, 8)][..], (4_096, 8), 10));
        assert_eq!(twice.sum(), 2 * (2 + 3 + 4 + 5_000));
    }
}
