//! The operator's switches, and routes of a mesh that brokers here do not need. (queen-http.md 17)

use hyper::StatusCode;
use tidegate_core::settings::{Maintenance, Switch};

use super::{Exchange, Outcome, serialized};
use crate::error::Failure;
use crate::wire::maintenance as wire;

async fn switch(exchange: &Exchange<'_>, switch: Switch) -> Result<Maintenance, Failure> {
    exchange.shared.slots.switch(switch).await.map_err(|error| {
        tracing::warn!(?error, "a switch could not be set");
        tidegate_core::error::Rejection::StoreUnavailable.into()
    })
}

pub(super) async fn set_push(mut exchange: Exchange<'_>) -> Outcome {
    let enabled = wire::enabled(&exchange.body().await?)?;
    let now = switch(&exchange, Switch::Push(enabled)).await?;
    serialized(StatusCode::OK, &wire::PushSwitched::new(now.push))
}

pub(super) async fn set_pop(mut exchange: Exchange<'_>) -> Outcome {
    let enabled = wire::enabled(&exchange.body().await?)?;
    let now = switch(&exchange, Switch::Pop(enabled)).await?;
    let message = match now.pop {
        true => "Pop maintenance mode ENABLED. All POP operations will return empty arrays.",
        false => "Pop maintenance mode DISABLED. Normal operation resumed.",
    };
    serialized(StatusCode::OK, &wire::Pops { pop_maintenance_mode: now.pop, message })
}

pub(super) fn get(exchange: &Exchange<'_>) -> Outcome {
    let Maintenance { push, pop } = exchange.shared.slots.maintenance();
    serialized(StatusCode::OK, &wire::Both::new(push, pop))
}

pub(super) fn get_pop(exchange: &Exchange<'_>) -> Outcome {
    let on = exchange.shared.slots.maintenance().pop;
    let message = match on {
        true => "Pop maintenance mode is ON. All POP operations return empty arrays.",
        false => "Pop maintenance mode is OFF. Normal operation.",
    };
    serialized(StatusCode::OK, &wire::Pops { pop_maintenance_mode: on, message })
}

pub(super) fn shared_state(exchange: &Exchange<'_>) -> Outcome {
    let Maintenance { push, pop } = exchange.shared.slots.maintenance();
    let body = wire::SharedState {
        enabled: false,
        reason: "single_node_segments_broker",
        maintenance_mode: push,
        pop_maintenance_mode: pop,
    };
    serialized(StatusCode::OK, &body)
}

/// A push through any broker wakes parked pops by itself, so there is nobody to wake.
pub(super) async fn notify(mut exchange: Exchange<'_>) -> Outcome {
    wire::notify(&exchange.body().await?)?;
    serialized(StatusCode::OK, &wire::Heard { status: "ok" })
}

pub(super) fn mesh() -> Outcome {
    serialized(StatusCode::OK, &wire::Mesh { enabled: false, peers: Vec::new() })
}
