//! `tidegate-bench core --partitions 1000000`: what a partition costs in memory once its message is done.

use std::time::Duration;

use serde_json::json;
use tidegate_core::command::{Ack, AckItem, AckStatus, Command, LeaseProof, Pop, PopScope, Push};
use tidegate_core::message::NewMessage;
use tidegate_core::name::{GroupName, PartitionName, QueueName, TransactionId};
use tidegate_core::reply::{Delivery, PushOutcome, Reply};

use crate::machine::{self, Machine};
use crate::payload::Payloads;
use crate::pump::{Pump, Replies};
use crate::speed::Arguments;
use crate::{Failure, report};

/// Bytes of resident memory that a partition may cost, broker and store together.
const BAR: f64 = 500.0;
/// How long freed pages may stay with the allocator: a million partitions take a second, so this is not nothing.
const ALLOCATOR_DELAY: Duration = Duration::from_millis(2_500);
/// Bytes of each payload.
const PAYLOAD: usize = 16;

/// Measures memory.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let machine = Machine::here();
    let cpu = machine::pin()?;
    let partitions = arguments.partitions();
    machine.print();
    report::line(&format!(
        "memory     {} partitions, each with one message of {PAYLOAD} bytes pushed, popped and acked, no transaction id",
        report::thousands(partitions as f64)
    ));

    let mut pump = Pump::start()?;
    let mut once = Once { payloads: Payloads::new(PAYLOAD), ..Once::new()? };
    // A first partition: code, the queue, the group and the broker's buffers are there before the first look.
    once.round(&mut pump, partitions as u64, 1)?;
    let before = machine::resident();
    let (mut first, mut rested) = (0, false);
    while first < partitions {
        let count = arguments.in_flight().min(partitions - first);
        once.round(&mut pump, first as u64, count)?;
        first += count;
        if partitions - first < 2 * arguments.in_flight() && !rested {
            // The allocator gives freed pages back a moment after, when it is called again.
            std::thread::sleep(ALLOCATOR_DELAY);
            rested = true;
        }
    }
    let after = machine::resident();

    let added = after.saturating_sub(before);
    let each = added as f64 / partitions as f64;
    let ratio = each / BAR;
    report::line(&format!(
        "           {each:.0} bytes of resident memory per partition, broker and store together ({:.1} MB before, {:.1} MB after)",
        before as f64 / 1e6,
        after as f64 / 1e6,
    ));
    let verdict = if each < BAR { "met" } else { "MISSED" };
    report::line(&format!("           bar: less than {BAR} bytes: {verdict}, at {ratio:.2} of it"));
    if arguments.json {
        report::json(&json!({
            "benchmark": "memory", "machine": machine.json(), "cpu": cpu, "partitions": partitions,
            "resident_before": before, "resident_after": after, "bytes_per_partition": each, "bar": BAR,
            "ratio": ratio, "met": each < BAR,
        }));
    }
    Ok(())
}

/// One message for each partition. Holds nothing that grows with their number.
struct Once {
    payloads: Payloads,
    queue: QueueName,
    group: GroupName,
}

impl Once {
    fn new() -> Result<Self, Failure> {
        Ok(Once {
            payloads: Payloads::new(PAYLOAD),
            queue: QueueName::new("bench")?,
            group: GroupName::new("workers")?,
        })
    }

    /// Pushes to, pops from and acks `count` partitions, from number `first` on.
    fn round(&mut self, pump: &mut Pump, first: u64, count: usize) -> Result<(), Failure> {
        pump.read_clock();
        for n in (first..).take(count) {
            let partition = PartitionName::new(&format!("partition-{n}"))?;
            let payload = self.payloads.buffer(n, 1);
            let message = NewMessage { transaction: None, payload, trace: None, producer: None };
            pump.request(Command::Push(Push::new([(self.queue.clone(), partition, message)])));
        }
        let mut replies = Replies::new();
        pump.answers(count, &mut replies)?;
        for (_, reply) in replies.drain(..) {
            match &reply {
                Reply::Pushed(outcomes) if matches!(outcomes[..], [PushOutcome::Queued(_)]) => {}
                other => return Err(format!("a push was answered {other:?}").into()),
            }
        }

        pump.read_clock();
        for _ in 0..count {
            pump.request(Command::Pop(Pop {
                scope: PopScope::Queue(self.queue.clone()),
                group: self.group.clone(),
                batch: 1,
                partitions: Some(1),
                auto_ack: false,
                wait: None,
                lease: None,
                start: None,
            }));
        }
        pump.answers(count, &mut replies)?;
        pump.read_clock();
        let mut seen = vec![false; count];
        for (id, reply) in replies.drain(..) {
            let ack = self.ack(reply, first, &mut seen)?;
            pump.sent(id);
            pump.request(ack);
        }
        pump.answers(count, &mut replies)?;
        for (_, reply) in replies.drain(..) {
            match &reply {
                Reply::Acked(outcomes) if outcomes.len() == 1 && outcomes[0].error.is_none() => {}
                other => return Err(format!("an ack was answered {other:?}").into()),
            }
        }
        match seen.iter().all(|seen| *seen) {
            true => Ok(()),
            false => Err("a message was not delivered".into()),
        }
    }

    /// Checks a delivery, and makes the ack of it.
    fn ack(&mut self, reply: Reply, first: u64, seen: &mut [bool]) -> Result<Command, Failure> {
        let Reply::Popped(Some(Delivery { lease: Some(lease), claims })) = &reply else {
            return Err(format!("a pop with messages waiting was answered {reply:?}").into());
        };
        let [claim] = &claims[..] else { return Err(format!("a pop of one partition gave {claims:?}").into()) };
        let [delivered] = &claim.messages[..] else {
            return Err(format!("a pop of one message gave {claim:?}").into());
        };
        let number = self.payloads.number(&delivered.message.payload).ok_or("a payload came back changed")?;
        let place = number.checked_sub(first).and_then(|place| usize::try_from(place).ok());
        let seen = place.and_then(|place| seen.get_mut(place)).ok_or("a message came back that was done")?;
        if std::mem::replace(seen, true) {
            return Err(format!("message {number} was delivered twice").into());
        }
        Ok(Command::Ack(Ack {
            group: self.group.clone(),
            items: vec![AckItem {
                partition: claim.partition,
                transaction: Some(TransactionId::new(&delivered.id.to_text())?),
                status: AckStatus::Completed,
                lease: LeaseProof::Lease(*lease),
                error: None,
            }],
        }))
    }
}
