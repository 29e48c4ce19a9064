//! Names and numbers: what the brokers are told is text and ids, what the history says is numbers.
//!
//! Names are made from numbers and read back from their digits; ids, which brokers make, get numbers at first sight.

use bytes::Bytes;
use compact_str::{CompactString, format_compact};
use tidegate_core::message::{NewMessage, StoredMessage};
use tidegate_core::name::{
    DeadLetterId, GroupName, LeaseId, MessageId, PartitionId, PartitionName, QueueId, QueueName, TenantId,
    TransactionId,
};
use tidegate_core::options::{Labels, QueueOptions};
use tidegate_core::record::StartFrom;
use tidegate_core::store::{Slot, Write};
use tidegate_core::time::Timestamp;
use uuid::Uuid;

use crate::history::{
    Appended, DeadLetterNo, GroupNo, Interner, Key, LaneNo, LeaseNo, Leased, MessageNo, Options, PartitionNo,
    PayloadNo, QueueIdNo, QueueNo, Start, TenantNo, TextNo, Written,
};
use crate::setup::Setup;

/// Everything that has a number.
pub struct Names {
    queues: u16,
    lanes: u16,
    /// By tenant.
    pub tenants: Vec<TenantId>,
    /// By tenant: the place of its slot among those that the world has.
    pub slots: Vec<Slot>,
    queue_names: Vec<QueueName>,
    lane_names: Vec<PartitionName>,
    group_names: Vec<GroupName>,
    messages: Interner<u128>,
    partitions: Interner<u128>,
    leases: Interner<u128>,
    dead_letters: Interner<u128>,
    queue_ids: Interner<u128>,
    /// By incarnation.
    queue_of: Vec<QueueNo>,
    /// By partition.
    lane_of: Vec<LaneNo>,
    /// Texts and payloads that were given out.
    pub texts: u32,
    payloads: u32,
}

impl Names {
    /// The names of a world.
    pub fn new(setup: &Setup) -> Self {
        let (queues, lanes) = (setup.queues as u16, setup.lanes as u16);
        let mut tenants = Vec::new();
        let mut slots = Vec::new();
        // The default tenant, and others each in a slot that none before it has.
        for number in 1u128.. {
            let tenant = TenantId(Uuid::from_u128(number));
            let slot = tidegate_core::fleet::slot_of(tenant);
            if !slots.contains(&slot) {
                tenants.push(tenant);
                slots.push(slot);
            }
            if tenants.len() == setup.tenants as usize {
                break;
            }
        }
        let valid = "a short name is valid";
        Names {
            queues,
            lanes,
            tenants,
            slots,
            queue_names: (0..queues)
                .map(|n| QueueName::new(&format_compact!("n{}.q{n}", namespace_of(n))).expect(valid))
                .collect(),
            lane_names: (0..lanes).map(|n| PartitionName::new(&format_compact!("p{n}")).expect(valid)).collect(),
            group_names: (0..=setup.groups)
                .map(|n| match n {
                    0 => GroupName::queue_mode(),
                    n => GroupName::new(&format_compact!("g{n}")).expect(valid),
                })
                .collect(),
            messages: Interner::default(),
            partitions: Interner::default(),
            leases: Interner::default(),
            dead_letters: Interner::default(),
            queue_ids: Interner::default(),
            queue_of: Vec::new(),
            lane_of: Vec::new(),
            texts: 0,
            payloads: 0,
        }
    }

    /// Lanes of all tenants.
    pub fn lane_count(&self) -> u16 {
        self.tenants.len() as u16 * self.queues * self.lanes
    }

    /// Queues of all tenants.
    pub fn queue_count(&self) -> u16 {
        self.tenants.len() as u16 * self.queues
    }

    /// Groups, the queue mode's included.
    pub fn group_count(&self) -> u16 {
        self.group_names.len() as u16
    }

    /// A tenant's lane by any number.
    pub fn lane_of_tenant(&self, tenant: TenantNo, number: u16) -> LaneNo {
        let own = self.queues * self.lanes;
        LaneNo(tenant.0 * own + number % own)
    }

