//! The evidence for a peer's silence.

use std::time::{Duration, Instant};

/// How many looks of `lmon` in a row must hear nothing of a peer, or find it not connected, before
/// its locks are tried. At the usual heartbeat that takes two seconds. A connection that breaks is
/// reason enough at once.
pub(super) const SUSPICIOUS_LOOKS: u32 = 20;

/// How long an order may take to be carried out before it is given again, or the fence command is
/// run.
const ORDER_TIME: Duration = Duration::from_secs(3);

/// The evidence for a peer's silence. All of it is forgotten when the peer answers. So the next
/// silence begins anew, with an order before the fence command.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct Suspicion {
    /// How often in a row the peer was found silent or not connected.
    looks: u32,
    since: Option<Instant>,
    /// When the end of the peer was ordered last.
    pub ordered: Option<Instant>,
}

impl Suspicion {
    pub fn looked(&mut self, is_odd: bool, now: Instant) {
        match is_odd {
            true => {
                self.looks = self.looks.saturating_add(1);
                self.since.get_or_insert(now);
            }
            false => *self = Suspicion::default(),
        }
    }

    /// Whether the peer has been silent for so long that its locks are to be tried.
    pub fn is_silent(&self) -> bool {
        self.looks >= SUSPICIOUS_LOOKS
    }

    /// Whether the peer's end is to be ordered, or ordered again.
    pub fn is_overdue(&self, patience: Duration, now: Instant) -> bool {
        self.since.is_some_and(|since| now - since > patience)
            && self.ordered.is_none_or(|at| now - at > ORDER_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_that_ended_leaves_nothing_behind() {
        let (start, patience) = (Instant::now(), Duration::from_secs(30));
        let at = |s| start + Duration::from_secs(s);
        let mut s = Suspicion::default();
        (0..SUSPICIOUS_LOOKS).for_each(|_| s.looked(true, at(0)));
        assert!(s.is_silent() && !s.is_overdue(patience, at(30)) && s.is_overdue(patience, at(31)));
        s.ordered = Some(at(31));
        assert!(!s.is_overdue(patience, at(32)) && s.is_overdue(patience, at(35)));
        s.looked(false, at(36));
        s.looked(true, at(37));
        assert!(!s.is_silent() && !s.is_overdue(patience, at(60)));
        assert!(
            s.ordered.is_none(),
            "the first order of the next silence is a first one"
        );
    }
}
