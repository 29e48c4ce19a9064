//! What goes over the wire, version 1: request bodies into commands, replies into response bodies. One file per resource.
//! Nothing in here awaits or knows a status code.

pub(crate) mod ack;
pub(crate) mod analytics;
pub(crate) mod configure;
pub(crate) mod dead_letters;
pub(crate) mod groups;
pub(crate) mod json;
pub(crate) mod lease;
pub(crate) mod listing;
pub(crate) mod maintenance;
pub(crate) mod messages;
pub(crate) mod payload;
pub(crate) mod pop;
pub(crate) mod push;
pub(crate) mod queues;
pub(crate) mod retention;
pub(crate) mod status;
pub(crate) mod traces;
pub(crate) mod transaction;
