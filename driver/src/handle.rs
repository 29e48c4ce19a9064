//! What a transport holds: send a command, await its reply, say whether the answer arrived.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use compact_str::CompactString;
use tidegate_core::broker::Counters;
use tidegate_core::command::{Command, RequestId};
use tidegate_core::error::Rejection;
use tidegate_core::name::TenantId;
use tidegate_core::reply::{Delivery, Reply};
use tidegate_core::settings::Maintenance;
use tokio::sync::{mpsc, oneshot};

/// What the broker's task is told.
pub(crate) enum Input {
    /// A client asks.
    Request(RequestId, TenantId, Command, oneshot::Sender<Reply>),
    /// That client left, or its answer could not be written.
    Gone(RequestId),
    /// That client waits no longer.
    StopWaiting(RequestId),
    /// That client's answer was written.
    Sent(RequestId),
    /// Somebody wants to see the counters.
    Counters(oneshot::Sender<Counters>),
    /// What concerns the slot.
    Slot(Order),
    /// What an operator has switched off.
    Maintain(Maintenance),
    /// Shut down.
    Drain,
}

/// What the broker is told about its slot.
pub(crate) enum Order {
    /// Whether to take it when it can be had.
    Contend(bool),
    /// To give it to whoever wants it.
    HandOver,
    /// To answer nothing from memory until the store confirms the slot.
    Distrust,
    /// To go on under another name.
    Rename(CompactString),
}

/// The way to the broker's task; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

/// One allocation for all clones of a handle and its calls.
struct Shared {
    inputs: mpsc::UnboundedSender<Input>,
    next: AtomicU64,
}

impl Shared {
    fn tell(&self, input: Input) -> bool {
        self.inputs.send(input).is_ok()
    }
}

impl Handle {
    pub(crate) fn new(inputs: mpsc::UnboundedSender<Input>) -> Self {
        Handle { shared: Arc::new(Shared { inputs, next: AtomicU64::new(1) }) }
    }

    /// Orders `command`, at once and whether or not the call is awaited.
    pub fn call(&self, tenant: TenantId, command: Command) -> Call {
        // Only uniqueness matters: the order of requests is that of the queue.
        let id = RequestId(self.shared.next.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        let state = match self.shared.tell(Input::Request(id, tenant, command, sender)) {
            true => State::Asked(receiver),
            false => State::Closed,
        };
        Call { id, state, shared: Arc::clone(&self.shared) }
    }

    /// Tells the broker what an operator has switched off.
    pub(crate) fn maintain(&self, maintenance: Maintenance) {
        self.shared.tell(Input::Maintain(maintenance));
    }

    /// Tells the broker what concerns its slot.
    pub(crate) fn order(&self, order: Order) {
        self.shared.tell(Input::Slot(order));
    }

    /// The broker's counters; all zero once its task has ended.
    pub async fn counters(&self) -> Counters {
        let (sender, receiver) = oneshot::channel();
        self.shared.tell(Input::Counters(sender));
        receiver.await.unwrap_or_default()
    }

    /// Shuts the broker down: parked calls answer empty, new ones are refused, running commits finish. Then the task
    /// ends; await its `JoinHandle`.
    pub fn drain(&self) {
        self.shared.tell(Input::Drain);
    }
}

/// A command on its way. Dropped before it completes, it tells the broker that the client is gone.
///
/// It always completes: when the broker's task is gone, with a refusal.
#[must_use = "dropping a call tells the broker that its client is gone"]
pub struct Call {
    id: RequestId,
    state: State,
    shared: Arc<Shared>,
}

enum State {
    /// The broker's task has the command.
    Asked(oneshot::Receiver<Reply>),
    /// There is no task that could take it.
    Closed,
    /// The reply was given away.
    Done,
}

impl Call {
    /// The client waits no longer, and may still read: a parked call completes empty, any other goes on.
    pub fn stop_waiting(&self) {
        self.shared.tell(Input::StopWaiting(self.id));
    }
}

impl Future for Call {
    type Output = (Reply, Receipt);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = match &mut self.state {
            State::Asked(receiver) => match Pin::new(receiver).poll(cx) {
                Poll::Ready(Ok(reply)) => reply,
                // The task ended with the command in its hands; nobody knows how far it got.
                Poll::Ready(Err(_)) => Reply::Refused(Rejection::OutcomeUnknown),
                Poll::Pending => return Poll::Pending,
            },
            State::Closed => Reply::Refused(Rejection::Draining),
            State::Done => return Poll::Pending,
        };
        self.state = State::Done;
        let leased = matches!(&reply, Reply::Popped(Some(Delivery { lease: Some(_), .. })));
        let receipt = Receipt { armed: leased.then(|| (self.id, Arc::clone(&self.shared))) };
        Poll::Ready((reply, receipt))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if matches!(self.state, State::Asked(_)) {
            self.shared.tell(Input::Gone(self.id));
        }
    }
}

/// Whether the answer to a call reached its client. Dropped without `sent`, it gives back what the answer leased; for an
/// answer that leased nothing it does nothing.
#[must_use = "dropping a receipt gives the lease back"]
pub struct Receipt {
    armed: Option<(RequestId, Arc<Shared>)>,
}

impl Receipt {
    /// Whether anything depends on it: the answer leased something.
    pub fn is_armed(&self) -> bool {
        self.armed.is_some()
    }

    /// The answer was written.
    pub fn sent(mut self) {
        if let Some((id, shared)) = self.armed.take() {
            shared.tell(Input::Sent(id));
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some((id, shared)) = self.armed.take() {
            shared.tell(Input::Gone(id));
        }
    }
}
