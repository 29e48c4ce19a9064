//! The messages written last, in memory: consumers that keep up cause no reads.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tidegate_core::message::{SegmentSlice, StoredMessage};
use tidegate_core::name::{MessageId, PartitionId, TransactionId};
use tidegate_core::record::NewSegment;
use tidegate_core::store::{SegmentRead, Write};
use tidegate_core::time::Timestamp;

/// What a segment costs besides its messages, and a message besides its bytes.
const SEGMENT_OVERHEAD: usize = 160;
const MESSAGE_OVERHEAD: usize = 112;

struct Kept {
    created: Timestamp,
    base: MessageId,
    messages: Vec<StoredMessage>,
}

/// Segments under a budget; the oldest written go first.
pub(crate) struct Cache {
    budget: usize,
    used: usize,
    partitions: HashMap<PartitionId, BTreeMap<u64, Kept>>,
    order: VecDeque<(PartitionId, u64, usize)>,
}

impl Cache {
    pub(crate) fn new(budget: usize) -> Self {
        Cache { budget, used: 0, partitions: HashMap::new(), order: VecDeque::new() }
    }

    /// Keeps what a commit wrote, and forgets what it deleted.
    pub(crate) fn note(&mut self, writes: Vec<Write>) {
        for write in writes {
            match write {
                Write::Append(segment) => self.keep(segment),
                Write::Partition(record) if record.log_start > 0 => {
                    // Whole segments go: none reaches across the log start, but for one that nobody reads from its start.
                    if let Some(kept) = self.partitions.get_mut(&record.id) {
                        *kept = kept.split_off(&record.log_start);
                    }
                }
                Write::DropPartition(id) => {
                    self.partitions.remove(&id);
                }
                _ => {}
            }
        }
    }

    fn keep(&mut self, segment: NewSegment) {
        let NewSegment { partition, start, created, base, messages, .. } = segment;
        let size = messages.iter().map(|message| message.weight() + MESSAGE_OVERHEAD).sum::<usize>() + SEGMENT_OVERHEAD;
        if size > self.budget {
            return;
        }
        let messages = messages
            .into_iter()
            .map(|message| StoredMessage {
                transaction: message.transaction.map(TransactionId::into_text),
                payload: message.payload,
                trace: message.trace,
                producer: message.producer,
            })
            .collect();
        self.partitions.entry(partition).or_default().insert(start, Kept { created, base, messages });
        self.order.push_back((partition, start, size));
        self.used += size;
        while self.used > self.budget
            && let Some((partition, start, size)) = self.order.pop_front()
        {
            self.used -= size;
            if let Some(kept) = self.partitions.get_mut(&partition) {
                kept.remove(&start);
                if kept.is_empty() {
                    self.partitions.remove(&partition);
                }
            }
        }
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Forgets everything: what was acknowledged may be missing in the store, or another owner wrote.
    pub(crate) fn clear(&mut self) {
        *self = Cache::new(self.budget);
    }

    /// Answers reads of which every message is here.
    pub(crate) fn read_all(&mut self, reads: &[SegmentRead]) -> Option<Vec<Vec<SegmentSlice>>> {
        reads.iter().map(|read| self.read(read)).collect()
    }

    fn read(&self, read: &SegmentRead) -> Option<Vec<SegmentSlice>> {
        let kept = self.partitions.get(&read.partition).filter(|_| read.from < read.end)?;
        let (first, _) = kept.range(..=read.from).next_back()?;
        let mut next = read.from;
        let mut slices = Vec::new();
        for (&start, segment) in kept.range(first..).take_while(|(start, _)| **start < read.end) {
            let end = start + segment.messages.len() as u64;
            if start > next || end <= next {
                return None;
            }
            let (skip, stop) = ((next - start) as usize, (read.end.min(end) - start) as usize);
            slices.push(SegmentSlice {
                start: next,
                created: segment.created,
                base: segment.base.nth(skip as u32),
                messages: segment.messages.get(skip..stop)?.to_vec(),
            });
            next = end;
        }
        (next >= read.end).then_some(slices)
    }
}
