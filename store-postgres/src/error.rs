//! What went wrong, in the port's words: certainly nothing happened, or nobody knows.

use tidegate_core::error::{StoreError, StoreErrorKind};
use tidegate_core::store::StoreReply;

/// What is known after a statement that did not answer as hoped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing happened, and the same may work at once: a deadlock, a serialization failure, a lock that took too long.
    Again(StoreError),
    /// Certainly nothing happened.
    Certain(StoreError),
    /// The connection died with the statement on its way.
    Lost(StoreError),
}

impl Failure {
    /// The answer to a request that writes.
    pub(crate) fn of_write(self) -> StoreReply {
        match self {
            Failure::Again(error) | Failure::Certain(error) => StoreReply::Failed(error),
            Failure::Lost(error) => {
                tracing::debug!(%error, "an answer was lost");
                StoreReply::Unknown
            }
        }
    }

    /// The answer to a request that changes nothing, or may be repeated.
    pub(crate) fn of_read(self) -> StoreReply {
        StoreReply::Failed(self.into_error())
    }

    pub(crate) fn into_error(self) -> StoreError {
        match self {
            Failure::Again(error) | Failure::Certain(error) | Failure::Lost(error) => error,
        }
    }
}

/// Repeats what changes nothing, or may be done twice, while it fails for a reason that another connection mends: after
/// an outage each pooled connection is dead, and each would cost a request.
pub(crate) async fn repeat<T, F: Future<Output = Result<T, Failure>>>(
    mut attempt: impl FnMut() -> F,
) -> Result<T, Failure> {
    const ATTEMPTS: usize = 8;
    for _ in 1..ATTEMPTS {
        match attempt().await {
            Err(Failure::Lost(_) | Failure::Again(_)) => {}
            done => return done,
        }
    }
    attempt().await
}

/// Something stored cannot be read.
pub(crate) fn corrupt(text: impl std::fmt::Display) -> Failure {
    Failure::Certain(StoreError { kind: StoreErrorKind::Corrupt, text: text.to_string() })
}

fn unavailable(text: impl std::fmt::Display) -> StoreError {
    StoreError { kind: StoreErrorKind::Unavailable, text: text.to_string() }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(reported) => {
                let code = reported.code().unwrap_or_default().into_owned();
                let fatal = reported
                    .try_downcast_ref::<sqlx::postgres::PgDatabaseError>()
                    .is_some_and(|error| !matches!(error.severity(), sqlx::postgres::PgSeverity::Error));
                by_code(&code, fatal, reported.message())
            }
            // Nothing was sent.
            sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => Failure::Certain(unavailable(&error)),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => {
                corrupt(&error)
            }
            sqlx::Error::Encode(_) | sqlx::Error::Configuration(_) | sqlx::Error::Tls(_) => {
                Failure::Certain(unavailable(&error))
            }
            _ => Failure::Lost(unavailable(&error)),
        }
    }
}

fn by_code(code: &str, fatal: bool, message: &str) -> Failure {
    let text = format!("{message} (SQLSTATE {code})");
    let of = |kind| StoreError { kind, text: text.clone() };
    // A session that is ended may have committed just before.
    if fatal {
        return Failure::Lost(of(StoreErrorKind::Unavailable));
    }
    match code {
        "40001" | "40P01" | "55P03" => Failure::Again(of(StoreErrorKind::Unavailable)),
        // Disk full, out of memory, read-only: reachable, and cannot write.
        "53100" | "53200" | "25006" | "58030" => Failure::Certain(of(StoreErrorKind::CannotWrite)),
        // Contradicts what is stored.
        code if code.starts_with("22") || code.starts_with("23") => Failure::Certain(of(StoreErrorKind::Corrupt)),
        // The statement was cancelled; starting up, shutting down; too many connections.
        _ => Failure::Certain(of(StoreErrorKind::Unavailable)),
    }
}

/// An error while a connection was being made: nothing was asked yet.
pub(crate) fn while_connecting(error: sqlx::Error) -> Failure {
    Failure::Certain(Failure::from(error).into_error())
}
