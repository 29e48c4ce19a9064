//! What the checkers have in common: the calls, and what each lane held in the end.

use std::collections::{BTreeMap, BTreeSet};

use super::Rules;
use crate::history::{Ack, Answer, Call, Delivered, History, Item, Lane, Operation, Outcome, Pop, Pushed, Status};

/// A history, sorted by what the checkers ask.
pub struct Facts<'a> {
    pub rules: &'a Rules,
    pub calls: Vec<Call<'a>>,
    /// What the reader was given, in the order of its first sight of it.
    pub logs: BTreeMap<&'a Lane, Log<'a>>,
    /// What each group was given of each lane, in the order in which the answers came.
    pub batches: BTreeMap<(&'a Lane, &'a str), Vec<Batch<'a>>>,
    /// What was said of messages of each lane by each group, transactions included, in the order of sending.
    pub acks: BTreeMap<(&'a Lane, &'a str), Vec<Decision<'a>>>,
    /// Every attempt to push an id into a lane, in the order of sending.
    pub attempts: BTreeMap<(&'a Lane, &'a str), Vec<Attempt<'a>>>,
    /// The earliest answer that showed an id to anybody.
    pub sights: BTreeMap<(&'a Lane, &'a str), usize>,
}

/// The messages of a lane, oldest first.
#[derive(Default)]
pub struct Log<'a> {
    pub entries: Vec<&'a Delivered>,
    /// By message id, because a broken broker may hold a transaction id twice.
    places: BTreeMap<&'a str, usize>,
    ids: BTreeMap<&'a str, usize>,
}

/// A pop's messages of one lane.
pub struct Batch<'a> {
    pub call: Call<'a>,
    pub pop: &'a Pop,
    pub lease: &'a str,
    pub messages: Vec<&'a Delivered>,
}

/// An ack, or the acks of a transaction.
pub struct Decision<'a> {
    pub call: Call<'a>,
    pub ack: &'a Ack,
    /// Of a transaction: what it pushed.
    pub pushes: Option<&'a [Item]>,
}

/// One call that pushed an id.
pub struct Attempt<'a> {
    pub call: Call<'a>,
    pub item: &'a Item,
    /// Where in its call.
    pub index: usize,
    pub transaction: bool,
    /// Of a plain push that was answered.
    pub answer: Option<&'a Pushed>,
}

impl<'a> Log<'a> {
    fn append(&mut self, message: &'a Delivered) {
        let place = self.entries.len();
        if let std::collections::btree_map::Entry::Vacant(vacant) = self.places.entry(&message.message) {
            vacant.insert(place);
            self.ids.entry(&message.id).or_insert(place);
            self.entries.push(message);
        }
    }

    pub fn place_of(&self, message: &Delivered) -> Option<usize> {
        self.places.get(message.message.as_str()).copied()
    }

    /// Where the message with this transaction id is; the first, should there be several.
    pub fn place_of_id(&self, id: &str) -> Option<usize> {
        self.ids.get(id).copied()
    }
}

impl Attempt<'_> {
    /// Whether it may have stored the message. `failed` beside items that were stored does not say that it did not.
    pub fn is_possible(&self) -> bool {
        self.call.is_possible()
    }

    /// Whether the message was certainly stored when this was answered.
    pub fn is_certain(&self) -> bool {
        let done = self.transaction && matches!(self.call.outcome, Outcome::Ok(Answer::Done));
        done || matches!(self.answer, Some(Pushed::Queued { .. } | Pushed::Duplicate { .. }))
    }
}