    /// The queue of a lane.
    pub fn queue_of_lane(&self, lane: LaneNo) -> QueueNo {
        QueueNo(lane.0 / self.lanes)
    }

    /// The tenant of a queue.
    pub fn tenant_of_queue(&self, queue: QueueNo) -> TenantNo {
        TenantNo(queue.0 / self.queues)
    }

    /// The namespace of a queue.
    pub fn namespace_of_queue(&self, queue: QueueNo) -> u16 {
        namespace_of(queue.0 % self.queues)
    }

    /// A queue's name.
    pub fn queue_name(&self, queue: QueueNo) -> QueueName {
        self.queue_names[usize::from(queue.0 % self.queues)].clone()
    }

    /// A lane's partition name.
    pub fn partition_name(&self, lane: LaneNo) -> PartitionName {
        self.lane_names[usize::from(lane.0 % self.lanes)].clone()
    }

    /// A group's name.
    pub fn group_name(&self, group: GroupNo) -> GroupName {
        self.group_names[group.index()].clone()
    }

    /// The group behind a name.
    pub fn group(&self, name: &GroupName) -> GroupNo {
        GroupNo(if name.is_queue_mode() { 0 } else { digits(&name.as_str()[1..]) as u16 })
    }

    /// The queue behind a name, of a tenant.
    pub fn queue(&self, tenant: TenantNo, name: &QueueName) -> QueueNo {
        let at = name.as_str().find('q').map_or(0, |at| at + 1);
        QueueNo(tenant.0 * self.queues + digits(&name.as_str()[at..]) as u16)
    }

    /// The lane behind a partition's name.
    pub fn lane(&self, queue: QueueNo, name: &PartitionName) -> LaneNo {
        LaneNo(queue.0 * self.lanes + digits(&name.as_str()[1..]) as u16)
    }

    /// A tenant by its id.
    pub fn tenant(&self, id: TenantId) -> TenantNo {
        TenantNo(self.tenants.iter().position(|known| *known == id).unwrap_or(0) as u16)
    }

    /// A new transaction id.
    pub fn new_text(&mut self) -> TextNo {
        self.texts += 1;
        TextNo(self.texts - 1)
    }

    /// A new content.
    pub fn new_payload(&mut self) -> PayloadNo {
        self.payloads += 1;
        PayloadNo(self.payloads - 1)
    }

    /// A message as a broker is given it.
    pub fn message(&self, text: Option<TextNo>, payload: PayloadNo) -> NewMessage {
        NewMessage {
            transaction: text.map(text_id),
            payload: Bytes::copy_from_slice(format_compact!("{}", payload.0).as_bytes()),
            trace: None,
            producer: None,
        }
    }

    /// A transaction id as a broker is told it.
    pub fn key_id(&self, key: Key) -> TransactionId {
        match key {
            Key::Given(text) => text_id(text),
            Key::Own(message) => {
                let id = self.messages.key(message.0).copied().unwrap_or_default();
                TransactionId::new(&MessageId(Uuid::from_u128(id)).to_text()).expect("a UUID is short")
            }
        }
    }

    /// The transaction id of a message, by its text.
    pub fn key(&mut self, text: Option<&str>, id: MessageNo) -> Key {
        match text {
            None => Key::Own(id),
            Some(text) => match text.strip_prefix('t') {
                Some(number) => Key::Given(TextNo(digits(number))),
                // A replayed message's is the text of the message that failed.
                None => Key::Own(self.message_no_of(Uuid::parse_str(text).unwrap_or_default().as_u128())),
            },
        }
    }

    fn message_no_of(&mut self, id: u128) -> MessageNo {
        MessageNo(self.messages.of(&id))
    }

    /// A message's number.
    pub fn message_no(&mut self, id: MessageId) -> MessageNo {
        self.message_no_of(id.0.as_u128())
    }

