//! Who else runs on the same store: the port that tells it.

use tidegate_core::fleet::{FleetView, Member};
use tidegate_core::settings::{Maintenance, Switch};

/// Why a heartbeat did not come back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MembershipError {
    /// The control connection is gone or could not be had; the text is for people. Nothing in memory may be trusted until
    /// a renewal succeeds.
    Lost(String),
    /// This incarnation was declared dead. It never comes back: the next beat carries another one.
    Buried,
}

/// The heartbeats of one broker, and what they tell of the others. Calls come one after the other.
pub trait Membership: Send + 'static {
    /// Says that `me` lives, registers it when it is not there, and tells who else does and who owns the slots.
    ///
    /// `me` may change between two calls: `draining` is to be stored, and another `incarnation` is another broker that
    /// needs a row, a session and connections of its own.
    fn beat(&mut self, me: &Member) -> impl Future<Output = Result<FleetView, MembershipError>> + Send;

    /// Declares a broker dead if its beat is still `beat`: from then on its beats, renewals and takes fail, and
    /// `Watched` shows its slots as `gone`. Tells whether it is dead now.
    fn bury(&mut self, incarnation: &str, beat: u64) -> impl Future<Output = Result<bool, MembershipError>> + Send;

    /// Sets one of the operator's switches for every broker, and tells how all of them stand.
    fn switch(&mut self, switch: Switch) -> impl Future<Output = Result<Maintenance, MembershipError>> + Send;

    /// This broker stops; it holds no slot any more. Its row goes.
    fn leave(&mut self, incarnation: &str) -> impl Future<Output = Result<(), MembershipError>> + Send;
}
