//! `tidegate-bench core`: how many messages a second one CPU core pushes, pops and acks through `Broker` and
//! `MemoryStore`, with nothing around them.

use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_core::command::{Ack, AckItem, AckStatus, Command, LeaseProof, Pop, PopScope, Push};
use tidegate_core::message::NewMessage;
use tidegate_core::name::{GroupName, PartitionName, QueueName, TransactionId};
use tidegate_core::reply::{Delivery, PushOutcome, Reply};

use crate::machine::{self, Machine};
use crate::payload::{LEAST_BYTES, Payloads, is_transaction_id, transaction_id};
use crate::pump::{Pump, Replies};
use crate::{Failure, report};

/// Messages a second that the product promises.
const BAR: f64 = 1_000_000.0;
/// How many times the messages of a run at that rate the warm-up goes through: more than the run will need memory for.
const WARM_UP: f64 = 1.3;
/// From this many partitions on, memory is measured and not speed.
const MEMORY_PARTITIONS: usize = 100_000;

/// The broker's core and the memory store, on one thread pinned to one CPU core.
///
/// Speed (the default): pushes of `--batch` messages go to the partitions in turn, each message with a transaction id of
/// its own, dedup on; pops take any partition of the queue, `--batch` messages each; one ack settles each batch. Every
/// message is checked: delivered once, in order, byte for byte. The same runs twice, the first time to have the memory at
/// hand; both rates are printed, the second one counts. Making the commands and checking the deliveries is part
/// of the time, and its share is printed.
///
/// Memory (`--partitions` of 100,000 or more, or `--seconds 0`): each partition has one message of 16 bytes pushed,
/// popped and acked, without a transaction id; printed is what that added to the resident memory.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// How long to run; 0 measures memory
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Partitions of the one queue; 100,000 or more measure memory
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    partitions: u32,
    /// Messages in a push, a pop and an ack
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    batch: u32,
    /// Bytes of a payload
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(LEAST_BYTES as i64..=1_000_000))]
    payload: u32,
    /// Commands given to the broker before its outputs are looked at; at most one a partition
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    in_flight: u32,
    /// End with one line of JSON
    #[arg(long)]
    pub json: bool,
}

impl Arguments {
    /// Whether memory is asked about.
    pub fn measures_memory(&self) -> bool {
        self.seconds == 0 || self.partitions() >= MEMORY_PARTITIONS
    }

    /// How many partitions.
    pub fn partitions(&self) -> usize {
        self.partitions as usize
    }

    /// How many commands go together. Never two to one partition: the second batch of a partition is not delivered
    /// before the first is settled.
    pub fn in_flight(&self) -> usize {
        self.in_flight.min(self.partitions) as usize
    }
}

/// Where the time of a run went.
#[derive(Default)]
struct Stages {
    generating: Duration,
    push: Duration,
    pop: Duration,
    checking: Duration,
    ack: Duration,
}

