//! The six lock modes and what they exclude.

/// Lock modes, weakest first. Rows of a table are changed under `SX`; the names are the field's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum LockMode {
    /// Holds a place and excludes nothing.
    Null = 0,
    /// Sub-share: somebody reads or locks rows.
    SS = 1,
    /// Sub-exclusive: somebody changes rows.
    SX = 2,
    /// Share: nobody may change rows.
    S = 3,
    /// Share sub-exclusive: nobody else may change rows, the holder may.
    SSX = 4,
    /// Exclusive.
    X = 5,
}

/// Number of modes.
pub(crate) const MODES: usize = 6;

impl LockMode {
    pub const ALL: [LockMode; MODES] = [
        LockMode::Null,
        LockMode::SS,
        LockMode::SX,
        LockMode::S,
        LockMode::SSX,
        LockMode::X,
    ];

    /// The modes that this one excludes, as bits.
    const fn excludes(self) -> u8 {
        const SS: u8 = 1 << LockMode::SS as u8;
        const SX: u8 = 1 << LockMode::SX as u8;
        const S: u8 = 1 << LockMode::S as u8;
        const SSX: u8 = 1 << LockMode::SSX as u8;
        const X: u8 = 1 << LockMode::X as u8;
        match self {
            LockMode::Null => 0,
            LockMode::SS => X,
            LockMode::SX => S | SSX | X,
            LockMode::S => SX | SSX | X,
            LockMode::SSX => SX | S | SSX | X,
            LockMode::X => SS | SX | S | SSX | X,
        }
    }

    /// Whether two sessions cannot hold these modes on one thing at a time.
    pub const fn conflicts(self, other: LockMode) -> bool {
        self.excludes() & (1 << other as u8) != 0
    }

    /// Whether holding this mode makes asking for `other` needless.
    pub const fn covers(self, other: LockMode) -> bool {
        other.excludes() & !self.excludes() == 0
    }

    /// The weakest mode that covers both.
    pub fn join(self, other: LockMode) -> LockMode {
        let both = |m: &LockMode| m.covers(self) && m.covers(other);
        let all = Self::ALL.into_iter();
        all.filter(both).min().unwrap_or(LockMode::X)
    }

    /// Whether the mode is weak. Weak modes do not conflict with each other, so sessions take them
    /// without a common latch.
    pub const fn is_weak(self) -> bool {
        matches!(self, LockMode::SS | LockMode::SX)
    }

    /// The mode's name in `LOCK TABLE` and `v$lock`.
    pub const fn name(self) -> &'static str {
        match self {
            LockMode::Null => "NULL",
            LockMode::SS => "SS",
            LockMode::SX => "SX",
            LockMode::S => "S",
            LockMode::SSX => "SSX",
            LockMode::X => "X",
        }
    }

    pub(crate) fn from_bits(v: u8) -> LockMode {
        Self::ALL[v as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::LockMode::{self, *};

    #[test]
    fn conflicts_are_the_fields_and_symmetric() {
        let compatible = [(SS, SS), (SS, SX), (SS, S), (SS, SSX), (SX, SX), (S, S)];
        for a in LockMode::ALL {
            for b in LockMode::ALL {
                let expected = a != Null
                    && b != Null
                    && !compatible.contains(&(a, b))
                    && !compatible.contains(&(b, a));
                assert_eq!(a.conflicts(b), expected, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_mode_covers_what_excludes_less() {
        assert!(SSX.covers(S) && SSX.covers(SX) && !S.covers(SX) && !SX.covers(S));
        for m in LockMode::ALL {
            assert!(X.covers(m) && m.covers(m) && m.covers(Null));
        }
        assert_eq!((S.join(SX), SS.join(SX), SS.join(S)), (SSX, SX, S));
    }
}
