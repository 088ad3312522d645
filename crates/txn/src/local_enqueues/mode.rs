//! The modes of an enqueue, and what they exclude.

/// The modes of an enqueue. `AS` to `X` are PostgreSQL's eight modes of table locks, with
/// PostgreSQL's numbers and conflicts ("Table-Level Locks" in its manual). The names are the
/// field's, where the field has the mode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum LockMode {
    /// Holds a place and excludes nothing.
    Null = 0,
    /// ACCESS SHARE: somebody reads.
    AS = 1,
    /// ROW SHARE (sub-share): somebody locks rows.
    SS = 2,
    /// ROW EXCLUSIVE (sub-exclusive): somebody changes rows.
    SX = 3,
    /// SHARE UPDATE EXCLUSIVE: maintenance, which excludes itself and nobody's work on rows.
    SUX = 4,
    /// SHARE: nobody may change rows.
    S = 5,
    /// SHARE ROW EXCLUSIVE (share sub-exclusive): nobody else may change rows, the holder may.
    SSX = 6,
    /// EXCLUSIVE: others may read, and lock no rows.
    EX = 7,
    /// ACCESS EXCLUSIVE. The only exclusive mode of what is no table.
    X = 8,
}

/// Number of modes.
pub(crate) const MODES: usize = 9;

impl LockMode {
    pub const ALL: [LockMode; MODES] = [
        LockMode::Null,
        LockMode::AS,
        LockMode::SS,
        LockMode::SX,
        LockMode::SUX,
        LockMode::S,
        LockMode::SSX,
        LockMode::EX,
        LockMode::X,
    ];

    /// The modes this one excludes, as bits.
    const fn excludes(self) -> u16 {
        const AS: u16 = 1 << LockMode::AS as u8;
        const SS: u16 = 1 << LockMode::SS as u8;
        const SX: u16 = 1 << LockMode::SX as u8;
        const SUX: u16 = 1 << LockMode::SUX as u8;
        const S: u16 = 1 << LockMode::S as u8;
        const SSX: u16 = 1 << LockMode::SSX as u8;
        const EX: u16 = 1 << LockMode::EX as u8;
        const X: u16 = 1 << LockMode::X as u8;
        match self {
            LockMode::Null => 0,
            LockMode::AS => X,
            LockMode::SS => EX | X,
            LockMode::SX => S | SSX | EX | X,
            LockMode::SUX => SUX | S | SSX | EX | X,
            LockMode::S => SX | SUX | SSX | EX | X,
            LockMode::SSX => SX | SUX | S | SSX | EX | X,
            LockMode::EX => SS | SX | SUX | S | SSX | EX | X,
            LockMode::X => AS | SS | SX | SUX | S | SSX | EX | X,
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

    /// Whether a table is locked in this mode by the fast path: nearly every statement takes one
    /// of these, and they do not conflict with each other.
    pub const fn is_weak(self) -> bool {
        matches!(self, LockMode::AS | LockMode::SS | LockMode::SX)
    }

    /// Whether this mode excludes a weak one, and so ends the fast path.
    pub const fn is_strong(self) -> bool {
        self.conflicts(LockMode::SX) || self.conflicts(LockMode::SS)
    }

    /// The field's number of the mode, or of the next stronger one that the field has.
    pub(crate) const fn of_the_field(self) -> u64 {
        match self {
            LockMode::Null => 1,
            LockMode::AS | LockMode::SS => 2,
            LockMode::SX => 3,
            LockMode::S => 4,
            LockMode::SUX | LockMode::SSX => 5,
            LockMode::EX | LockMode::X => 6,
        }
    }

    /// As PostgreSQL names it in `pg_locks` and in errors. What is no table has one exclusive mode.
    pub const fn postgres_name(self, of_table: bool) -> &'static str {
        match self {
            LockMode::Null => "NullLock",
            LockMode::AS => "AccessShareLock",
            LockMode::SS => "RowShareLock",
            LockMode::SX => "RowExclusiveLock",
            LockMode::SUX => "ShareUpdateExclusiveLock",
            LockMode::S => "ShareLock",
            LockMode::SSX => "ShareRowExclusiveLock",
            LockMode::X if of_table => "AccessExclusiveLock",
            LockMode::EX | LockMode::X => "ExclusiveLock",
        }
    }

    pub(crate) fn from_bits(v: u8) -> LockMode {
        Self::ALL[v as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::LockMode::{self, *};

    /// PostgreSQL's table "Conflicting Lock Modes", row by row.
    #[test]
    fn conflicts_are_postgresqls_and_symmetric() {
        let table = [
            "_________",
            "________x", // ACCESS SHARE
            "_______xx", // ROW SHARE
            "_____xxxx", // ROW EXCLUSIVE
            "____xxxxx", // SHARE UPDATE EXCLUSIVE
            "___xx_xxx", // SHARE
            "___xxxxxx", // SHARE ROW EXCLUSIVE
            "__xxxxxxx", // EXCLUSIVE
            "_xxxxxxxx", // ACCESS EXCLUSIVE
        ];
        for (a, row) in LockMode::ALL.into_iter().zip(table) {
            for (b, cell) in LockMode::ALL.into_iter().zip(row.chars()) {
                assert_eq!(a.conflicts(b), cell == 'x', "{a:?} {b:?}");
                assert_eq!(a.conflicts(b), b.conflicts(a), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn weak_modes_go_together_and_strong_ones_exclude_one_of_them() {
        let weak: Vec<LockMode> = LockMode::ALL.into_iter().filter(|m| m.is_weak()).collect();
        for m in LockMode::ALL {
            let excludes_weak = weak.iter().any(|w| m.conflicts(*w));
            assert_eq!(m.is_strong(), excludes_weak, "{m:?}");
            assert!(!(m.is_weak() && m.is_strong()));
        }
    }

    #[test]
    fn a_mode_covers_what_excludes_less() {
        assert!(SSX.covers(S) && SSX.covers(SX) && !S.covers(SX) && !SX.covers(S));
        assert!(SUX.covers(SX) && !SUX.covers(S) && !S.covers(SUX) && EX.covers(SSX));
        for m in LockMode::ALL {
            assert!(X.covers(m) && m.covers(m) && m.covers(Null));
            for n in LockMode::ALL {
                assert!(m.join(n).covers(m) && m.join(n).covers(n));
            }
        }
        assert_eq!((S.join(SX), SS.join(SX), SS.join(S)), (SSX, SX, S));
        assert_eq!((S.join(SUX), AS.join(SS), SUX.join(SX)), (SSX, SS, SUX));
    }
}