impl Decision<'_> {
    /// Whether it was accepted, at least for some of its items.
    pub fn is_certain(&self) -> bool {
        match self.call.outcome {
            Outcome::Ok(Answer::Done) => true,
            Outcome::Ok(Answer::Acked(results)) => results.iter().any(Result::is_ok),
            Outcome::Ok(_) | Outcome::Fail | Outcome::Unknown => false,
        }
    }

    /// Whether it may have moved the group's cursor. A transaction did if what it pushed is there.
    pub fn is_possible(&self, facts: &Facts<'_>) -> bool {
        let refused = match self.call.outcome {
            Outcome::Ok(Answer::Acked(results)) => results.iter().all(Result::is_err),
            Outcome::Ok(_) | Outcome::Fail | Outcome::Unknown => false,
        };
        let pushed = self.pushes.is_none_or(|pushes| pushes.is_empty() || pushes.iter().any(|item| facts.holds(item)));
        self.call.is_possible() && !refused && pushed
    }

    /// Where the cursor is afterwards: the place below which all is completed. Empty: where it was.
    pub fn ends(&self, log: &Log<'_>) -> Ends {
        let accepted = |index: usize| match self.call.outcome {
            Outcome::Ok(Answer::Acked(results)) => results.get(index).is_some_and(Result::is_ok),
            Outcome::Ok(_) | Outcome::Fail | Outcome::Unknown => true,
        };
        let items = self.ack.items.iter().enumerate().filter(|(index, _)| accepted(*index));
        let places: Vec<(usize, Status)> =
            items.filter_map(|(_, (id, status))| Some((log.place_of_id(id)?, *status))).collect();
        let stop = places.iter().filter(|(_, status)| *status != Status::Completed).map(|(place, _)| *place).min();
        let completed = places
            .iter()
            .filter(|(place, status)| *status == Status::Completed && stop.is_none_or(|stop| *place < stop));
        let surely = completed.map(|(place, _)| place + 1).max();
        let at_stop = |wanted: Status| places.iter().any(|&(place, status)| Some(place) == stop && status == wanted);
        match stop {
            // A dead letter is behind the cursor; dlq goes before failed, failed before retry.
            Some(stop) if at_stop(Status::Dlq) => Ends { surely: Some(stop + 1), perhaps: None },
            // Whether the budget was used up is the broker's business.
            Some(stop) if at_stop(Status::Failed) => Ends { surely, perhaps: Some(stop + 1) },
            Some(_) | None => Ends { surely, perhaps: None },
        }
    }

    /// Whether it ends the lease when it is accepted. One that only completes a part of its batch does not.
    pub fn may_release(&self, batch_end: usize, log: &Log<'_>) -> bool {
        let stops = self.ack.items.iter().any(|(_, status)| *status != Status::Completed);
        stops || self.ends(log).surely.is_none_or(|end| end >= batch_end)
    }
}

/// The count of messages below the cursor after a decision.
pub struct Ends {
    pub surely: Option<usize>,
    pub perhaps: Option<usize>,
}

impl<'a> Facts<'a> {
    pub fn gather(history: &'a History, rules: &'a Rules) -> Self {
        let calls = history.calls();
        let mut facts = Self {
            rules,
            calls: Vec::new(),
            logs: BTreeMap::new(),
            batches: BTreeMap::new(),
            acks: BTreeMap::new(),
            attempts: BTreeMap::new(),
            sights: BTreeMap::new(),
        };
        for &call in &calls {
            match call.operation {
                Operation::Push { items } => facts.push(call, items, false),
                Operation::Pop(pop) => facts.pop(call, pop),
                Operation::Ack(ack) => facts.ack(Decision { call, ack, pushes: None }),
                Operation::Transaction { pushes, ack } => {
                    facts.push(call, pushes, true);
                    facts.ack(Decision { call, ack, pushes: Some(pushes) });
                }
            }
        }
        for batches in facts.batches.values_mut() {
            batches.sort_by_key(|batch| batch.call.answered);
        }
        for ((lane, group), batches) in &facts.batches {
            if *group == rules.reader {
                let log = facts.logs.entry(lane).or_default();
                batches.iter().flat_map(|batch| &batch.messages).for_each(|message| log.append(message));
            }
        }
        facts.calls = calls;
        facts
    }

    fn push(&mut self, call: Call<'a>, items: &'a [Item], transaction: bool) {
        for (index, item) in items.iter().enumerate() {
            let answer = match call.outcome {
                Outcome::Ok(Answer::Pushed(results)) => results.get(index),
                Outcome::Ok(_) | Outcome::Fail | Outcome::Unknown => None,
            };
            let attempt = Attempt { call, item, index, transaction, answer };
            self.attempts.entry((&item.lane, &item.id)).or_default().push(attempt);
        }
    }

    fn pop(&mut self, call: Call<'a>, pop: &'a Pop) {
        let Outcome::Ok(Answer::Popped { lease, messages }) = call.outcome else { return };
        let lanes: BTreeSet<&Lane> = messages.iter().map(|message| &message.lane).collect();
        for message in messages {
            let seen = self.sights.entry((&message.lane, &message.id)).or_insert(call.answered);
            *seen = call.answered.min(*seen);
        }
        for lane in lanes {
            let messages = messages.iter().filter(|message| message.lane == *lane).collect();
            let batch = Batch { call, pop, lease, messages };
            self.batches.entry((lane, &pop.group)).or_default().push(batch);
        }
    }

    fn ack(&mut self, decision: Decision<'a>) {
        self.acks.entry((&decision.ack.lane, &decision.ack.group)).or_default().push(decision);
    }

    /// Whether the reader found it.
    pub fn holds(&self, item: &Item) -> bool {
        self.logs.get(&item.lane).is_some_and(|log| log.place_of_id(&item.id).is_some())
    }
}
