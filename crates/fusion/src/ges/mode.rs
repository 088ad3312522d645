//! The six modes of an enqueue, and what they exclude.

/// The mode of an enqueue. The order of the variants is weakest first in name only:
/// [`Mode::covers`] orders the modes, and it is not a total order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Mode {
    #[default]
    Null,
    /// SS (row share): the owner reads.
    SubShared,
    /// SX (row exclusive): the owner changes parts.
    SubExclusive,
    /// S: nobody changes anything.
    Shared,
    /// SSX: the owner reads all and changes parts; others only read parts.
    SharedSubExclusive,
    Exclusive,
}

pub(crate) const MODES: [Mode; 6] = [
    Mode::Null,
    Mode::SubShared,
    Mode::SubExclusive,
    Mode::Shared,
    Mode::SharedSubExclusive,
    Mode::Exclusive,
];

impl Mode {
    /// The modes that cannot be held beside this one, as a set of bits.
    fn excludes(self) -> u8 {
        const fn set(modes: &[Mode]) -> u8 {
            let (mut bits, mut at) = (0, 0);
            while at < modes.len() {
                bits |= 1 << modes[at] as u8;
                at += 1;
            }
            bits
        }
        use Mode::*;
        match self {
            Null => 0,
            SubShared => set(&[Exclusive]),
            SubExclusive => set(&[Shared, SharedSubExclusive, Exclusive]),
            Shared => set(&[SubExclusive, SharedSubExclusive, Exclusive]),
            SharedSubExclusive => set(&[SubExclusive, Shared, SharedSubExclusive, Exclusive]),
            Exclusive => set(&[
                SubShared,
                SubExclusive,
                Shared,
                SharedSubExclusive,
                Exclusive,
            ]),
        }
    }

    pub fn compatible(self, other: Mode) -> bool {
        self.excludes() & (1 << other as u8) == 0
    }

    /// Whether the holder of this mode may do all that `other` allows.
    pub fn covers(self, other: Mode) -> bool {
        other.excludes() & !self.excludes() == 0
    }

    /// The weakest mode that covers both.
    pub fn join(self, other: Mode) -> Mode {
        let both = |m: &Mode| m.covers(self) && m.covers(other);
        MODES
            .into_iter()
            .find(both)
            .expect("exclusive covers everything")
    }

    /// The strongest mode that both cover.
    pub fn meet(self, other: Mode) -> Mode {
        let both = |m: &Mode| self.covers(*m) && other.covers(*m);
        let mut all = MODES.into_iter().rev();
        all.find(both).expect("everything covers null")
    }

    /// What a holder of this mode may keep when another instance wants `wanted`.
    pub fn keep_beside(self, wanted: Mode) -> Mode {
        let fits = |m: &Mode| self.covers(*m) && m.compatible(wanted);
        MODES
            .into_iter()
            .rev()
            .find(fits)
            .expect("null is compatible with everything")
    }
}

#[cfg(test)]
mod tests {
    use super::Mode::*;
    use super::*;

    #[test]
    fn the_matrix_is_the_usual_one() {
        let table = [
            "yyyyyy", // Null
            "yyyyyn", // SS
            "yyynnn", // SX
            "yynynn", // S
            "yynnnn", // SSX
            "ynnnnn", // X
        ];
        for (a, row) in MODES.into_iter().zip(table) {
            for (b, cell) in MODES.into_iter().zip(row.chars()) {
                assert_eq!(a.compatible(b), cell == 'y', "{a:?} {b:?}");
                assert_eq!(a.compatible(b), b.compatible(a));
            }
        }
    }

    #[test]
    fn joins_and_what_may_be_kept() {
        assert_eq!(Shared.join(SubExclusive), SharedSubExclusive);
        assert_eq!(SubShared.join(Shared), Shared);
        assert_eq!(Shared.meet(SubExclusive), SubShared);
        assert_eq!(Exclusive.keep_beside(Shared), Shared);
        assert_eq!(Exclusive.keep_beside(SubShared), SharedSubExclusive);
        assert_eq!(SubShared.keep_beside(Exclusive), Null);
        for a in MODES {
            for b in MODES {
                assert!(a.join(b).covers(a) && a.join(b).covers(b));
                assert!(a.covers(a.meet(b)) && b.covers(a.meet(b)));
                assert!(a.keep_beside(b).compatible(b) && a.covers(a.keep_beside(b)));
            }
        }
    }
}