/// Measures speed.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    machine::keep_memory()?;
    let machine = Machine::here();
    let cpu = machine::pin()?;
    machine.print();
    report::line(&format!(
        "core       {} s on CPU {cpu}: batches of {}, {} bytes, {} partitions, {} commands in flight, dedup on",
        arguments.seconds,
        arguments.batch,
        arguments.payload,
        arguments.partitions(),
        arguments.in_flight(),
    ));

    // The first time a page is touched the machine has to find and clear it, which on a virtual machine costs more than
    // all else here. A broker that runs for longer uses its memory again; so does the phase that counts.
    let planned = Duration::from_secs(arguments.seconds);
    let enough = (planned.as_secs_f64() * BAR * WARM_UP) as u64;
    let warm_up = phase(arguments, |_, messages| messages >= enough)?;
    report::line(&format!(
        "           {} messages/s on memory that the machine had to provide first (a warm-up of {} messages)",
        report::thousands(warm_up.workload.acked as f64 / warm_up.wall),
        report::thousands(warm_up.workload.acked as f64)
    ));
    let cold_rate = warm_up.workload.acked as f64 / warm_up.wall;
    drop(warm_up);
    let Phase { workload, pump, stages, rounds, wall, cpu_time, cut_short } =
        phase(arguments, |elapsed, _| elapsed >= planned)?;

    let messages = workload.acked as f64;
    let rate = messages / wall;
    let per_cpu = messages / cpu_time;
    if cut_short {
        report::line(&format!("           cut short after {wall:.1} s: three quarters of the free memory are used"));
    }
    report::line(&format!(
        "           {} messages/s pushed, popped and acked ({} messages in {wall:.2} s, each once, in order: checked)",
        report::thousands(rate),
        report::thousands(messages),
    ));
    report::line(&format!(
        "           {} messages per CPU second ({cpu_time:.2} s of CPU: the rest went to neighbours)",
        report::thousands(per_cpu)
    ));
    let share = |part: Duration| part.as_secs_f64() / wall * 100.0;
    report::line(&format!(
        "           share of time: push {:.0} %, pop {:.0} %, ack {:.0} %; making commands {:.0} %, checking {:.0} %",
        share(stages.push),
        share(stages.pop),
        share(stages.ack),
        share(stages.generating),
        share(stages.checking),
    ));
    report::line(&format!(
        "           {:.1} commands per commit",
        f64::from(rounds) * workload.in_flight as f64 * 3.0 / (pump.commits().max(1)) as f64,
    ));
    let verdict = if rate >= BAR { "met" } else { "MISSED" };
    report::line(&format!("           bar: {} messages/s: {verdict}", report::thousands(BAR)));
    if arguments.json {
        report::json(&json!({
            "benchmark": "core", "machine": machine.json(), "cpu": cpu, "seconds": wall, "cpu_seconds": cpu_time,
            "partitions": arguments.partitions, "batch": arguments.batch, "payload": arguments.payload,
            "in_flight": workload.in_flight, "messages": workload.acked, "messages_per_second": rate,
            "messages_per_cpu_second": per_cpu, "commits": pump.commits(), "cut_short": cut_short,
            "cold_messages_per_second": cold_rate, "bar": BAR, "met": rate >= BAR,
            "share_percent": {
                "push": share(stages.push), "pop": share(stages.pop), "ack": share(stages.ack),
                "making_commands": share(stages.generating), "checking": share(stages.checking),
            },
        }));
    }
    Ok(())
}

/// A run of the workload against a broker and a store of its own.
struct Phase {
    workload: Workload,
    /// Holds all that was pushed.
    pump: Pump,
    stages: Stages,
    rounds: u32,
    /// Seconds.
    wall: f64,
    /// Seconds.
    cpu_time: f64,
    cut_short: bool,
}

/// Runs until it is over, by the time elapsed or the messages done.
fn phase(arguments: &Arguments, over: impl Fn(Duration, u64) -> bool) -> Result<Phase, Failure> {
    let mut workload = Workload::new(arguments)?;
    let mut pump = Pump::start()?;
    let (mut buffers, mut stages) = (Buffers::default(), Stages::default());
    // Everything pushed stays retained: stop before the machine swaps.
    let memory_limit = machine::resident().saturating_add(machine::available() / 4 * 3);
    let mut cut_short = false;
    let cpu_before = machine::thread_cpu();
    let started = pump.read_clock();
    let mut rounds = 0u32;
    let mut ended = started;
    while !over(ended.duration_since(started), workload.acked) && !cut_short {
        ended = workload.round(&mut pump, &mut buffers, &mut stages, ended)?;
        rounds += 1;
        cut_short = rounds.is_multiple_of(256) && machine::resident() > memory_limit;
    }
    let wall = ended.duration_since(started).as_secs_f64();
    let cpu_time = machine::thread_cpu().saturating_sub(cpu_before).as_secs_f64();
    workload.check_complete()?;
    Ok(Phase { workload, pump, stages, rounds, wall, cpu_time, cut_short })
}

