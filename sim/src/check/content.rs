//! A message is one that somebody pushed, under one id, with one content, at one place, for ever (S2, S4).

use hashbrown::HashMap;

use crate::history::{
    Answer, Checker, Event, Findings, Key, LaneNo, MessageNo, Operation, Part, PartitionNo, PayloadNo, Record, Spread,
    Stamp, Terms,
};

/// What is known of a message by its id.
type Known = (PartitionNo, LaneNo, Key, PayloadNo, Stamp);

/// The law.
pub struct Content {
    terms: Terms,
    /// Where each content was sent, by whom first.
    sent: HashMap<PayloadNo, Vec<LaneNo>, Spread>,
    known: HashMap<MessageNo, Known, Spread>,
}

impl Content {
    pub fn new(terms: &Terms) -> Self {
        Content { terms: terms.clone(), sent: HashMap::default(), known: HashMap::default() }
    }

    fn send(&mut self, lane: LaneNo, payload: PayloadNo) {
        let lanes = self.sent.entry(payload).or_default();
        if !lanes.contains(&lane) {
            lanes.push(lane);
        }
    }

    fn tenant(&self, lane: LaneNo) -> Option<crate::history::TenantNo> {
        let queue = self.terms.lane_queue.get(lane.index())?;
        self.terms.queue_tenant.get(queue.index()).copied()
    }
}

impl Checker for Content {
    fn name(&self) -> &'static str {
        "content"
    }

    fn record(&mut self, place: u32, record: &Record, findings: &mut Findings) {
        match &record.event {
            Event::Invoke(Operation::Push { items }) => {
                items.iter().for_each(|item| self.send(item.lane, item.payload))
            }
            Event::Invoke(Operation::Transaction { parts, .. }) => {
                for part in parts {
                    if let Part::Push(item) = part {
                        self.send(item.lane, item.payload);
                    }
                }
            }
            // What a store forgot may be pushed again, under other ids and at other places.
            Event::Lost { .. } => self.known.clear(),
            Event::Ok(Answer::Popped(delivery)) => {
                for it in &delivery.messages {
                    let what = it.message.0;
                    if !self.sent.get(&it.payload).is_some_and(|lanes| lanes.contains(&it.lane)) {
                        findings.violate("content", place, || {
                            format!("message {what} holds what nobody pushed to lane {}", it.lane.0)
                        });
                    }
                    if self.tenant(it.lane) != self.terms.client_tenant.get(record.client.index()).copied() {
                        findings.violate("tenants", place, || format!("message {what} is another tenant's"));
                    }
                    let now: Known = (it.partition, it.lane, it.key, it.payload, it.created);
                    let known = *self.known.entry(it.message).or_insert(now);
                    if known != now {
                        findings.violate("content", place, || format!("message {what} was {known:?} and is {now:?}"));
                    }
                }
            }
            _ => {}
        }
    }

    fn finish(&mut self, _findings: &mut Findings) {}
}
