//! The modes of an enqueue, and what they exclude.

/// The mode of an enqueue: none, or one of PostgreSQL's eight modes of table locks. The order of
/// the variants is weakest first in name only: [`Mode::covers`] orders the modes, and it is not a
/// total order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Mode {
    #[default]
    Null,
    /// AS (access share): the owner reads.
    AccessShared,
    /// SS (row share): the owner locks parts.
    SubShared,
    /// SX (row exclusive): the owner changes parts.
    SubExclusive,
    /// SUX (share update exclusive): only one owner at a time, beside any that change parts.
    SharedUpdateExclusive,
    /// S: nobody changes anything.
    Shared,
    /// SSX: the owner reads all and changes parts; others only lock or read parts.
    SharedSubExclusive,
    /// EX: the owner changes anything; others only read.
    WriteExclusive,
    Exclusive,
}

pub(crate) const MODES: [Mode; 9] = [
    Mode::Null,
    Mode::AccessShared,
    Mode::SubShared,
    Mode::SubExclusive,
    Mode::SharedUpdateExclusive,
    Mode::Shared,
    Mode::SharedSubExclusive,
    Mode::WriteExclusive,
    Mode::Exclusive,
];

impl Mode {
    /// The modes that cannot be held beside this one, as a set of bits.
    fn excludes(self) -> u16 {
        const AS: u16 = 1 << Mode::AccessShared as u8;
        const SS: u16 = 1 << Mode::SubShared as u8;
        const SX: u16 = 1 << Mode::SubExclusive as u8;
        const SUX: u16 = 1 << Mode::SharedUpdateExclusive as u8;
        const S: u16 = 1 << Mode::Shared as u8;
        const SSX: u16 = 1 << Mode::SharedSubExclusive as u8;
        const EX: u16 = 1 << Mode::WriteExclusive as u8;
        const X: u16 = 1 << Mode::Exclusive as u8;
        match self {
            Mode::Null => 0,
            Mode::AccessShared => X,
            Mode::SubShared => EX | X,
            Mode::SubExclusive => S | SSX | EX | X,
            Mode::SharedUpdateExclusive => SUX | S | SSX | EX | X,
            Mode::Shared => SX | SUX | SSX | EX | X,
            Mode::SharedSubExclusive => SX | SUX | S | SSX | EX | X,
            Mode::WriteExclusive => SS | SX | SUX | S | SSX | EX | X,
            Mode::Exclusive => AS | SS | SX | SUX | S | SSX | EX | X,
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

/// A set of modes, without the null mode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Modes(u16);

impl Modes {
    /// The set that has these bits, the mode with discriminant `n` in bit `n`. `None` if a bit
    /// stands for no mode.
    pub fn from_bits(bits: u16) -> Option<Modes> {
        let all = Mode::Exclusive.excludes();
        (bits & !all == 0).then_some(Modes(bits))
    }

    pub fn bits(self) -> u16 {
        self.0
    }

    pub fn insert(&mut self, mode: Mode) {
        self.0 |= 1 << mode as u8 & Mode::Exclusive.excludes();
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn contains(self, mode: Mode) -> bool {
        self.0 & 1 << mode as u8 != 0
    }

    /// Those that cannot be held beside `mode`.
    pub fn excluding(self, mode: Mode) -> Modes {
        Modes(self.0 & mode.excludes())
    }

    pub fn iter(self) -> impl Iterator<Item = Mode> {
        MODES.into_iter().filter(move |m| self.contains(*m))
    }
}

impl FromIterator<Mode> for Modes {
    fn from_iter<I: IntoIterator<Item = Mode>>(modes: I) -> Modes {
        let mut set = Modes::default();
        modes.into_iter().for_each(|m| set.insert(m));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::Mode::*;
    use super::*;

    #[test]
    fn the_matrix_is_postgresqls() {
        let table = [
            "yyyyyyyyy", // Null
            "yyyyyyyyn", // AS
            "yyyyyyynn", // SS
            "yyyyynnnn", // SX
            "yyyynnnnn", // SUX
            "yyynnynnn", // S
            "yyynnnnnn", // SSX
            "yynnnnnnn", // EX
            "ynnnnnnnn", // X
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
        assert_eq!(Exclusive.keep_beside(AccessShared), WriteExclusive);
        assert_eq!(Exclusive.keep_beside(SubExclusive), SharedUpdateExclusive);
        assert_eq!(Shared.keep_beside(SharedUpdateExclusive), SubShared);
        assert_eq!(Shared.meet(SharedUpdateExclusive), SubShared);
        assert_eq!(Shared.join(SharedUpdateExclusive), SharedSubExclusive);
        assert_eq!(SubShared.keep_beside(Exclusive), Null);
        for a in MODES {
            for b in MODES {
                assert!(a.join(b).covers(a) && a.join(b).covers(b));
                assert!(a.covers(a.meet(b)) && b.covers(a.meet(b)));
                assert!(a.keep_beside(b).compatible(b) && a.covers(a.keep_beside(b)));
            }
        }
    }

    #[test]
    fn a_set_knows_what_excludes_a_mode() {
        let set: Modes = [Null, SubShared, Shared].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [SubShared, Shared]);
        assert_eq!(Modes::from_bits(set.bits()), Some(set));
        assert_eq!(
            (Modes::from_bits(1), Modes::from_bits(1 << 9)),
            (None, None)
        );
        assert!(set.excluding(AccessShared).is_empty());
        let against = set.excluding(SubExclusive);
        assert_eq!(against.iter().collect::<Vec<_>>(), [Shared]);
        assert!(
            MODES[1..]
                .iter()
                .all(|m| Modes::from_iter([*m]).contains(*m))
        );
    }
}
