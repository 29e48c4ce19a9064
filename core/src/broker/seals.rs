//! Where payloads are sealed on their way to the store, and opened on their way out (OPT-22, OPT-23). In between, in
//! commits, caches and dead letters, they are what is stored.

use bytes::Bytes;

use super::Broker;
use super::tables::PartitionIx;
use crate::error::Rejection;
use crate::message::NewMessage;
use crate::name::{MessageId, PartitionId, QueueId, QueueName, TenantId};
use crate::options::QueueOptions;
use crate::seal::{self, Key, Opened, Place, Version};

impl Broker {
    /// What messages of a queue with these options are sealed with; none where they stay as they are. Whoever appends
    /// has to have asked: without a key nothing may be stored in plain text instead.
    pub(super) fn sealing(&self, options: &QueueOptions) -> Result<Option<Key>, Rejection> {
        match options.encryption_enabled {
            false => Ok(None),
            true => self.settings.keys.current.clone().map(Some).ok_or(Rejection::NoKey),
        }
    }

    /// `sealing` for a queue by name; one that does not exist yet is made without encryption.
    pub(super) fn sealing_of(&self, tenant: TenantId, queue: &QueueName) -> Result<Option<Key>, Rejection> {
        match self.tables.find_queue(tenant, queue) {
            Some(queue) => self.sealing(&self.tables.queue(queue).record.options),
            None => Ok(None),
        }
    }

    /// Seals a message for the place that it is being appended to.
    pub(super) fn seal(
        &mut self,
        key: &Key,
        partition: PartitionIx,
        id: MessageId,
        message: NewMessage,
    ) -> Option<NewMessage> {
        let row = self.tables.partition(partition);
        let place = Place { queue: self.tables.queue(row.queue).record.id, partition: row.id, message: id };
        let payload = key.seal(&place, &message.payload, &mut self.entropy)?;
        self.counters.sealed += 1;
        Some(NewMessage { payload, ..message })
    }

    /// A stored payload as it was pushed, and whether it was sealed.
    pub(super) fn opened(
        &mut self,
        queue: QueueId,
        partition: PartitionId,
        message: MessageId,
        payload: Bytes,
    ) -> (Bytes, bool) {
        match self.settings.keys.open(&Place { queue, partition, message }, &payload) {
            Opened::Plain => (payload, false),
            Opened::Text(text) => {
                self.counters.opened += 1;
                (text, true)
            }
            Opened::Closed(_) => {
                self.counters.unopened += 1;
                (payload, false)
            }
        }
    }

    /// A dead letter's payload as it was pushed, for the way back. One that is bound to its old place and does not open
    /// must stay there: at its new place even the right key would not open it.
    pub(super) fn unbound(&mut self, place: Place, payload: Bytes) -> Result<Bytes, Rejection> {
        match self.settings.keys.open(&place, &payload) {
            Opened::Text(text) => {
                self.counters.opened += 1;
                Ok(text)
            }
            Opened::Closed(Version::Bound) => Err(Rejection::ForeignKey),
            Opened::Plain if seal::is_bound(&payload) => Err(Rejection::ForeignKey),
            Opened::Plain | Opened::Closed(Version::Bare) => Ok(payload),
        }
    }
}

/// What a message weighs once it is stored, in bytes.
pub(super) fn stored_weight(message: &NewMessage, key: Option<&Key>) -> usize {
    match key {
        None => message.weight(),
        Some(_) => message.weight() - message.payload.len() + seal::sealed_len(message.payload.len()),
    }
}