    /// A partition's number.
    pub fn partition_no(&mut self, id: PartitionId) -> PartitionNo {
        PartitionNo(self.partitions.of(&id.0.as_u128()))
    }

    /// The queue of a partition that was committed.
    pub fn queue_of_partition(&self, partition: PartitionNo) -> QueueNo {
        self.queue_of_lane(self.lane_of.get(partition.index()).copied().unwrap_or_default())
    }

    /// The partition behind a number.
    pub fn partition_id(&self, number: PartitionNo) -> PartitionId {
        PartitionId(Uuid::from_u128(self.partitions.key(number.0).copied().unwrap_or_default()))
    }

    /// A lease's number.
    pub fn lease_no(&mut self, id: LeaseId) -> LeaseNo {
        LeaseNo(self.leases.of(&id.0.as_u128()))
    }

    /// The lease behind a number.
    pub fn lease_id(&self, number: LeaseNo) -> LeaseId {
        LeaseId(Uuid::from_u128(self.leases.key(number.0).copied().unwrap_or_default()))
    }

    /// A dead letter's number.
    pub fn dead_letter_no(&mut self, id: DeadLetterId) -> DeadLetterNo {
        DeadLetterNo(self.dead_letters.of(&id.0.as_u128()))
    }

    /// An incarnation's number.
    pub fn queue_id_no(&mut self, id: QueueId) -> QueueIdNo {
        QueueIdNo(self.queue_ids.of(&id.0.as_u128()))
    }

    /// A stored message's key and content.
    pub fn stored(&mut self, message: &StoredMessage, id: MessageNo) -> (Key, PayloadNo) {
        (self.key(message.transaction.as_deref(), id), payload_no(&message.payload))
    }

    /// What a commit's writes say in numbers.
    pub fn written(&mut self, writes: &[Write]) -> Vec<Written> {
        writes.iter().map(|write| self.one_written(write)).collect()
    }

    fn one_written(&mut self, write: &Write) -> Written {
        match write {
            Write::Queue(queue) => {
                let id = self.queue_id_no(queue.id);
                let number = self.queue(self.tenant(queue.tenant), &queue.name);
                if self.queue_of.len() <= id.index() {
                    self.queue_of.resize(id.index() + 1, QueueNo(0));
                }
                self.queue_of[id.index()] = number;
                Written::Queue { id, queue: number, options: Box::new(options_back(&queue.options, &queue.labels)) }
            }
            Write::EndQueue(id) => Written::EndQueue { id: self.queue_id_no(*id) },
            Write::Partition(record) => {
                let queue = self.queue_id_no(record.queue);
                let of = self.queue_of.get(queue.index()).copied().unwrap_or_default();
                let (partition, lane) = (self.partition_no(record.id), self.lane(of, &record.name));
                if self.lane_of.len() <= partition.index() {
                    self.lane_of.resize(partition.index() + 1, LaneNo(0));
                }
                self.lane_of[partition.index()] = lane;
                Written::Partition { partition, queue, lane, log_start: record.log_start }
            }
            Write::Append(segment) => {
                let messages = (0u32..).zip(&segment.messages).map(|(n, message)| {
                    let number = self.message_no(segment.base.nth(n));
                    let key = self.key(message.transaction.as_ref().map(TransactionId::as_str), number);
                    Appended { message: number, key, payload: payload_no(&message.payload) }
                });
                let messages = messages.collect();
                Written::Append {
                    partition: self.partition_no(segment.partition),
                    start: segment.start,
                    created: segment.created.as_micros(),
                    messages,
                }
            }
            Write::Cursor(record) => Written::Cursor {
                partition: self.partition_no(record.partition),
                group: self.group(&record.group),
                next: record.cursor.next,
                retries: record.cursor.retries,
                consumed: record.cursor.consumed,
                lease: record.cursor.lease.map(|lease| Leased {
                    lease: self.lease_no(lease.id),
                    expires: lease.expires.as_micros(),
                    end: lease.end,
                }),
            },
            Write::DropCursor { partition, group } => {
                Written::DropCursor { partition: self.partition_no(*partition), group: self.group(group) }
            }
            Write::Subscription(record) => Written::Subscription {
                queue: self.queue_id_no(record.queue),
                group: self.group(&record.group),
                start: match record.start {
                    StartFrom::All => Start::All,
                    StartFrom::New => Start::New,
                    StartFrom::Time(time) => Start::Time(time.as_micros()),
                },
                registered: record.registered.as_micros(),
                changed: record.changed.map(Timestamp::as_micros),
            },
            Write::DropSubscription { queue, group } => {
                Written::DropSubscription { queue: self.queue_id_no(*queue), group: self.group(group) }
            }
            Write::DeadLetter(record) => Written::DeadLetter {
                id: self.dead_letter_no(record.head.id),
                partition: self.partition_no(record.head.partition),
                group: self.group(&record.head.group),
                offset: record.head.offset,
                message: self.message_no(record.head.message),
                retries: record.head.retries,
            },
            // Retention's: no world has it yet.
            Write::DropPartition(_) => Written::Other(0),
            Write::History(_) => Written::Other(1),
            // What no step asks for, and what a minute leaves behind.
            Write::Trace(_) => Written::Other(2),
            Write::Activity(_) => Written::Other(3),
            Write::DropActivity { .. } => Written::Other(4),
            Write::DropDeadLetter(id) => Written::DropDeadLetter { id: self.dead_letter_no(*id) },
        }
    }
}