/// Places for what is asked and answered, kept from round to round.
#[derive(Default)]
struct Buffers {
    commands: Vec<Command>,
    replies: Replies,
}

/// What is pushed, and what was seen of it.
struct Workload {
    payloads: Payloads,
    queue: QueueName,
    group: GroupName,
    partitions: Vec<PartitionName>,
    /// For each partition the number of the message that must come next.
    expected: Vec<u64>,
    batch: usize,
    in_flight: usize,
    /// Pushes so far; the next one goes to this partition, modulo their number.
    pushes: u64,
    acked: u64,
}

impl Workload {
    fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let count = arguments.partitions();
        let batch = u64::from(arguments.batch);
        Ok(Workload {
            payloads: Payloads::new(arguments.payload as usize),
            queue: QueueName::new("bench")?,
            group: GroupName::new("workers")?,
            partitions: (0..count).map(|n| PartitionName::new(&n.to_string())).collect::<Result<_, _>>()?,
            expected: (0..count as u64).map(|n| n * batch).collect(),
            batch: arguments.batch as usize,
            in_flight: arguments.in_flight(),
            pushes: 0,
            acked: 0,
        })
    }

    /// Pushes, pops and acks `in_flight` batches. Returns when it ended; it began at `began`.
    fn round(
        &mut self,
        pump: &mut Pump,
        buffers: &mut Buffers,
        stages: &mut Stages,
        began: Instant,
    ) -> Result<Instant, Failure> {
        let mut lap = began;
        let mut stage = |pump: &mut Pump, stage: &mut Duration| {
            let read = pump.read_clock();
            *stage += read.duration_since(lap);
            lap = read;
            read
        };

        let Buffers { commands, replies } = buffers;
        for _ in 0..self.in_flight {
            commands.push(self.push()?);
        }
        stage(pump, &mut stages.generating);
        ask(pump, commands, replies)?;
        stage(pump, &mut stages.push);
        for (_, reply) in replies.drain(..) {
            self.check_pushed(&reply)?;
        }
        for _ in 0..self.in_flight {
            commands.push(self.pop());
        }
        stage(pump, &mut stages.generating);
        ask(pump, commands, replies)?;
        stage(pump, &mut stages.pop);
        for (id, reply) in replies.drain(..) {
            commands.push(self.ack(reply)?);
            pump.sent(id);
        }
        stage(pump, &mut stages.checking);
        ask(pump, commands, replies)?;
        stage(pump, &mut stages.ack);
        for (_, reply) in replies.drain(..) {
            self.check_acked(&reply)?;
        }
        Ok(stage(pump, &mut stages.checking))
    }

    /// The next push.
    fn push(&mut self) -> Result<Command, Failure> {
        let first = self.pushes * self.batch as u64;
        let partition = &self.partitions[(self.pushes % self.partitions.len() as u64) as usize];
        self.pushes += 1;
        let buffer = self.payloads.buffer(first, self.batch);
        let mut items = Vec::with_capacity(self.batch);
        for (index, n) in (first..).take(self.batch).enumerate() {
            let payload = self.payloads.slice(&buffer, index);
            let message = NewMessage { transaction: Some(transaction_id(n)?), payload, trace: None, producer: None };
            items.push((self.queue.clone(), partition.clone(), message));
        }
        Ok(Command::Push(Push::new(items)))
    }

    fn pop(&self) -> Command {
        Command::Pop(Pop {
            scope: PopScope::Queue(self.queue.clone()),
            group: self.group.clone(),
            batch: self.batch as u32,
            partitions: Some(1),
            auto_ack: false,
            wait: None,
            lease: None,
            start: None,
        })
    }

    fn check_pushed(&self, reply: &Reply) -> Result<(), Failure> {
        match reply {
            Reply::Pushed(outcomes)
                if outcomes.len() == self.batch
                    && outcomes.iter().all(|outcome| matches!(outcome, PushOutcome::Queued(_))) =>
            {
                Ok(())
            }
            other => Err(format!("a push of {} messages was answered {other:?}", self.batch).into()),
        }
    }

    /// Checks a delivery, and makes the ack of it.
    fn ack(&mut self, reply: Reply) -> Result<Command, Failure> {
        let Reply::Popped(Some(Delivery { lease: Some(lease), claims })) = reply else {
            return Err(format!("a pop with messages waiting was answered {reply:?}").into());
        };
        let mut items = Vec::with_capacity(self.batch);
        for claim in claims {
            let partition: usize = claim.name.as_str().parse()?;
            for delivered in claim.messages {
                let text = delivered.message.transaction.ok_or("a message came back without its transaction id")?;
                self.check_delivered(partition, &delivered.message.payload, &text)?;
                let transaction = TransactionId::new(&text)?;
                items.push(AckItem {
                    partition: claim.partition,
                    transaction: Some(transaction),
                    status: AckStatus::Completed,
                    lease: LeaseProof::Lease(lease),
                    error: None,
                });
            }
        }
        if items.len() != self.batch {
            return Err(format!("a pop of {} messages gave {}", self.batch, items.len()).into());
        }
        Ok(Command::Ack(Ack { group: self.group.clone(), items }))
    }

    /// Every message of a partition is the one after the message before: none twice, none left out, none out of order.
    fn check_delivered(&mut self, partition: usize, payload: &[u8], id: &str) -> Result<(), Failure> {
        let partitions = self.partitions.len() as u64;
        let expected = self.expected.get_mut(partition).ok_or("a delivery from an unknown partition")?;
        let number = *expected;
        if !self.payloads.is(number, payload) {
            let came = self.payloads.number(payload).map_or_else(|| "another payload".into(), |n| n.to_string());
            return Err(format!("partition {partition} gave {came} where message {number} was next").into());
        }
        if !is_transaction_id(number, id) {
            return Err(format!("message {number} came back with transaction id {id}").into());
        }
        let batch = self.batch as u64;
        // After the last of a batch, the partition's next batch comes one turn through all partitions later.
        let last = (number + 1).is_multiple_of(batch);
        *expected = if last { number + 1 + batch * (partitions - 1) } else { number + 1 };
        Ok(())
    }

    fn check_acked(&mut self, reply: &Reply) -> Result<(), Failure> {
        match reply {
            Reply::Acked(outcomes)
                if outcomes.len() == self.batch
                    && outcomes.iter().all(|outcome| outcome.error.is_none() && !outcome.noop) =>
            {
                self.acked += self.batch as u64;
                Ok(())
            }
            other => Err(format!("an ack of {} messages was answered {other:?}", self.batch).into()),
        }
    }

    /// After the last round each partition has given all that was pushed to it.
    fn check_complete(&self) -> Result<(), Failure> {
        if self.acked != self.pushes * self.batch as u64 {
            return Err(format!("{} pushes of {}, {} messages acked", self.pushes, self.batch, self.acked).into());
        }
        let partitions = self.partitions.len() as u64;
        for (partition, expected) in (0u64..).zip(&self.expected) {
            let turns = (self.pushes + partitions - 1 - partition) / partitions;
            if *expected != (turns * partitions + partition) * self.batch as u64 {
                return Err(format!("partition {partition} did not give all its messages").into());
            }
        }
        Ok(())
    }
}

/// Gives all commands to the broker, then lets it work until each is answered.
fn ask(pump: &mut Pump, commands: &mut Vec<Command>, replies: &mut Replies) -> Result<(), Failure> {
    let count = commands.len();
    for command in commands.drain(..) {
        pump.request(command);
    }
    pump.answers(count, replies)
}
