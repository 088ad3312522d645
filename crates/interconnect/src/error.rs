use crate::frame::{FrameError, Lane, Member};
use block::InstanceId;
use std::sync::Arc;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("cannot {what} {whom}: {source}")]
    Io {
        what: &'static str,
        whom: String,
        source: Arc<std::io::Error>,
    },
    #[error("frame refused: {0}")]
    Frame(#[from] FrameError),
    #[error("the clock of the other side is refused: {0}")]
    Clock(String),
    #[error("{0} does not prove that it knows the cluster secret")]
    Proof(String),
    #[error("{whom} does not speak this protocol")]
    Stranger { whom: String },
    #[error("{whom} speaks version {version} of this protocol, this program {ours}")]
    Version {
        whom: String,
        version: u16,
        ours: u16,
    },
    #[error("{whom} refused the connection: {why}")]
    Refused { whom: String, why: &'static str },
    #[error("TLS with {whom}: {why}")]
    Tls { whom: String, why: String },
    #[error("interconnect: {0}")]
    Config(String),
    #[error("port {port} on {ip} is in use by another program", port = .0.port(), ip = .0.ip())]
    InUse(std::net::SocketAddr),
    #[error("instance {} is not connected", .0.0)]
    NotConnected(InstanceId),
    #[error("instance {} is not in the list of addresses", .0.0)]
    NoPeer(InstanceId),
    /// The message was for a life of the instance that is over.
    #[error("{wanted} has been replaced by {now}")]
    Replaced { wanted: Member, now: Member },
    #[error("{0} does not read what is sent to it: {1} bytes are waiting")]
    Backlog(Member, usize),
    #[error("the connection to {to} was lost before the answer came: {why}")]
    Lost { to: Member, why: String },
    #[error("no answer in time")]
    TimedOut,
    #[error(transparent)]
    Cancelled(#[from] wait::Cancelled),
    #[error("the interconnect has stopped")]
    Stopped,
    #[error("cannot start thread {name}: {source}")]
    Thread {
        name: String,
        source: Arc<std::io::Error>,
    },
}

impl Error {
    pub(crate) fn io(
        what: &'static str,
        whom: impl std::fmt::Display,
        e: impl Into<std::io::Error>,
    ) -> Error {
        Error::Io {
            what,
            whom: whom.to_string(),
            source: Arc::new(e.into()),
        }
    }

    /// The SQLSTATE that a client is told: class 08 for connections, 57 for cancellation, F0 for
    /// parameters.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Error::Cancelled(_) | Error::TimedOut => "57014",
            Error::Stopped => "57P01",
            Error::Config(_) | Error::InUse(_) => "F0000",
            Error::Thread { .. } | Error::Backlog(..) => "53000",
            Error::Proof(_) | Error::Stranger { .. } | Error::Tls { .. } => "28000",
            Error::Frame(_) | Error::Version { .. } | Error::Clock(_) => "08P01",
            Error::Refused { .. } | Error::NoPeer(_) => "08004",
            Error::Io { .. }
            | Error::NotConnected(_)
            | Error::Replaced { .. }
            | Error::Lost { .. } => "08006",
        }
    }
}

/// The name of the lane, for messages to people.
pub(crate) fn lane_name(lane: Lane) -> String {
    match lane.lms_number() {
        None => "lmd0".to_string(),
        Some(n) => format!("lms{n}"),
    }
}