/// Neighbouring queues have different namespaces.
fn namespace_of(queue: u16) -> u16 {
    queue % 2
}

fn digits(text: &str) -> u32 {
    text.bytes().fold(0, |sum, byte| sum.wrapping_mul(10).wrapping_add(u32::from(byte.wrapping_sub(b'0'))))
}

fn text_id(text: TextNo) -> TransactionId {
    TransactionId::new(&format_compact!("t{}", text.0)).expect("a short id is valid")
}

/// The number of a content. A broker that changed a byte has made another one.
pub fn payload_no(payload: &[u8]) -> PayloadNo {
    PayloadNo(std::str::from_utf8(payload).ok().and_then(|text| text.parse().ok()).unwrap_or(u32::MAX))
}

/// Options as a broker is given them, and the labels that go with them.
pub fn options_of(options: &Options) -> (QueueOptions, Labels) {
    let all = QueueOptions {
        lease_time: options.lease_time,
        retry_limit: options.retry_limit,
        dead_letter_queue: options.dead_letters,
        dlq_after_max_retries: options.dead_letters,
        delayed_processing: options.delayed_processing,
        window_buffer: options.window_buffer,
        retention_enabled: options.retention_enabled,
        retention_seconds: options.retention,
        completed_retention_seconds: options.completed_retention,
        max_wait_time_seconds: options.max_wait_time,
        min_pop_wait_time: options.min_pop_wait_millis,
        encryption_enabled: options.encryption,
        dedup_window_seconds: options.dedup_window,
        ..QueueOptions::configured()
    };
    let labels = Labels { namespace: namespace_text(options.namespace), task: CompactString::default() };
    (all, labels)
}

/// A namespace's text.
pub fn namespace_text(namespace: u16) -> CompactString {
    format_compact!("n{namespace}")
}

fn options_back(options: &QueueOptions, labels: &Labels) -> Options {
    Options {
        lease_time: options.lease_time,
        retry_limit: options.retry_limit,
        dead_letters: options.dead_letters(),
        delayed_processing: options.delayed_processing,
        window_buffer: options.window_buffer,
        retention_enabled: options.retention_enabled,
        retention: options.retention_seconds,
        completed_retention: options.completed_retention_seconds,
        max_wait_time: options.max_wait_time_seconds,
        min_pop_wait_millis: options.min_pop_wait_time,
        encryption: options.encryption_enabled,
        dedup_window: options.dedup_window_seconds,
        namespace: labels.namespace.get(1..).map_or(u16::MAX, |text| digits(text) as u16),
    }
}
